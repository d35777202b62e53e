"""The live policy against the replay that it must equal, and its schedules against a naive account of them."""

import dataclasses
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hedgelab as hl
from hedgelab._jit import uncompiled
from hedgelab.decode_replay import GRANULARITY
from hedgelab.feedback import row_losses
from tests.sizes import few, needs_jit, thorough
from tests.strategies import seeds, traces
from tests.test_decode_replay import random_trace
from traces.live.policy import Policy
from traces.live.schedule import Schedule, Setting


class Text:
    """One text of a trace as a decoder meets it: rows hold `filler` until a drafter is evaluated on them."""

    def __init__(self, trace, part, s, filler=np.nan):
        begin, end = part.begin[s], part.end[s]
        self.rows, self.id, self.filler = int(end - begin), int(part.sequence_id[s]), filler
        self.layout = {"flat_columns": trace.flat_columns, "deep_columns": trace.deep_columns}
        self.names = ("alpha_flat", "gamma_flat", "alpha_deep", "gamma_deep")
        self.truth = {name: getattr(part, name)[begin:end] for name in self.names}
        self.seen = {name: np.full_like(values, filler) for name, values in self.truth.items()}
        self.upto = np.zeros(len(trace.drafters), np.int64)

    @property
    def columns(self):
        return types.SimpleNamespace(**self.seen, **self.layout)

    def of(self, kind, row, depth, drafter):
        for layout in ("flat", "deep"):
            if drafter in self.layout[f"{layout}_columns"]:
                values = self.truth[f"{kind}_{layout}"]
                column = self.layout[f"{layout}_columns"].tolist().index(drafter)
                return float(values[row, column] if layout == "flat" else values[row, depth, column])
        raise KeyError(drafter)

    def evaluate(self, drafter, begin, end):
        for name in self.names:
            for column, i in enumerate(self.layout[f"{name.split('_')[1]}_columns"]):
                if i == drafter:
                    self.seen[name][begin:end, ..., column] = self.truth[name][begin:end, ..., column]
        self.upto[drafter] = end


def texts(trace, filler=np.nan):
    for part in trace.parts():
        for s in range(len(part.begin)):
            yield Text(trace, part, s, filler)


def outcome(text, coins, row, k, pick):
    """Return (accepted, taken, cut) of a round."""
    accepted = 0
    while (
        accepted < k
        and row + accepted < text.rows
        and coins[row + accepted] < text.of("alpha", row + accepted, accepted, pick)
    ):
        accepted += 1
    cut = row + accepted >= text.rows
    return accepted, accepted + (not cut), cut


def drive(trace, policy, filler=np.nan, alive=None, contexts=None):
    """Decode all texts by their recorded acceptances and return the plays, and who was due after each round."""
    setting, plays, dues = policy.setting, [], []
    k, gain = setting.k, "alpha" if setting.estimator == "alpha" else "gamma"
    for s, text in enumerate(texts(trace, filler)):
        coins = hl.coins.uniforms(setting.seed, hl.coins.COIN, text.id, 0, text.rows, setting.replicate)
        play = policy.begin() if contexts is None else policy.begin(contexts[s])
        row = 0
        while row < text.rows:
            pick = play.pick(row, None if alive is None else alive(s, row))
            accepted, taken, cut = outcome(text, coins, row, k, pick)
            tried = min(k, accepted + 1, text.rows - row)
            block = (
                float(np.mean([text.of("gamma", row + d, d, pick) for d in range(tried)])) if policy.bandit else None
            )
            play.committed(accepted, taken, cut, block, text.of(gain, row, 0, pick))
            row += taken
            due = play.due()
            dues.append(due)
            if due and setting.schedule.skips:
                for i in due:
                    text.evaluate(i, play.waiting, row)
                text.upto[:] = row
            for i in due:
                text.evaluate(i, int(text.upto[i]), row)
            if due:
                play.known(text.upto, text.columns)
        plays.append(play)
    return plays, dues


def assert_equal_runs(plays, run):
    rounds = [played for play in plays for played in play.rounds]
    assert [played.pick for played in rounds] == run.picks.tolist()
    assert [len(play.rounds) for play in plays] == run.sequence_rounds.tolist()
    starts = np.repeat(run.trace.offsets[:-1], run.sequence_rounds)
    assert [int(start) + played.row for start, played in zip(starts, rounds, strict=True)] == run.rows.tolist()
    if run.losses_seen is not None:
        known = ~np.isnan(run.expected_loss[run.rows])  # of other rows the replay says 0
        seen = np.array([played.losses_seen for played in rounds])
        assert seen[known].tolist() == run.losses_seen[run.rows[known]].tolist()


