"""The decode engine against an obvious numpy loop, as plain Python, and on cases with known answers."""

import dataclasses
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hedgelab as hl
from experiments import twins
from experiments.twins import decode
from hedgelab import decode_loop, decode_replay
from hedgelab._jit import uncompiled
from tests.sizes import needs_jit


def random_trace(rng, *, drafters=None, k=4, lengths=None, deep=None, binary=False):
    """A random trace: prefix-only drafters, or drafters with a value for each depth."""
    n = drafters or int(rng.integers(1, 6))
    lengths = rng.integers(1, 30, rng.integers(1, 6)) if lengths is None else lengths
    deep = bool(rng.integers(2)) if deep is None else deep
    shape = (sum(lengths), k if deep else 1, n)
    alpha, gamma = rng.random(shape), rng.random(shape)
    if binary:
        alpha = gamma = (alpha < 0.7).astype(float)
    if deep:  # after a rejection the path has left the draft: alpha 0, gamma undefined
        alpha[rng.random(shape) < 0.2] = 0.0
        for d in range(1, k):
            left = np.concatenate([np.zeros((1, n), bool), alpha[:-1, d - 1] == 0.0])
            left &= rng.random(left.shape) < 0.8  # some kinds stay defined
            alpha[:, d][left], gamma[:, d][left] = 0.0, np.nan
    return hl.Trace.from_arrays(
        token=rng.integers(0, 100, sum(lengths)),
        alpha=alpha,
        gamma=gamma,
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        domains=[str(i % 2) for i in range(len(lengths))],
        drafters=[f"d{i}" for i in range(n)],
        k=k,
        confidence=rng.random((sum(lengths), n)),
    )


def coins_of(trace, seed=0, replicate=0):
    return np.concatenate(
        [
            hl.coins.uniforms(seed, hl.coins.COIN, int(s), 0, int(n), replicate)
            for s, n in zip(trace.sequence_id, np.diff(trace.offsets), strict=True)
        ]
    )


SETTINGS = st.fixed_dictionaries(
    {
        "k": st.integers(1, 4),
        "objective_estimator": st.sampled_from(
            [("length", "B"), ("length", "C"), ("acceptance", "gamma"), ("acceptance", "alpha")]
        ),
        "granularity": st.sampled_from(decode_replay.GRANULARITY),
        "carry_over": st.booleans(),
        "feedback": st.sampled_from(["delayed", "delayed", "censored", "bandit", "bandit"]),
        "padded": st.booleans(),
        "block_reward": st.booleans(),
    }
)


@pytest.mark.parametrize("name", hl.learners())
@given(world=st.integers(0, 2**32 - 1), settings=SETTINGS)
def test_replay_equals_an_obvious_loop_and_plain_python(name, world, settings):
    rng = np.random.default_rng(world)
    trace = random_trace(rng)
    policy = hl.learner(name)
    bandit = policy.feedback == "bandit"
    block = settings.pop("block_reward") and bandit
    objective, estimator = settings.pop("objective_estimator")
    feedback, padded = settings.pop("feedback"), settings.pop("padded")
    if (feedback == "censored" and objective == "acceptance") or (feedback == "bandit" and policy.feedback == "full"):
        feedback = "delayed"
    padded &= feedback == "delayed" and settings["granularity"] == "token" and not bandit
    padded &= not policy.randomises  # the twin draws what is played inside a round at another moment
    options = {**settings, "objective": objective, "estimator": estimator, "feedback": feedback}
    game = feedback != "censored"
    engine = {
        **options,
        "delay_mode": "padded" if padded else "queue",
        "seed": 3,
        "replicate": 2,
        "token_game": game,
    }
    policy = dataclasses.replace(policy, reward="block" if block else "accepted")
    run = hl.replay(trace, policy, **engine)
    naive = decode.replay(
        trace.alpha,
        trace.gamma,
        trace.offsets,
        coins_of(trace, 3, 2),
        twins.LEARNERS[name],
        np.random.Generator(np.random.PCG64([3, 2])),
        own_entry_only=bandit,
        block_reward=block,
        copies=(2 * settings["k"] if objective == "length" else settings["k"] + 1) if padded else 1,
        **options,
    )
    assert run.picks.tolist() == naive.picks
    assert run.accepted.tolist() == naive.accepted
    assert run.committed.tolist() == naive.committed
    assert run.sequence_rounds.tolist() == naive.sequence_rounds
    plain = hl.replay(trace, policy, **engine, jit=False)
    for field in ("picks", "accepted", "committed", "sequence_rounds"):
        assert getattr(plain, field).tolist() == getattr(run, field).tolist()
    if not game:
        return
    known = sorted(naive.expected_loss)
    assert np.flatnonzero(~np.isnan(run.expected_loss)).tolist() == known
    np.testing.assert_allclose(run.expected_loss[known], [naive.expected_loss[row] for row in known], atol=1e-9)
    assert run.losses_seen[known].tolist() == [naive.losses_seen[row] for row in known]
    assert plain.losses_seen.tolist() == run.losses_seen.tolist()
    np.testing.assert_array_equal(plain.expected_loss, run.expected_loss)  # to the bit


