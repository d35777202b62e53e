"""Every learner below its bound, on every world where the bound's conditions hold.

`bounds.BOUNDS[...].holds` says what a bound is about, and so how it is tested:

pathwise            every game, adversaries included
high probability    the picks' own regret, every game; with the delta used all games pass but for 1 in 1000 suites
pseudo-regret, expected (FTPL)   the mean over the policy's seeds, losses fixed beforehand
stochastic          the mean over seeds of sum_i gap_i n_i, on worlds with gaps
stopping time       rounds of decoding, the mean over replicates

Means get six standard errors of room: of 12 games, a learner whose mean lies exactly on its bound fails 1 time in
20,000 (Student's t; of the 3 games where nothing is compiled 1 time in 70). Seeds are fixed.
"""

import math

import numpy as np
import pytest

import hedgelab as hl
from hedgelab import bounds, delays, worlds
from hedgelab.contract import Learner
from tests.sizes import few, large

T = few(1500, 120)
SEEDS = few(12, 3)


def oblivious(t, n):
    """Worlds whose losses do not answer the plays."""
    return {
        "fair coins": worlds.fair_coins(t, n),
        "gap": worlds.gap(t, n, 0.3),
        "small gap": worlds.gap(t, n, math.sqrt(math.log(n) / t)),
        "drifting": worlds.drifting(t, n, 0.01),
        "switching": worlds.switching(t, n, 5, 0.4),
        "alternating": worlds.alternating(t, n),
    }


def adaptive(t, n):
    """Adversaries that see the play before they choose the losses."""
    return {
        "greedy": worlds.greedy(t, n),
        "block": worlds.block(t, n, 7),
        "breakaway": worlds.breakaway(t, n),
    }


def of_kind(*kinds):
    return [name for name, entry in bounds.FOR_LEARNER.items() if bounds.BOUNDS[entry.theorem].holds in kinds]


NO_NUMBER = ("asymptotic", "order only")  # statuses of bounds that no finite game can exceed


def rates_of(name, t, n):
    """The learning rates of a learner whose bound asks for them."""
    return 2.0 * np.sqrt(np.log(n) / np.arange(1, t + 1)) if name in ("hedge", "ftpl") else None


# metasd-onpath is metasd here: another reward makes it another learner in decoding alone
STOCHASTIC = [
    name
    for name in of_kind("stochastic")
    if name != "metasd-onpath" and bounds.BOUNDS[bounds.FOR_LEARNER[name].theorem].status not in NO_NUMBER
]
PATHWISE = [name for name in of_kind("pathwise") if name not in ("ftpl", "fixed-share")]


@pytest.mark.parametrize("n", [2, 16])
@pytest.mark.parametrize("name", PATHWISE)
def test_pathwise_bounds(name, n):
    ratios = {}
    for label, world in (oblivious(T, n) | adaptive(T, n)).items():
        game = hl.play(world, name, record=True, seed=3)
        facts = bounds.Facts.of_play(game.losses, game.probs, rates=rates_of(name, T, n))
        bound = bounds.FOR_LEARNER[name](facts)
        ratios[label] = game.regret / bound
        assert game.regret <= bound + 1e-9, (label, game.regret, bound)
    assert max(ratios.values()) > (0.0 if name == "normalhedge" else 0.05)  # none of these bounds is empty


@pytest.mark.parametrize("n", [2, 16])
def test_fixed_share_tracks_within_its_bound(n):
    for label, world in (oblivious(T, n) | adaptive(T, n)).items():
        game = hl.play(world, "fixed-share", record=True, seed=3)
        tracked = hl.regret.tracking(game.losses, game.round_loss, 8)
        for switches, regret in enumerate(tracked):
            facts = bounds.Facts.of_play(game.losses, game.probs, switches=switches)
            assert regret <= bounds.FOR_LEARNER["fixed-share"](facts), (label, switches)


def mean_and_error(values):
    values = np.asarray(values)
    return values.mean(), values.std(ddof=1) / math.sqrt(len(values))