def spy(policy):
    """The same learner as plain Python, and the list of its calls with all that it was given."""
    calls, play, observe = [], uncompiled(policy.play), uncompiled(policy.observe)

    def playing(params, state, context, rng, probs):
        calls.append(("play", state.tolist(), context.tolist()))
        play(params, state, context, rng, probs)

    def observing(params, state, context, probs, pick, losses):
        calls.append(("observe", probs.tolist(), int(pick), [str(loss) for loss in losses], context.tolist()))
        observe(params, state, context, probs, pick, losses)

    return dataclasses.replace(policy, play=playing, observe=observing), calls


OPTIONS = st.fixed_dictionaries(
    {
        "objective_estimator": st.sampled_from(
            [
                ("length", None),
                ("length", "B"),
                ("length", "C"),
                ("acceptance", None),
                ("acceptance", "gamma"),
                ("acceptance", "alpha"),
            ]
        ),
        "granularity": st.sampled_from(GRANULARITY),
        "carry_over": st.booleans(),
        "delayed": st.booleans(),
        "seed": st.integers(0, 5),
        "replicate": st.integers(0, 2),
    }
)


SOME = (
    "hedge", "normalhedge", "adahedge", "squint", "fixed-share", "ftl", "ftpl", "exp3", "exp3-p", "ucb1",
    "thompson-beta", "ucbspec", "metasd", "metasd-onpath", "explore-then-commit", "uniform", "fixed",
)  # fmt: skip


@pytest.mark.parametrize("name", thorough(hl.learners(), SOME))
@settings(max_examples=few(6, 2))
@given(trace=traces(), data=st.data(), options=OPTIONS)
def test_live_equals_replay(name, trace, data, options):
    policy, options = hl.learner(name), dict(options)
    options["objective"], options["estimator"] = options.pop("objective_estimator")
    options["k"] = data.draw(st.integers(1, trace.k))
    # gamma of a first draft may be undefined only where no tree has been left, so nowhere
    options["feedback"] = "delayed" if options.pop("delayed") else None
    spied, calls = spy(policy)
    for learner in (policy, spied):
        live = Policy(learner, trace.drafters, Setting(**options))
        plays, _ = drive(trace, live)
        live_calls = calls.copy()
        calls.clear()
        learns = policy.feedback != "none"  # who learns nothing is evaluated, and told, nothing
        run = hl.replay(trace, learner, **options, token_game=learns)
        assert_equal_runs(plays, run)
        assert live_calls == [call for call in calls if learns or call[0] == "play"]
    assert calls


@pytest.mark.parametrize("cut", thorough(["greedy", "t06", "t10"], ["t06"]))
@pytest.mark.parametrize("name", ["normalhedge", "squint", "exp3", "metasd", "metasd-onpath", "thompson-beta", "fixed"])
def test_live_equals_replay_on_bundled_traces(cut, name):
    trace = hl.sample_trace(cut).select(range(3))
    options = {"k": min(5, trace.k), "carry_over": True, "seed": 3}
    plays, _ = drive(trace, Policy(name, trace.drafters, Setting(**options)))
    assert_equal_runs(plays, hl.replay(trace, name, **options))


@given(seeds)
def test_estimator_a_where_gamma_is_defined(world):
    trace = random_trace(np.random.default_rng(world), deep=False)
    plays, _ = drive(trace, Policy("hedge", trace.drafters, Setting(3, estimator="A")))
    assert_equal_runs(plays, hl.replay(trace, "hedge", k=3, estimator="A"))


@given(seeds)
def test_a_context_of_the_text(world):
    from hedgelab.algorithms.router import LEARNER

    rng = np.random.default_rng(world)
    trace = random_trace(rng, drafters=3)
    contexts = rng.dirichlet(np.ones(3), trace.sequences)
    plays, _ = drive(trace, Policy(LEARNER, trace.drafters, Setting(4)), contexts=contexts)
    assert_equal_runs(plays, hl.replay(trace, LEARNER, context=contexts))