def compiled_within(function, seen):
    """Yield what is compiled among all that a function reaches by name or closure."""
    if hasattr(function, "py_func"):
        yield function
    elif isinstance(function, types.FunctionType) and function not in seen:
        seen.add(function)
        inner = [cell.cell_contents for cell in function.__closure__ or ()]
        for value in (*inner, *(function.__globals__.get(name) for name in function.__code__.co_names)):
            yield from compiled_within(value, seen)
            if isinstance(value, types.ModuleType) and value.__name__.startswith("hedgelab"):
                yield value


@needs_jit
def test_plain_python_reaches_nothing_compiled():
    assert list(compiled_within(decode_loop.replay_part.py_func, set()))  # the search finds some where there are some
    for function in (decode_loop.plain_engine(), *(uncompiled(hl.learner(name).play) for name in hl.learners())):
        assert list(compiled_within(function, set())) == []

    helper = hl.kernel(lambda x: x + 1)

    def outer(x):
        return helper(x)

    assert list(compiled_within(outer, set())) == [helper]
    assert list(compiled_within(uncompiled(outer), set())) == []
    assert uncompiled(outer)(1) == 2

    module = types.ModuleType("hedgelab.somewhere")
    module.f = helper
    names = {"module": module}
    exec("def g(x):\n    return module.f(x)", names)
    with pytest.raises(TypeError, match="import them by name"):
        uncompiled(names["g"])


def test_own_drafter_commits_k_plus_one():
    # case B6: alpha = 1, K = 5, 128 rows: 22 rounds, mat 5.818
    ones = np.ones((128, 1))
    trace = hl.Trace.from_arrays(
        token=np.zeros(128, int), alpha=ones, gamma=ones, offsets=[0, 128], domains=["x"], drafters=["self"], k=5
    )
    run = hl.replay(trace, "fixed", k=5)
    assert run.rounds == 22
    assert run.mat == pytest.approx(5.818, abs=5e-4)
    assert run.mat_full_rounds == 6.0
    assert run.committed.tolist() == [6] * 21 + [2]
    assert run.accepted.tolist() == [5] * 21 + [2]
    assert run.rows.tolist() == list(range(0, 128, 6))


def test_eos_and_limit_inside_a_draft():
    # cases A1, D1, D2: the path ends inside the drafts; what lies beyond is not committed
    for rows, k, committed in ((3, 5, [3]), (19, 20, [19]), (4, 3, [4]), (5, 3, [4, 1])):
        ones = np.ones((rows, 1))
        trace = hl.Trace.from_arrays(
            token=np.zeros(rows, int), alpha=ones, gamma=ones, offsets=[0, rows], domains=["x"], drafters=["a"], k=k
        )
        run = hl.replay(trace, "fixed", k=k)
        assert run.committed.tolist() == committed
        assert run.committed.sum() == rows


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_what_holds_for_every_run(world, k):
    rng = np.random.default_rng(world)
    trace = random_trace(rng)
    run = hl.replay(trace, "uniform", k=k)
    assert run.committed.sum() == trace.rows
    assert run.sequence_rounds.sum() == run.rounds
    assert ((run.committed >= 1) & (run.committed <= k + 1)).all()
    assert ((run.accepted == run.committed - 1) | (run.accepted == run.committed)).all()
    starts = set(trace.offsets.tolist())
    assert starts - {trace.rows} <= set(run.rows.tolist())  # no round crosses the end of a sequence
    assert (run.accepted <= run.proposed).all()
    log = hl.metrics.RoundLog.of_replay(run)
    assert hl.metrics.METRICS["mat"].of(log) == pytest.approx(run.mat)
    assert hl.metrics.METRICS["mat_mean_of_requests"].of(log) == pytest.approx(run.mat_by_sequence.mean())
    if run.full.any():  # case A2
        assert run.mat_full_rounds == pytest.approx(1 + run.accepted[run.full].mean())