@pytest.mark.parametrize("n", [2, 16])
@pytest.mark.parametrize("name", ["ftpl", *of_kind("pseudo-regret")])
def test_bounds_in_expectation(name, n):
    bound = bounds.FOR_LEARNER[name](bounds.Facts(T, n, rates=rates_of(name, T, n)))
    for label, world in oblivious(T, n).items():
        losses = world.array(seed=1)  # fixed; the policy's seeds vary
        mean, error = mean_and_error([hl.play(losses, name, seed=seed).regret for seed in range(SEEDS)])
        assert mean <= bound + 6 * error, label


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("name", of_kind("high probability"))
def test_bounds_with_high_probability(name, n):
    # 12 games a world, at most 6 worlds, three learners and two n: with delta = 1e-6 fewer than 1 suite in 1000 fails
    delta = 1e-6
    options = {"exp3-p": {"horizon": T}, "successive-elimination": {"delta": delta}}.get(name, {})
    for label, world in oblivious(T, n).items():
        stochastic = name == "successive-elimination"
        if stochastic and label not in ("gap", "small gap"):
            continue
        for seed in range(SEEDS):
            game = hl.play(world, hl.learner(name, **options), seed=seed)
            if stochastic:
                means = world.mean_losses(seed, 0, 1)[0]
                gaps = means - means.min()
                facts = bounds.Facts(T, n, gaps=gaps, delta=delta)
                regret = float(gaps[game.picks].sum())
            else:
                facts = bounds.Facts(T, n, horizon=options.get("horizon"), delta=delta)
                regret = game.pick_loss - game.best_loss
            assert regret <= bounds.FOR_LEARNER[name](facts), (label, seed)


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("name", STOCHASTIC)
def test_stochastic_bounds(name, n):
    entry = bounds.FOR_LEARNER[name]
    t = few(4000, 150)
    options = {
        "moss": {"horizon": t},
        "ucb-tuned": {"beta": 1.0},
        "explore-then-commit": {"horizon": t},
    }.get(name, {})
    for gap in (0.05, 0.2, 0.4):
        means = np.full(n, 0.5)
        means[n - 1] -= gap
        gaps = means - means.min()
        facts = bounds.Facts(
            t,
            n,
            gaps=gaps,
            means=1 - means,
            variances=means * (1 - means),
            beta=1.0,
            horizon=t if name in ("moss", "explore-then-commit") else None,
        )
        regrets = [
            float(gaps[hl.play(worlds.iid(t, means), hl.learner(name, **options), seed=seed).picks].sum())
            for seed in range(SEEDS)
        ]
        mean, error = mean_and_error(regrets)
        assert 0 < mean <= entry(facts) + 6 * error, gap


@pytest.mark.parametrize("name", of_kind("stopping time"))
def test_bounds_on_rounds_of_decoding(name):
    # one long text, drafters whose acceptance is the same at every row: the selectors' stationary world
    k, n, rows = 4, 4, few(6000, 400)
    accept = np.linspace(0.3, 0.8, n)
    alpha = np.broadcast_to(accept, (rows, n))
    trace = hl.Trace.from_arrays(
        token=np.zeros(rows, int),
        alpha=alpha,
        gamma=alpha,
        offsets=[0, rows],
        domains=["x"],
        drafters=[f"d{i}" for i in range(n)],
        k=k,
    )
    best = hl.oracles.expected_fixed_rounds(trace).overall.sum()
    excess = [hl.replay(trace, name, replicate=i).rounds - best for i in range(SEEDS)]
    facts = bounds.Facts(rows, n, K=k, lengths=sum(np.minimum(1, accept**m) for m in range(k + 1)))
    mean, error = mean_and_error(excess)
    assert 0 < mean <= bounds.FOR_LEARNER[name](facts) + 6 * error


# ------------------------------------------------------------------ late losses


@pytest.mark.parametrize("n", [2, 16])
@pytest.mark.parametrize("kind", ["constant", "given"])
def test_late_losses(n, kind):
    rng = np.random.default_rng(0)
    delay = 9 if kind == "constant" else rng.integers(0, 20, T)
    late = delays.missing(delay, T)
    own_rate = delays.stale_hedge(T, n, delay=delay)
    for label, world in (oblivious(T, n) | adaptive(T, n)).items():
        own = hl.play(world, own_rate, delay=delay)
        rate = own_rate.values["learning_rate"]
        assert own.regret <= bounds.hedge_path(np.full(T, rate), late, n)[-1], label
        assert own.regret <= math.sqrt((T + 2 * late.sum()) * math.log(n) / 2), label
        seen = np.arange(T) - late
        anytime = hl.play(world, "hedge", delay=delay)
        if (np.diff(seen) >= 0).all():
            rates = 2.0 * np.sqrt(np.log(n) / (seen + 1))
            assert anytime.regret <= bounds.hedge_path(rates, late, n)[-1], label
        for name in ("hedge", "adahedge", "optimistic-hedge"):
            for mode in ("bold", "padded"):
                game = hl.play(world, name, delay=delay, delay_mode=mode)
                copies = game.settings["copies"]
                assert copies == (np.max(delay) + 1 if mode == "padded" else late.max() + 1)
                worst = {
                    "hedge": lambda t: bounds.hedge_anytime(t, n),
                    "adahedge": lambda t: bounds.adahedge(t, n),
                    "optimistic-hedge": lambda t: bounds.optimistic_anytime(t, n),
                }[name]
                assert game.regret <= bounds.bold(worst, T, copies - 1), (label, name, mode)