@given(seeds, st.sampled_from(["normalhedge", "ftl", "exp3"]))
def test_what_is_not_yet_known_changes_nothing(world, name):
    rng = np.random.default_rng(world)
    trace = random_trace(rng)
    for schedule in ("every", "every=2,turns=1"):
        setting = Setting(3, schedule=Schedule.parse(schedule))
        reference, _ = drive(trace, Policy(name, trace.drafters, setting))
        other, _ = drive(trace, Policy(name, trace.drafters, setting), filler=rng.random())
        assert [play.rounds for play in other] == [play.rounds for play in reference]


# ------------------------------------------------------------------ schedules


def drifting():
    """A learner whose distribution names its play, and what it was shown: (losses seen, probs, pick, losses)."""
    shown, count = [], [0]

    def play(params, state, context, rng, probs):
        count[0] += 1
        probs[:] = np.random.default_rng(count[0]).dirichlet(np.ones(len(probs)))

    def observe(params, state, context, probs, pick, losses):
        shown.append((probs.copy(), pick, losses.copy()))

    return hl.Learner("drifting", lambda params, n: np.zeros((1, n)), play, observe), shown


def account(play, dues, rows, lag, every_token, turn_of):
    """Return [(round after which a row is revealed, row, round that holds it)], row by row from what was due."""
    starts = [played.row for played in play.rounds]
    ends = [*starts[1:], rows]
    upto = [0] * len(play.probs)
    revealed = []
    for r, due in enumerate(dues):
        assert sorted(due) == turn_of(r + 1)
        for i in due:
            upto[i] = ends[r]
        for row in range(len({row for _, row, _ in revealed}), rows):
            if all(row + lag <= known for known in upto):
                revealed.append((r, row, max(q for q, start in enumerate(starts) if start <= row)))
    return [entry for entry in revealed if every_token or entry[1] in starts]