@pytest.mark.parametrize("name", hl.learners())
@given(world=st.integers(0, 2**32 - 1), data=st.data())
def test_the_future_changes_no_pick(name, world, data):
    rng = np.random.default_rng(world)
    trace = random_trace(rng, drafters=3, lengths=[40])
    run = hl.replay(trace, name)
    start = int(data.draw(st.sampled_from(run.rows.tolist())))
    alpha, gamma, confidence = trace.alpha.copy(), trace.gamma.copy(), trace.confidence.copy()
    alpha[start:], gamma[start:] = rng.random(alpha[start:].shape), rng.random(gamma[start:].shape)
    confidence[start + 1 :] = rng.random(confidence[start + 1 :].shape)
    other = hl.Trace.from_arrays(
        token=trace.token,
        alpha=alpha,
        gamma=gamma,
        offsets=trace.offsets,
        domains=["x"],
        drafters=trace.drafters,
        k=trace.k,
        confidence=confidence,
    )
    changed = hl.replay(other, name)
    rounds = int((run.rows <= start).sum())  # the round at `start` was chosen before its row was known
    assert changed.picks[:rounds].tolist() == run.picks[:rounds].tolist()


def test_coins_are_shared_and_survive_selection():
    rng = np.random.default_rng(1)
    trace = random_trace(rng, drafters=3, lengths=[9, 14, 30, 2])
    whole = hl.oracles.fixed_rounds(trace, seed=5).rounds
    picked = hl.oracles.fixed_rounds(trace.select([2, 0, 2]), seed=5).rounds
    assert picked.tolist() == whole[[2, 0, 2]].tolist()
    for drafter in range(3):
        run = hl.replay(trace, hl.learner("fixed", drafter=drafter), seed=5)
        assert run.sequence_rounds.tolist() == whole[:, drafter].tolist()
        again = hl.replay(trace, hl.learner("fixed", drafter=drafter), coins=coins_of(trace, 5))
        assert again.accepted.tolist() == run.accepted.tolist()
    assert hl.replay(trace, "uniform", seed=1).picks.tolist() != hl.replay(trace, "uniform", seed=2).picks.tolist()


def test_context_is_the_confidence_of_the_round_start():
    rng = np.random.default_rng(2)
    trace = random_trace(rng, drafters=4)

    def play(params, state, context, rng, probs):
        probs[:] = 0.0
        probs[np.argmax(context)] = 1.0

    def observe(params, state, context, probs, pick, losses):
        assert np.argmax(context) == pick

    policy = hl.Learner("most confident", lambda params, n: np.zeros((1, n)), play, observe)
    run = hl.replay(trace, policy, context=True)
    assert run.picks.tolist() == trace.confidence[run.rows].argmax(axis=1).tolist()
    with pytest.raises(ValueError, match="plain Python"):
        hl.replay(trace, policy, jit=True)


@needs_jit
def test_one_compiled_engine_serves_all_learners():
    functions = [function for name in hl.learners() for function in (hl.learner(name).play, hl.learner(name).observe)]
    counts = []
    for seed in (3, 4):
        trace = random_trace(np.random.default_rng(seed))
        for name in hl.learners():
            hl.replay(trace, name)
        counts.append([len(function.signatures) for function in functions])
    assert len(decode_loop.compiled_engine().signatures) == 1
    assert counts[0] == counts[1]  # more than one each only where kernels of other tests called them in their own way
    assert min(counts[0]) >= 1


def test_losses_equal_the_naive_ones():
    rng = np.random.default_rng(4)
    trace = random_trace(rng, deep=False, k=3, lengths=[2, 7, 3])
    for objective, estimators in (("length", "ABC"), ("acceptance", ("gamma", "alpha"))):
        for estimator in estimators:
            losses = hl.feedback.losses(trace, k=3, objective=objective, estimator=estimator)
            lag = 3 if objective == "length" else 1
            for s, (first, last) in enumerate(zip(trace.offsets[:-1], trace.offsets[1:], strict=True)):
                for row in range(first, last):
                    if row + lag > last:
                        assert np.isnan(losses[row]).all(), s
                    else:
                        naive = decode.row_loss(trace.alpha, trace.gamma, row, 3, objective, estimator)
                        np.testing.assert_allclose(losses[row], naive, atol=1e-12)