def drafters_of(rows, n, k, seed):
    """A trace with drafters that are good at different times, in one long sequence."""
    rng = np.random.default_rng(seed)
    place = np.arange(rows)[:, None] / rows
    accept = np.clip(0.55 + 0.4 * np.sin(7 * place + np.arange(n)) + 0.1 * rng.standard_normal((rows, n)), 0, 1)
    alpha = (rng.random((rows, n)) < accept).astype(float)
    return hl.Trace.from_arrays(
        token=np.zeros(rows, int),
        alpha=alpha,
        gamma=accept,
        offsets=[0, rows],
        domains=["x"],
        drafters=[f"d{i}" for i in range(n)],
        k=k,
    )


@pytest.mark.parametrize("objective", ["length", "acceptance"])
@pytest.mark.parametrize("mode", ["queue", "padded"])
@pytest.mark.parametrize("n", [2, 12])
def test_both_objectives_of_a_decode_loop(objective, mode, n):
    k, rows = 5, few(1200, 200)
    trace = drafters_of(rows, n, k, seed=n)
    plays = rows - k + 1 if objective == "length" else rows
    width = hl.feedback.loss_range(objective, k)
    most = delays.outstanding_in_decoding(k, objective=objective)
    if mode == "queue":
        policy: Learner = delays.stale_hedge(plays, n, delay=most, loss_range=width)
    else:
        rate = math.sqrt(8 * math.log(n) * (most + 1) / plays) / width
        policy = hl.learner("hedge", learning_rate=rate)
    run = hl.replay(trace, policy, objective=objective, delay_mode=mode, token_game=True)
    regret = hl.regret.token_game(run, [plays]).regret[0]
    kind = "stale" if mode == "queue" else "bold"
    if objective == "acceptance":
        bound = bounds.decode_acceptance(plays, n, k, mode=kind)
    else:
        bound = bounds.decode_length(plays, n, k, mode=kind)
        regret *= k + 1  # tokens
    share = 1.02 if mode == "padded" else 1.0  # copies play 1 round more or less than plays / copies
    assert 0 < regret <= share * bound


# ------------------------------------------------------------------ known values


@large
@pytest.mark.parametrize("name", ["hedge", "normalhedge", "adahedge", "squint", "uniform"])
@pytest.mark.parametrize("n", [2, 16])
def test_fair_coins_separate_nobody(name, n):
    # every learner's regret has the mean (sqrt T / 2) m_n. 400 games of 400 rounds, 4 standard errors of room and the
    # normal limit's own error (0.3% at most): a false alarm once in 16,000 a case
    rounds, games = 400, 400
    regrets = [hl.play(worlds.fair_coins(rounds, n), name, seed=seed, times=[rounds]).regret for seed in range(games)]
    mean, error = mean_and_error(regrets)
    exact = bounds.fair_coins(rounds, n)
    assert abs(mean - exact) <= 4 * error + 0.003 * exact
    assert error < 0.05 * exact  # so the test can see


@pytest.mark.parametrize("n", [2, 8])
@pytest.mark.parametrize("name", ["exp3", "tsallis-inf", "moss", "thompson-beta", "ucb1", "uniform"])
def test_bandit_lower_bound_on_its_own_instance(name, n):
    # one good drafter out of n, at the gap of the theorem, its place uniform: no learner's mean regret is below
    # sqrt(NT) / 20. Four standard errors of 40 games: were the mean on the bound, a false alarm 1 time in 7,000
    rounds = few(1000, 100)
    gap = min(0.25 * math.sqrt(n / rounds), 0.25)
    regrets = []
    for place in range(n):
        means = np.full(n, 0.5)
        means[place] -= gap
        for seed in range(few(40, 8) // n):
            picks = hl.play(worlds.iid(rounds, means), name, seed=seed, times=[rounds]).picks
            regrets.append(gap * float((picks != place).sum()))
    mean, error = mean_and_error(regrets)
    assert mean >= bounds.lower_bandit(rounds, n) - 4 * error