@given(seeds, st.integers(1, 4), st.booleans(), st.booleans(), st.data())
def test_turns_reveal_late_in_order_and_once(world, every, length, token, data):
    trace = random_trace(np.random.default_rng(world), lengths=[30], k=3)
    n = len(trace.drafters)
    some = data.draw(st.none() | st.integers(1, n))
    policy, shown = drifting()
    objective = "length" if length else "acceptance"
    setting = Setting(3, objective, granularity=GRANULARITY[not token], schedule=Schedule(every, some))
    (play,), dues = drive(trace, Policy(policy, trace.drafters, setting))

    def turn_of(number):
        if number % every:
            return []
        first = (number // every - 1) * (some or n)
        return sorted((first + j) % n for j in range(some or n))

    expected = account(play, dues, 30, 3 if length else 1, token, turn_of)
    losses = hl.feedback.losses(trace, k=3, objective=objective)
    assert len(shown) == len(expected)
    for (probs, pick, seen), (_, row, r) in zip(shown, expected, strict=True):
        # play number r + 1 of a fresh text
        np.testing.assert_array_equal(probs, np.random.default_rng(r + 1).dirichlet(np.ones(n)))
        assert pick == play.rounds[r].pick
        np.testing.assert_array_equal(seen, losses[row])
    for r, played in enumerate(play.rounds):
        assert played.losses_seen == sum(after < r for after, _, _ in expected)
    counts = np.bincount([i for due in dues for i in due], minlength=n)
    assert counts.max() - counts.min() <= 1  # everyone equally often


@given(seeds, st.integers(1, 3), st.sampled_from(["random", "likely"]), st.sampled_from(["length", "acceptance"]))
def test_skipped_rows_are_replaced_by_means(world, every, choose, objective):
    rng = np.random.default_rng(world)
    trace = random_trace(rng, lengths=[25, 9], k=3, drafters=4)
    estimator = "B" if objective == "length" else "alpha"  # with C the loss of a draft that is left may need no more
    some = int(rng.integers(1, 5))
    policy, shown = drifting()
    setting = Setting(3, objective, estimator, schedule=Schedule(every, some, choose))
    plays, dues = drive(trace, Policy(policy, trace.drafters, setting))
    losses = hl.feedback.losses(trace, k=3, objective=objective, estimator=estimator)
    lag, unknown = (3, 0.5 * 0.75) if objective == "length" else (1, 0.5)
    expected, rounds = [], 0
    for play, first, last in zip(plays, trace.offsets[:-1], trace.offsets[1:], strict=True):
        mine = [[] for _ in range(4)]
        waiting = first
        ends = [*(first + played.row for played in play.rounds[1:]), last]
        for r, end in enumerate(ends):
            due = dues[rounds + r]
            assert len(due) == (0 if (r + 1) % every else some)
            while due and waiting + lag <= end:
                row = [losses[waiting, i] if i in due else np.mean(mine[i] or [unknown]) for i in range(4)]
                for i in due:
                    mine[i].append(losses[waiting, i])
                expected.append(row)
                waiting += 1
        rounds += len(ends)
    np.testing.assert_allclose([seen for _, _, seen in shown], np.reshape(expected, (-1, 4)), atol=1e-12)


def test_flat_drafters_may_draft_further_than_the_deep_block_is_deep():
    trace = random_trace(np.random.default_rng(1), lengths=[20], k=2, drafters=3, deep=False)
    policy, shown = drifting()
    drive(trace, Policy(policy, trace.drafters, Setting(5, schedule=Schedule.parse("random=3"))))
    np.testing.assert_array_equal([seen for _, _, seen in shown], hl.feedback.losses(trace, k=5)[:16])


def rounds_without_losses(policy, count, n):
    """Return who was due after each of `count` rounds that accept nothing, and what was played in them."""
    play = policy.begin()
    for row in range(count):
        play.pick(row)
        play.committed(0, 1, False)
        yield play.due(), play.probs


def test_random_turns_are_uniform():
    # 2000 turns, each drafter 800 +- 22 times: five of these deviations, false alarm below 1e-5, at a fixed seed
    policy = Policy(drifting()[0], "abcde", Setting(2, schedule=Schedule.parse("random=2")))
    due = [due for due, _ in rounds_without_losses(policy, 2000, 5)]
    assert all(len(set(each)) == 2 for each in due)
    counts = np.bincount(np.concatenate(due), minlength=5)
    assert (abs(counts - 800) < 110).all()
    assert len({tuple(each) for each in due}) == 10


def test_random_turns_leave_the_picks_alone():
    picks = []
    for schedule in ("every", "random=2"):
        play = Policy(drifting()[0], "abc", Setting(2, schedule=Schedule.parse(schedule))).begin()
        for row in range(50):
            play.pick(row)
            play.committed(0, 1, False)
            play.due()
        picks.append([played.pick for played in play.rounds])
    assert picks[0] == picks[1]


def test_likely_turns_take_the_likeliest_and_equals_in_turn():
    policy = Policy(drifting()[0], "abcde", Setting(2, schedule=Schedule.parse("likely=2")))
    for due, probs in rounds_without_losses(policy, 50, 5):
        assert due == sorted(np.argsort(-probs)[:2])
    equal = Policy("hedge", "abcde", Setting(2, schedule=Schedule.parse("likely=2")))
    counts = np.bincount(np.concatenate([due for due, _ in rounds_without_losses(equal, 50, 5)]))
    assert counts.tolist() == [20] * 5


def test_units_are_evaluated_together():
    policy = Policy("hedge", "abcd", Setting(2, schedule=Schedule.parse("turns=1")), units=[[0, 2], [1], [3]])
    due = [due for due, _ in rounds_without_losses(policy, 5, 4)]
    assert due == [[0, 2], [1], [3], [0, 2], [1]]


@pytest.mark.parametrize(
    ("learner", "schedule", "feedback"),
    [("exp3", "every", None), ("fixed", "every", None), ("hedge", "never", None), ("uniform", "every", "bandit")],
)
def test_nobody_is_due(learner, schedule, feedback):
    setting = Setting(2, schedule=Schedule.parse(schedule), feedback=feedback)
    assert not any(due for due, _ in rounds_without_losses(Policy(learner, "abc", setting), 9, 3))


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("every", Schedule()),
        ("every=4", Schedule(4)),
        ("turns=3", Schedule(1, 3)),
        ("every=2,random=3", Schedule(2, 3, "random")),
        ("likely=3", Schedule(1, 3, "likely")),
        ("never", Schedule(drafters=0)),
    ],
)
def test_schedules_as_text(text, schedule):
    assert Schedule.parse(text) == schedule
    assert str(schedule) == text
    assert Schedule.parse(text.replace(",", " , ")) == schedule


@pytest.mark.parametrize(
    "text",
    ["", "often", "every=", "every=0", "every=1.5", "turns", "turns=0", "turns=-1", "random=²", "never,every",
     "every,every", "turns=1,random=2", "likely=3,", "every=99999999999"],
)  # fmt: skip
def test_bad_schedules(text):
    with pytest.raises(ValueError, match="schedule"):
        Schedule.parse(text)


# ------------------------------------------------------------------ mixtures