TRACE = random_trace(np.random.default_rng(5), deep=True, drafters=3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learner": "nobody"}, "no learner 'nobody'; there are hedge"),
        ({"k": 0}, "k must be a whole number"),
        ({"k": 2.0}, "k must be a whole number"),
        ({"k": 5}, "at most 4, the depth recorded for d0, d1, d2; got 5"),
        ({"objective": "speed"}, "objective must be one of acceptance, length"),
        ({"estimator": "D"}, "estimator of objective 'length' must be one of C, B, A"),
        ({"estimator": "A"}, "use B or C"),
        ({"feedback": "bandit"}, "needs every drafter's loss"),
        ({"feedback": "none"}, "feedback must be one of delayed, censored, bandit"),
        ({"feedback": "censored", "objective": "acceptance"}, "censored feedback is for objective 'length'"),
        ({"feedback": "censored", "token_game": True}, "without token_game"),
        ({"delay_mode": "bold"}, "delay_mode must be one of queue, padded"),
        ({"delay_mode": "padded", "granularity": "round"}, "delay_mode 'padded' is for late losses"),
        ({"delay_mode": "padded", "learner": "ucb1"}, "delay_mode 'padded' is for late losses"),
        ({"objective": ["length"]}, "objective must be one of"),
        ({"jit": "no"}, "jit must be True, False or None"),
        ({"replicate": -1}, "replicate must be"),
        ({"granularity": "word"}, "granularity must be one of token, round"),
        ({"seed": -1}, "seed must be"),
        ({"coins": [0.5]}, "one entry a row"),
        ({"coins": np.ones(TRACE.rows)}, r"coins must lie in \[0, 1\)"),
        ({"learner": hl.learner("fixed", drafter=3)}, r"drafter must lie in \[0, 2\], got 3"),
    ],
)
def test_bad_arguments(options, words):
    with pytest.raises(ValueError, match=words):
        hl.replay(TRACE, **{"learner": "hedge", **options})


def test_bad_learners():
    with pytest.raises(TypeError, match=r"trace must be a hedgelab\.Trace"):
        hl.replay("t06", "hedge")
    with pytest.raises(TypeError, match=r"registered name or a hedgelab\.Learner, got int"):
        hl.replay(TRACE, 3)
    for shape in ((3,), (0, 3), (2, 4)):
        policy = hl.Learner("odd", lambda params, n, shape=shape: np.zeros(shape), print, print)
        with pytest.raises(ValueError, match=r"init must return real numbers of shape \(rows, 3\)"):
            hl.replay(TRACE, policy)


@pytest.mark.parametrize("wrong", [[0.5, 0.4, 0.0], [1.5, -0.5, 0.0], [np.nan, 0.5, 0.5], None])
@pytest.mark.parametrize("compiled", [True, False])
def test_a_play_must_write_a_distribution(wrong, compiled):
    values = np.array(wrong if wrong else [1.0, 0.0, 0.0])
    silent = wrong is None

    def play(params, state, context, rng, probs):
        if state[0, 0] < 2:
            for i in range(3):
                probs[i] = 1 / 3
        elif not silent:
            for i in range(3):
                probs[i] = values[i]

    def observe(params, state, context, probs, pick, losses):
        state[0, 0] += 1

    if compiled:
        play, observe = hl.kernel(play), hl.kernel(observe)
    policy = hl.Learner("wrong", lambda params, n: np.zeros((1, n)), play, observe)
    with pytest.raises(ValueError, match=r"learner 'wrong': in round \d+ play did not write a distribution"):
        hl.replay(TRACE, policy, carry_over=True)


def test_a_log_of_chosen_drafters_refuses_full_information():
    rng = np.random.default_rng(6)
    alpha = rng.random((20, 2))
    trace = hl.Trace.from_arrays(
        token=np.zeros(20, int),
        alpha=alpha,
        gamma=alpha,
        offsets=[0, 20],
        domains=["x"],
        drafters=["a", "b"],
        k=3,
        feedback="bandit",
    )
    with pytest.raises(ValueError, match="chosen drafter's only"):
        hl.replay(trace, "hedge")
    assert hl.replay(trace, "ucb1").rounds > 0  # every acceptance is known here
    alpha[7, 1] = np.nan
    holes = hl.Trace.from_arrays(
        token=np.zeros(20, int),
        alpha=alpha,
        gamma=alpha,
        offsets=[0, 5, 20],
        domains=["x", "y"],
        drafters=["a", "b"],
        k=3,
        feedback="bandit",
    )
    for call in (lambda: hl.replay(holes, "ucb1"), lambda: hl.oracles.expected_fixed_rounds(holes)):
        with pytest.raises(ValueError, match="sequence 1, row 2: acceptance of 'b' was not observed"):
            call()