@given(seeds, st.sampled_from(["normalhedge", "exp3"]))
def test_the_ends_of_a_mixture_are_the_pure_objectives(world, name):
    trace = random_trace(np.random.default_rng(world))
    for weight, objective in ((0, "length"), (1, "acceptance")):
        plays, _ = drive(trace, Policy(name, trace.drafters, Setting(3, "mixture", weight=weight)))
        assert_equal_runs(plays, hl.replay(trace, name, k=3, objective=objective))


@given(seeds, st.floats(0, 1), st.sampled_from([None, "B", "alpha"]))
def test_a_mixture_weighs_both_losses(world, weight, estimator):
    trace = random_trace(np.random.default_rng(world), lengths=[20])
    policy, shown = drifting()
    drive(trace, Policy(policy, trace.drafters, Setting(3, "mixture", estimator, weight)))
    first = hl.feedback.losses(trace, k=3, objective="acceptance", estimator="alpha" if estimator == "alpha" else None)
    long = hl.feedback.losses(trace, k=3, objective="length", estimator="B" if estimator == "B" else None)
    expected = weight * first + (1 - weight) * (long if weight < 1 else 0)
    seen = np.array([losses for _, _, losses in shown]).reshape(-1, len(trace.drafters))
    np.testing.assert_allclose(seen, expected[: len(seen)], atol=1e-12)
    assert len(seen) == (20 if weight == 1 else 18)


def test_a_bandit_is_paid_the_mixture():
    policy, shown = drifting()
    policy = dataclasses.replace(policy, feedback="bandit", reward="block")
    play = Policy(policy, "ab", Setting(4, "mixture", weight=0.25)).begin()
    pick = play.pick(0)
    play.committed(2, 3, False, block=0.5, first=0.75)
    play.pick(3)
    play.committed(1, 1, True, first=0.5)  # cut: no reward of the drafter's
    assert len(shown) == 1
    assert shown[0][2][pick] == pytest.approx(1 - (0.25 * 0.75 + 0.75 * 0.5))
    assert np.isnan(shown[0][2][1 - pick])


# ------------------------------------------------------------------ drafters that can no longer draft


@pytest.mark.parametrize("name", thorough(hl.learners(), SOME))
@settings(max_examples=few(4, 2))
@given(world=seeds)
def test_the_dead_are_never_picked(name, world):
    rng = np.random.default_rng(world)
    trace = random_trace(rng, drafters=4, lengths=[25])
    death = rng.integers(0, 25, 4)
    death[rng.integers(4)] = 25

    def alive(s, row):
        return row < death

    (play,), dues = drive(trace, Policy(name, trace.drafters, Setting(3)), alive=alive)
    for played, due in zip(play.rounds, dues, strict=True):
        assert played.row < death[played.pick]
        assert all(played.row < death[i] for i in due)
    assert play.probs.sum() == pytest.approx(1)
    if hl.learner(name).feedback != "bandit":
        assert (play.probs[~play.alive] == 0).all()
    if name in ("normalhedge", "hedge"):
        assert play.waiting == 23  # nobody waits for the dead


def test_probabilities_of_the_dead_go_to_the_others():
    policy, shown = drifting()
    play = Policy(policy, "abc", Setting(2, "acceptance")).begin()
    for row in range(6):
        play.pick(row, [True, False, True])
        played = np.random.default_rng(row + 1).dirichlet(np.ones(3))
        played[1] = 0
        np.testing.assert_allclose(play.probs, played / played.sum(), rtol=1e-12)
        play.committed(0, 1, False)
        ones = np.full((row + 1, 3), 0.25, np.float32)
        ones[:, 1] = np.nan
        none = np.empty((row + 1, 2, 0), np.float32)
        flat, deep = np.arange(3), np.arange(0)
        columns = types.SimpleNamespace(
            alpha_flat=ones, gamma_flat=ones, alpha_deep=none, gamma_deep=none, flat_columns=flat, deep_columns=deep
        )
        play.known(np.array([row + 1, 0, row + 1]), columns)
        np.testing.assert_array_equal(shown[-1][0], play.probs)
        assert shown[-1][2].tolist() == [0.75, 1.0, 0.75]
    assert len(shown) == 6


@pytest.mark.parametrize("filler", [np.nan, 0.5])
def test_a_drafter_that_dies_keeps_what_it_was_scored(filler):
    trace = random_trace(np.random.default_rng(0), drafters=3, lengths=[12], deep=False)
    policy, shown = drifting()

    def alive(s, row):
        return np.array([True, row < 5, True])

    (play,), dues = drive(trace, Policy(policy, trace.drafters, Setting(2)), filler, alive)
    ends = [*(played.row for played in play.rounds[1:]), 12]
    scored = max(end for end, due in zip(ends, dues, strict=True) if 1 in due)
    losses = hl.feedback.losses(trace, k=2)[:11]
    losses[scored - 1 :, 1] = 1.0
    np.testing.assert_array_equal([seen for _, _, seen in shown], losses)


def insisting(feedback):
    """A learner that plays drafter 0 until it has seen a hundred losses of it, then drafter 1."""

    def play(params, state, context, rng, probs):
        probs[:] = 0.0
        probs[int(state[0, 0] >= 100)] = 1.0

    def observe(params, state, context, probs, pick, losses):
        assert probs[pick] == 1.0
        assert losses[pick] == 1.0
        assert np.isnan(np.delete(losses, pick)).all()
        state[0, pick] += 1

    return hl.Learner("insisting", lambda params, n: np.zeros((1, n)), play, observe, feedback=feedback)


def test_a_bandit_that_picks_the_dead_is_told_and_plays_again():
    # in the first round it is told 64 times and overruled, in the second 36 times more, after which it plays the other
    play = Policy(insisting("bandit"), "abc", Setting(2)).begin()
    for row, seen in enumerate((64, 100, 101)):
        pick = play.pick(row, [False, True, True])
        assert play.losses_seen == seen
        np.testing.assert_array_equal(play.probs, [0, 0.5, 0.5] if row == 0 else [0, 1, 0])
        assert pick != 0
        play.committed(0, 1, False)
        assert play.losses_seen == seen + (row > 0)  # of the round in which it was overruled it is told nothing


def test_a_bandit_of_late_losses_is_not_told_what_it_did_not_play():
    policy = Policy(insisting("bandit"), "abc", Setting(2, "acceptance", feedback="delayed"))
    play = policy.begin()
    for row, seen in enumerate((64, 100)):
        play.pick(row, [False, True, True])
        play.committed(0, 1, False)
        zero = np.zeros((row + 1, 3), np.float32)
        play.known(np.full(3, row + 1), columns_of(row + 1, k=2, alpha_flat=zero, gamma_flat=zero))
        assert play.losses_seen == seen + row
    assert play.waiting == 2


def test_who_learns_from_others_is_overruled_at_once():
    # 60 uniform choices of two: none of them below 10 times but with probability 1e-7
    for learner in (insisting("full"), hl.learner("fixed", drafter="a")):
        play = Policy(learner, "abc", Setting(2)).begin()
        for row in range(60):
            play.pick(row, np.array([False, True, True]))
            np.testing.assert_array_equal(play.probs, [0, 0.5, 0.5])
            play.committed(0, 1, False)
        assert np.bincount([played.pick for played in play.rounds])[1:].min() >= 10


# ------------------------------------------------------------------ several texts


def test_texts_share_a_state_only_if_it_carries_over():
    for carry_over, seen in ((False, [2, 3]), (True, [5, 5])):
        policy = Policy("exp3", "abc", Setting(3, carry_over=carry_over))
        plays = [policy.begin(), policy.begin()]
        for which in (0, 1, 1, 0, 1):
            play = plays[which]
            play.pick(play.row)
            play.committed(1, 2, False)
        assert [play.losses_seen for play in plays] == seen
        assert (policy.begin().losses_seen == 0) is not carry_over


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"k": 0}, "k must be a whole number"),
        ({"objective": "speed"}, "objective must be one of acceptance, length, mixture, got 'speed'"),
        ({"estimator": "gamma"}, "estimator of objective 'length' must be one of C, B, A"),
        ({"objective": "mixture", "weight": 1.5}, r"weight of a mixture must lie in \[0, 1\], got 1.5"),
        ({"objective": "mixture", "weight": float("nan")}, "weight of a mixture"),
        ({"objective": "mixture", "estimator": "D"}, "estimator of a mixture must be one of gamma, alpha, C, B, A"),
        ({"feedback": "censored"}, "feedback must be one of delayed, bandit or None, got 'censored'"),
        ({"granularity": "word"}, "granularity must be one of token, round"),
        ({"carry_over": 1}, "carry_over must be True or False"),
        ({"seed": -1}, "seed must be"),
        ({"schedule": "every"}, "schedule must be a Schedule"),
        ({"learner": "nobody"}, "no learner 'nobody'"),
        ({"learner": "fixed(drafter=d)"}, "no learner"),
        ({"learner": hl.learner("fixed", drafter="d")}, "no drafter 'd'; there are a, b, c"),
        ({"feedback": "bandit"}, "learner 'hedge' needs every drafter's loss"),
        ({"schedule": Schedule.parse("turns=4")}, "schedule turns=4: 4 drafters a turn, there are 3"),
        ({"drafters": ""}, "a policy needs a drafter"),
        ({"units": [[0, 1]]}, "units must hold each of the 3 drafters once"),
        ({"units": [[0, 1], [2], []]}, "units must hold each"),
    ],
)
def test_bad_settings(options, words):
    options = {"k": 3, "learner": "hedge", "drafters": "abc", "units": None, **options}
    learner, drafters, units = (options.pop(name) for name in ("learner", "drafters", "units"))
    with pytest.raises(ValueError, match=words):
        Policy(learner, drafters, Setting(**options), units)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0,), "every must be a whole number of at least 1, got 0"),
        ((True,), "every must be"),
        ((1, -1), "drafters must be a whole number of at least 0, got -1"),
        ((1, None, "random"), "'random' must say how many"),
        ((1, 2, "best"), "choose must be one of turns, random, likely, got 'best'"),
    ],
)
def test_bad_schedule_values(arguments, words):
    with pytest.raises(ValueError, match=words):
        Schedule(*arguments)