def test_whole_rewards_reach_bandits_at_the_end_of_a_text():
    # k drafts accepted up to the last row: the reward is not truncated, though no token of the target's own followed
    fed = []

    def play(params, state, context, rng, probs):
        probs[:] = 1.0

    def observe(params, state, context, probs, pick, losses):
        fed.append(float(losses[pick]))

    policy = hl.Learner("ear", lambda params, n: np.zeros((1, n)), play, observe, feedback="bandit")
    ones = np.ones((4, 1))
    for rows, objective, expected in (
        (4, "length", [0.0]),
        (3, "length", []),
        (3, "acceptance", [0.0]),
    ):
        trace = hl.Trace.from_arrays(
            token=np.zeros(rows, int),
            alpha=ones[:rows],
            gamma=ones[:rows],
            offsets=[0, rows],
            domains=["x"],
            drafters=["a"],
            k=4,
        )
        fed.clear()
        hl.replay(trace, policy, objective=objective)
        assert fed == expected


def test_flat_drafters_propose_k_whatever_the_trace_holds():
    alpha = np.ones((40, 1))
    trace = hl.Trace.from_arrays(
        token=np.zeros(40, int), alpha=alpha, gamma=alpha, offsets=[0, 40], domains=["x"], drafters=["a"], k=2
    )
    run = hl.replay(trace, "fixed", k=8)
    assert set(run.proposed) == {8}
    assert hl.metrics.METRICS["accepted_drafts"].of(hl.metrics.RoundLog.of_replay(run)) == 36


def test_kernels_of_users_check_bounds():
    @hl.kernel
    def play(params, state, context, rng, probs):
        for i in range(len(probs)):
            probs[i] = 1.0 / len(probs)

    @hl.kernel
    def observe(params, state, context, probs, pick, losses):
        state[0, len(losses)] += 1.0

    policy = hl.Learner("wild", lambda params, n: np.zeros((1, n)), play, observe)
    with pytest.raises(IndexError):
        hl.replay(TRACE, policy)


def test_a_drafter_by_name_index_or_digits():
    for name, index in (("d2", 2), ("1", 1), (0, 0)):
        assert set(hl.replay(TRACE, hl.learner("fixed", drafter=name)).picks) == {index}
    with pytest.raises(ValueError, match="no drafter 'd9'"):
        hl.replay(TRACE, hl.learner("fixed", drafter="d9"))


def recorder():
    """A learner that learns nothing and keeps what it is shown, and the list it keeps it in."""
    shown = []

    def play(params, state, context, rng, probs):
        probs[:] = 1 / len(probs)

    def observe(params, state, context, probs, pick, losses):
        shown.append((pick, losses.copy()))

    return hl.Learner("recorder", lambda params, n: np.zeros((1, n)), play, observe), shown


@pytest.mark.parametrize("estimator", ["B", "C"])
def test_censored_losses_are_those_of_lengths_censored(estimator):
    trace = random_trace(np.random.default_rng(7), drafters=3, lengths=[60], deep=False)
    policy, shown = recorder()
    run = hl.replay(trace, policy, k=4, feedback="censored", estimator=estimator)
    ends = np.repeat(np.cumsum(run.committed), run.committed)
    lengths = hl.lengths.censored(trace.alpha, trace.gamma, 4, ends, estimator=estimator)
    whole = run.full | (run.accepted == 4)  # a round that the end cut is not shown
    assert not whole[-1]
    kept = np.repeat(whole, run.committed)
    np.testing.assert_allclose([losses for _, losses in shown], 1 - lengths[kept] / 5, atol=1e-12)
    np.testing.assert_array_equal([pick for pick, _ in shown], np.repeat(run.picks, run.committed)[kept])


def test_block_reward_is_the_mean_gamma_of_the_drafts_on_the_path():
    # k = 3; drafter 0 accepts row 0 surely and row 1 never; the path has four rows
    alpha = np.array([1.0, 0.0, 1.0, 1.0])[:, None]
    gamma = np.array([0.75, 0.5, 0.25, 1.0])[:, None]
    trace = hl.Trace.from_arrays(
        token=np.zeros(4, int), alpha=alpha, gamma=gamma, offsets=[0, 4], domains=["x"], drafters=["a"], k=3
    )
    for reward, expected in (("block", [1 - (0.75 + 0.5) / 2]), ("accepted", [1 - 1 / 3])):
        policy, shown = recorder()
        run = hl.replay(trace, dataclasses.replace(policy, feedback="bandit", reward=reward))
        assert run.committed.tolist() == [2, 2]
        # the second round is cut by the end with 2 of 3 accepted: not the drafter's reward
        assert [losses[0] for _, losses in shown] == pytest.approx(expected)