def columns_of(rows, n=3, k=3, **changes):
    half, none = np.full((rows, n), 0.5, np.float32), np.full((rows, k, 0), 0.5, np.float32)
    values = {"alpha_flat": half, "gamma_flat": half.copy(), "alpha_deep": none, "gamma_deep": none}
    layout = {"flat_columns": np.arange(n), "deep_columns": np.arange(0)}
    return types.SimpleNamespace(**{**values, **layout, **changes})


def broken(value):
    array = np.full((4, 3), 0.5, np.float32)
    array[1, 2] = value
    return array


@pytest.mark.parametrize(
    ("upto", "columns", "words"),
    [
        ([4, 4, 4], columns_of(4, gamma_flat=broken(np.nan)), "row 1, drafter 'c': the loss is nan"),
        ([4, 4, 4], columns_of(4, gamma_flat=broken(1.5)), "row 1, drafter 'c': the loss is -0.5"),
        ([4, 4, 4], columns_of(4, gamma_flat=broken(-np.inf)), "row 1, drafter 'c': the loss is inf"),
        ([4, 5, 4], columns_of(5), "drafter 'b': rows before 5 cannot be known: 0 were, 4 are committed"),
        ([4, -1, 4], columns_of(4), "drafter 'b': rows before -1 cannot"),
        ([4, 4], columns_of(4), "upto must be an array of 3 whole numbers"),
        ([4.0, 4.0, 4.0], columns_of(4), "upto must be an array of 3 whole numbers"),
        ([4, 4, 4], columns_of(3), "alpha_flat must be float32, C-contiguous, 4 rows or more of 3 columns"),
        ([4, 4, 4], columns_of(4, n=2), "flat and deep columns must name 3 drafters once"),
        ([4, 4, 4], columns_of(4, gamma_flat=np.ones((4, 2), np.float32)), "gamma_flat must be"),
        ([4, 4, 4], columns_of(4, gamma_flat=np.ones((4, 3))), "gamma_flat must be float32"),
        ([4, 4, 4], columns_of(4, alpha_flat=np.ones((3, 4), np.float32).T), "alpha_flat must be float32, C-cont"),
        ([4, 4, 4], columns_of(4, alpha_deep=np.ones((4, 0), np.float32)), "alpha_deep must be"),
        (
            [4, 4, 4],
            columns_of(
                4,
                n=2,
                deep_columns=np.array([2]),
                alpha_deep=np.ones((4, 2, 1), np.float32),
                gamma_deep=np.ones((4, 2, 1), np.float32),
            ),
            "by depth of 3 or more",
        ),
    ],
)
def test_bad_losses(upto, columns, words):
    play = Policy("hedge", "abc", Setting(3, "acceptance")).begin()
    play.pick(0)
    play.committed(3, 4, False)
    with pytest.raises(ValueError, match=words):
        play.known(np.array(upto), columns)


def test_rows_may_not_be_unlearnt():
    play = Policy("hedge", "abc", Setting(3)).begin()
    play.pick(0)
    play.committed(3, 4, False)
    play.known(np.array([4, 2, 4]), columns_of(4))
    with pytest.raises(ValueError, match="drafter 'b': rows before 1 cannot be known: 2 were, 4 are committed"):
        play.known(np.array([4, 1, 4]), columns_of(4))


def test_nan_of_a_row_that_was_not_skipped_is_refused_by_every_schedule():
    # alpha is there, gamma is not: estimator C needs it, and no mean may take its place
    for schedule in ("every", "random=3"):
        play = Policy("hedge", "abc", Setting(2, schedule=Schedule.parse(schedule))).begin()
        play.pick(0)
        play.committed(2, 3, False)
        with pytest.raises(ValueError, match="row 0, drafter 'c': the loss is nan"):
            play.known(np.array([3, 3, 3]), columns_of(3, gamma_flat=broken(np.nan)[:3]))


def test_rounds_in_order():
    play = Policy("ucb1", "abc", Setting(3)).begin()
    assert play.due() == []
    with pytest.raises(ValueError, match="pick first"):
        play.committed(0, 1, False)
    with pytest.raises(ValueError, match="no round can begin at row 1: the next one begins at 0"):
        play.pick(1)
    play.pick(0)
    with pytest.raises(ValueError, match="row 0: the round before it has not been committed"):
        play.pick(0)
    with pytest.raises(ValueError, match="the round at row 0 has not been committed"):
        play.known(np.zeros(3, np.int64), columns_of(1))
    for accepted, taken, cut in ((4, 5, False), (-1, 0, False), (1, 1, False), (1, 2, True), (0, 0, True)):
        with pytest.raises(ValueError, match=rf"{accepted} accepted of at most 3, {taken} committed, cut {cut}"):
            play.committed(accepted, taken, cut)
    play.committed(2, 2, True)
    with pytest.raises(ValueError, match="no round can begin at row 2: the text has ended"):
        play.pick(2)


@pytest.mark.parametrize(
    ("alive", "words"),
    [
        ([True, True], "alive must be 3 truth values"),
        ([1, 1, 0], "alive must be 3 truth values"),
        ([False, False, False], "row 0: no drafter is alive"),
    ],
)
def test_bad_alive(alive, words):
    with pytest.raises(ValueError, match=words):
        Policy("hedge", "abc", Setting(3)).begin().pick(0, alive)


def test_the_dead_stay_dead():
    play = Policy("hedge", "abc", Setting(3)).begin()
    play.pick(0, [True, False, True])
    play.committed(0, 1, False)
    with pytest.raises(ValueError, match="row 1: drafter 'b' is alive again"):
        play.pick(1, [True, True, True])


@pytest.mark.parametrize(
    ("learner", "objective", "given_", "words"),
    [
        ("metasd-onpath", "length", {}, r"needs block in \[0, 1\], got None"),
        ("metasd-onpath", "length", {"block": float("nan")}, r"needs block in \[0, 1\], got nan"),
        ("exp3", "acceptance", {}, r"needs first in \[0, 1\], got None"),
        ("exp3", "mixture", {"first": 1.5}, r"needs first in \[0, 1\], got 1.5"),
    ],
)
def test_rewards_that_are_missing(learner, objective, given_, words):
    play = Policy(learner, "abc", Setting(3, objective)).begin()
    play.pick(0)
    with pytest.raises(ValueError, match=words):
        play.committed(1, 2, False, **given_)


def test_a_play_must_write_a_distribution():
    def play(params, state, context, rng, probs):
        probs[:2] = 0.5  # the third is left as it was

    policy = Policy(hl.Learner("odd", lambda params, n: np.zeros((1, n)), play, print), "abc", Setting(3))
    with pytest.raises(ValueError, match="learner 'odd': in the round at row 0 play did not write a distribution"):
        policy.begin().pick(0)
    with pytest.raises(ValueError, match=r"context must be a vector, got shape \(1, 2\)"):
        policy.begin([[0.5, 0.5]])


@needs_jit
def test_no_kernel_is_compiled_for_arrays_of_a_type_of_its_own():
    # what an engine has compiled comes from the cache; another type would cost seconds in a first process
    trace = random_trace(np.random.default_rng(0))
    drive(trace, Policy("hedge", trace.drafters, Setting(3)))
    assert row_losses.signatures
    for signature in row_losses.signatures:
        assert not any(block.mutable for block in (*signature[:4], *signature[8:10]))
    policy = hl.learner("hedge")
    assert len(policy.play.signatures) == len(policy.observe.signatures) == 1
