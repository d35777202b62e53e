"""Bounds: their conditions, values and relations, and learners played by hand against them.

The learners here are a few lines of numpy each, so that a bound is not tested on the kernels whose docstrings quote it.
"""

import inspect
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hedgelab as hl
from hedgelab import bounds

# ---------------------------------------------------------------------------------------------- full information


def exponential(total, rate):
    weights = np.exp(-rate * (total - total.min()))
    return weights / weights.sum()


def greedy(t, weights, total):
    """Loss 1 on the likelier half."""
    loss = np.zeros(len(weights))
    loss[np.argsort(-weights, kind="stable")[: max(1, len(weights) // 2)]] = 1.0
    return loss


def block_greedy(size):
    state = {}

    def adversary(t, weights, total):
        if t % size == 0:
            state["loss"] = greedy(t, weights, total)
        return state["loss"]

    return adversary


def coins(seed):
    return lambda t, weights, total: np.random.default_rng((seed, t)).integers(0, 2, len(weights)).astype(float)


def drift(t, weights, total):
    """Losses that move slowly: optimism pays."""
    return 0.5 + 0.5 * np.sin(0.02 * t + np.arange(len(weights)))


def easy(t, weights, total):
    return np.arange(len(weights)) / len(weights)


ADVERSARIES = {
    "greedy": greedy,
    "blocks": block_greedy(7),
    "coins": coins(0),
    "drift": drift,
    "easy": easy,
}


class Played:
    """A game without delay: losses and weights, (T, N), and its regret."""

    def __init__(self, weigh, adversary, n, horizon):
        """weigh(t, losses so far (t, n), total (n,), weights so far (t, n)) -> weights (n,)"""
        self.losses, self.weights, total = np.zeros((horizon, n)), np.zeros((horizon, n)), np.zeros(n)
        for t in range(horizon):
            self.weights[t] = weigh(t, self.losses[:t], total, self.weights[:t])
            self.losses[t] = adversary(t, self.weights[t], total)
            total = total + self.losses[t]
        self.path = (self.weights * self.losses).sum(axis=1).cumsum() - self.losses.cumsum(axis=0).min(axis=1)
        self.regret = self.path[-1]


def stale_hedge(rates, delays, adversary, n, loss_range=1.0):
    """Play exponential weights on the losses that have arrived; return regrets after each play and the missing
    counts."""
    total, losses, own, regrets, missing = np.zeros(n), [], 0.0, [], []
    arrivals, known = {}, np.zeros(n)
    for t, rate in enumerate(rates):
        for s in arrivals.pop(t, []):
            known = known + losses[s]
        missing.append(sum(len(late) for late in arrivals.values()))
        weights = exponential(known, rate)
        loss = loss_range * adversary(t, weights, total)
        own += weights @ loss
        total = total + loss
        losses.append(loss)
        arrivals.setdefault(t + 1 + delays[t], []).append(t)
        regrets.append(own - total.min())
    return np.array(regrets), np.array(missing)


@pytest.mark.parametrize("delay", [0, 1, 4, 13])
@pytest.mark.parametrize("n", [2, 5])
@pytest.mark.parametrize("width", [1.0, 0.1])
def test_tuned_rate(n, delay, width):
    horizon = 400
    late = sum(min(t, delay) for t in range(horizon))
    rate = math.sqrt(8 * math.log(n) / (horizon + 2 * late)) / width
    bound = bounds.hedge(horizon, n, delay=delay, loss_range=width)
    assert bound == pytest.approx(width * math.sqrt((horizon + 2 * late) * math.log(n) / 2))
    worst = max(
        stale_hedge([rate] * horizon, [delay] * horizon, adversary, n, width)[0][-1]
        for adversary in (greedy, block_greedy(delay + 1))
    )
    assert worst <= bound
    assert worst > 0.2 * bound  # the adversaries are strong enough to refute a bound five times smaller


def test_rate_tuned_without_the_delay_breaks_the_bound():
    # N = 2, T = 2000, delay 13; the bound is 137, and the rate tuned to T alone pays 174
    horizon, delay = 2000, 13
    bound = bounds.hedge(horizon, 2, delay=delay)
    assert round(bound) == 137
    late = sum(min(t, delay) for t in range(horizon))
    wrong, right = (math.sqrt(8 * math.log(2) / tuned) for tuned in (horizon, horizon + 2 * late))
    regret = {
        (name, rate): stale_hedge([rate] * horizon, [delay] * horizon, adversary, 2)[0][-1]
        for rate in (wrong, right)
        for name, adversary in (("greedy", greedy), ("blocks", block_greedy(delay + 1)))
    }
    assert round(regret["greedy", wrong]) == 174
    assert regret["blocks", wrong] > bound
    assert regret["greedy", right] <= bound
    assert regret["blocks", right] <= bound
    assert regret["blocks", right] > 0.25 * bound


@given(
    n=st.integers(2, 5),
    seed=st.integers(0, 2**32 - 1),
    most=st.integers(0, 9),
    loss_range=st.sampled_from([1.0, 0.75, 0.1]),
    scale=st.sampled_from([0.3, 2.0, 5.0]),
)
def test_path_bound_holds_for_any_delays(n, seed, most, loss_range, scale):
    rng = np.random.default_rng(seed)
    horizon = 60
    delays = rng.integers(0, most + 1, horizon)
    rates = scale * np.sqrt(np.log(n) / np.arange(1, horizon + 1))
    kind = rng.integers(3)
    adversary = (greedy, block_greedy(most + 1), lambda t, w, total: rng.random(n))[kind]
    regrets, missing = stale_hedge(rates, delays, adversary, n, loss_range)
    assert (regrets <= bounds.hedge_path(rates, missing, n, loss_range=loss_range) + 1e-9).all()


def test_anytime():
    for n, horizon in ((2, 50), (7, 512), (64, 3000)):
        bound = bounds.hedge_anytime(horizon, n)
        assert bound <= math.sqrt(horizon * math.log(n)) + 1e-9  # (1/c + c/4) at c = 2
        assert bound > 0.9 * math.sqrt(horizon * math.log(n))
        assert bounds.hedge_anytime(horizon, n, delay=5) > bound
    assert bounds.hedge_anytime(10, 1) == bounds.hedge(10, 1) == 0.0


def doubling(t, losses, total, weights):
    start = 2 ** int(math.log2(t + 1)) - 1  # epochs begin at rounds 0, 1, 3, 7, ... and last 1, 2, 4, 8, ...
    return exponential(losses[start:].sum(axis=0), math.sqrt(8 * math.log(losses.shape[1]) / (start + 1)))


def adahedge(t, losses, total, weights):
    gap = 0.0  # Delta, summed anew: slow and plain
    for w, loss in zip(weights, losses, strict=True):
        live = w > 0
        rate = math.log(losses.shape[1]) / gap if gap else math.inf
        mix = loss[live].min() if rate == math.inf else -math.log((w[live] * np.exp(-rate * loss[live])).sum()) / rate
        gap += max(w @ loss - mix, 0.0)
    if gap == 0.0:
        leaders = (total == total.min()).astype(float)
        return leaders / leaders.sum()
    return exponential(total, math.log(losses.shape[1]) / gap)


def optimistic(t, losses, total, weights):
    guess = losses[-1] if t else 0.0
    return exponential(total + guess, 2 * math.sqrt(math.log(losses.shape[1]) / (t + 1)))


def optimistic_anytime(t, losses, total, weights):
    variation = (np.ptp(np.diff(losses, axis=0, prepend=0.0), axis=1) ** 2).sum() if t else 0.0
    return exponential(total + (losses[-1] if t else 0.0), 2 * math.sqrt(math.log(losses.shape[1]) / (4 + variation)))


def leader(t, losses, total, weights):
    leaders = (total == total.min()).astype(float)
    return leaders / leaders.sum()


def regrets(losses, weights):
    instant = (weights * losses).sum(axis=1)[:, None] - losses
    return instant.sum(axis=0), instant


ETA = 0.5 * np.exp(-np.linspace(0, 25, 2001))  # for Squint's integral over ln eta


def squint(t, losses, total, weights):
    regret, instant = regrets(losses, weights)
    square = (instant**2).sum(axis=0)
    exponent = regret[:, None] * ETA - square[:, None] * ETA**2
    w = (np.exp(exponent - exponent.max()) * ETA).sum(axis=1)  # int e^{eta R - eta^2 V} d eta
    return w / w.sum()


def ml_prod(t, losses, total, weights):
    n = losses.shape[1]
    _, instant = regrets(losses, weights)
    log_w, square = np.full(n, -math.log(n)), np.zeros(n)
    rate = np.minimum(0.5, np.sqrt(math.log(n) / (1 + square)))
    for r in instant:
        square = square + r**2
        following = np.minimum(0.5, np.sqrt(math.log(n) / (1 + square)))
        log_w, rate = following / rate * (log_w + np.log1p(rate * r)), following
    w = rate * np.exp(log_w - log_w.max())
    return w / w.sum()


def potential(R, C):
    return np.exp(np.maximum(R, 0) ** 2 / (3 * np.maximum(C, 1e-300)))


def adanormalhedge(t, losses, total, weights):
    regret, instant = regrets(losses, weights)
    size = np.abs(instant).sum(axis=0)
    w = (potential(regret + 1, size + 1) - potential(regret - 1, size + 1)) / 2
    return w / w.sum() if w.sum() > 0 else np.full(len(w), 1 / len(w))


def laplace(t, losses, total, weights):
    """The law of the perturbed leader of two under exponential noise, rate 1/sqrt(t + 1): a difference of two is
    Laplace."""
    lead = (total[1] - total[0]) / math.sqrt(t + 1)
    first = 1 - math.exp(-lead) / 2 if lead >= 0 else math.exp(lead) / 2
    return np.array([first, 1 - first])


HORIZON = 100


def anytime(t, losses, total, weights):
    return exponential(total, 2 * math.sqrt(math.log(len(total)) / (t + 1)))


def tuned(t, losses, total, weights):
    return exponential(total, math.sqrt(8 * math.log(len(total)) / HORIZON))


def of_facts(name, rates=None):
    """The bound of a registered learner, from the facts of the game alone."""
    return lambda game, n: bounds.FOR_LEARNER[name](
        bounds.Facts.of_play(game.losses, game.weights, rates=None if rates is None else rates(n))
    )


LEARNERS = {  # name: (weights, bound of a game with n drafters)
    "hedge, tuned": (tuned, lambda game, n: bounds.hedge(HORIZON, n)),
    "hedge": (anytime, of_facts("hedge")),
    "hedge, doubling": (doubling, lambda game, n: bounds.hedge_doubling(HORIZON, n)),
    "optimistic-hedge": (optimistic_anytime, of_facts("optimistic-hedge")),
    "optimistic-hedge, path": (
        optimistic,
        of_facts("optimistic-hedge", lambda n: 2 * np.sqrt(math.log(n) / np.arange(1, HORIZON + 1))),
    ),
    "adahedge": (adahedge, of_facts("adahedge")),
    "squint": (squint, of_facts("squint")),
    "ml-prod": (ml_prod, of_facts("ml-prod")),
    "adanormalhedge": (adanormalhedge, of_facts("adanormalhedge")),
    "ftl": (leader, of_facts("ftl")),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_regret_is_below_the_bound(name):
    weigh, bound = LEARNERS[name]
    shares = {}
    for n in (2, 6):
        for kind, adversary in ADVERSARIES.items():
            game = Played(weigh, adversary, n, HORIZON)
            shares[n, kind] = game.regret / bound(game, n)
    assert max(shares.values()) <= 1 + 1e-9, shares
    assert max(shares.values()) > 0.1, shares  # a bound ten times smaller would be refuted


def test_perturbed_leader():
    for adversary in ADVERSARIES.values():
        game = Played(laplace, adversary, 2, 300)
        path = bounds.ftpl_path(1 / np.sqrt(np.arange(1, 301)), 2)
        assert (game.path <= path).all()
    assert bounds.ftpl(300, 2) == pytest.approx(2 * math.sqrt(300 / 2))
    assert bounds.ftpl(300, 2, noise="gumbel") == bounds.hedge(300, 2)
    fixed = bounds.ftpl_path(np.full(300, math.sqrt((1 / 2 + 1 / 3 + 1 / 4) / 300)), 4)
    assert bounds.ftpl(300, 4) == pytest.approx(fixed[-1])


@pytest.mark.parametrize("fixed", [True, False])
def test_fixed_share_tracks(fixed):
    n, horizon, switches = 3, 200, 4
    share = switches / (horizon - 1)
    d = (switches + 1) * math.log(n) - switches * math.log(share) - (horizon - 1 - switches) * math.log1p(-share)
    rate = math.sqrt(8 * d / horizon)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        weights, own, losses = np.full(n, 1 / n), 0.0, []
        for t in range(horizon):
            loss = greedy(t, weights, None) if seed == 0 else (rng.random(n) < 0.5).astype(float)
            if seed > 1:
                loss[(t * (switches + 1) // horizon) % n] = 0.0  # one drafter a fifth of the time, then another
            own += weights @ loss
            losses.append(loss)
            weights = weights * np.exp(-(rate if fixed else 2 * math.sqrt(math.log(n * (t + 1)) / (t + 1))) * loss)
            shared = share if fixed else 1 / (t + 2)
            weights = (1 - shared) * weights / weights.sum() + shared / n
        least = np.zeros((switches + 1, n))  # of sequences with up to m changes that end at i
        for loss in losses:
            moved = np.vstack([np.full(n, np.inf), np.repeat(least[:-1].min(axis=1, keepdims=True), n, axis=1)])
            least = np.minimum(least, moved) + loss
        for m in range(switches + 1):
            facts = bounds.Facts(horizon, n, switches=m, **({"share": share, "learning_rate": rate} if fixed else {}))
            assert own - least[: m + 1].min() <= bounds.FOR_LEARNER["fixed-share"](facts)


def test_fixed_share_relations():
    n, horizon, switches = 3, 200, 4
    share = switches / (horizon - 1)
    d = (switches + 1) * math.log(n) - switches * math.log(share) - (horizon - 1 - switches) * math.log1p(-share)
    rate = math.sqrt(8 * d / horizon)
    assert bounds.fixed_share(horizon, n, switches) == pytest.approx(math.sqrt(horizon * d / 2))
    given_rate = bounds.fixed_share(horizon, n, switches, share=share, learning_rate=rate)
    assert given_rate == pytest.approx(bounds.fixed_share(horizon, n, switches))
    assert bounds.fixed_share(horizon, n, switches, share=2 * share) > given_rate
    assert bounds.fixed_share(horizon, n, 0) == pytest.approx(bounds.hedge(horizon, n))
    assert bounds.fixed_share(horizon, n, 1, share=0.0) == math.inf
    assert bounds.fixed_share(horizon, n, 0, share=1.0) == math.inf
    assert bounds.fixed_share(1, n, 0) == pytest.approx(bounds.hedge(1, n))


def test_adanormalhedge_lemma_on_a_grid():
    # Phi(R + r, C + |r|) <= Phi(R, C) + w(R, C) r + 3|r| / (2 (C + 1)), the step that the docstring does not prove
    C = np.array([0.0, 0.3, 1, 2, 5, 20, 100])[:, None, None]
    R = np.linspace(-1, 1, 81)[None, :, None] * np.minimum(C, 3 * np.sqrt(C + 1))
    r = np.linspace(-1, 1, 41)[None, None, :]
    w = (potential(R + 1, C + 1) - potential(R - 1, C + 1)) / 2
    assert (potential(R + r, C + np.abs(r)) <= potential(R, C) + w * r + 1.5 * np.abs(r) / (C + 1) + 1e-9).all()


def test_squint_is_within_the_closed_form_and_its_integral_is_right():
    for n in (2, 7, 1000):
        for horizon in (10, 512, 10**5):
            for V in (0.0, horizon / 10, horizon):
                c = math.log(n) + math.log(0.5 + math.log(horizon + 1))
                closed = math.sqrt(2 * V) * (1 + math.sqrt(2 * c)) + 5 * c + 4
                assert bounds.squint(horizon, n, squares=V) <= closed
    # the integral by a plain sum: the weights' potential at R = 20, V = 100
    from hedgelab.bounds.full_information import _squint_integral

    eta = (np.arange(400_000) + 0.5) / 800_000
    plain = (np.expm1(eta * 20 - eta**2 * 100) / eta).mean() / 2
    assert _squint_integral(20, 100) == pytest.approx(plain, rel=1e-8)


def test_normalhedge_reference_point():
    assert round(bounds.normalhedge(512, 7)) == 353
    best = bounds.normalhedge(512, 7)
    assert all(bounds.normalhedge(512, 7, b=b) >= best for b in np.linspace(0.01, 0.5, 50))
    assert bounds.normalhedge(10**7, 7) < bounds.normalhedge(10**7, 7, b=0.5) / 2
    assert bounds.normalhedge(512, 7, quantile=0.5) < best


@pytest.mark.parametrize("n", [2, 3, 8, 64])
def test_fair_coins(n):
    # the mean regret over the games has a standard error s; a false alarm at 5 s happens once in 10^6 a learner and n
    horizon, games = 400, 3000 if n < 10 else 500
    rng = np.random.default_rng(n)
    losses = rng.integers(0, 2, (horizon, games, n)).astype(float)
    rate = math.sqrt(8 * math.log(n) / horizon)
    total, hedge, uniform = np.zeros((games, n)), np.zeros(games), np.zeros(games)
    for loss in losses:
        w = np.exp(-rate * (total - total.min(axis=1, keepdims=True)))
        hedge += (w * loss).sum(axis=1) / w.sum(axis=1)
        uniform += loss.mean(axis=1)
        total += loss
    exact = bounds.fair_coins_exact(horizon, n)
    for own in (hedge, uniform):
        regret = own - total.min(axis=1)
        assert abs(regret.mean() - exact) < 5 * regret.std() / math.sqrt(games)
    assert bounds.fair_coins(horizon, n) == pytest.approx(exact, rel=0.01)  # the limit's error
    assert exact < bounds.fair_coins(horizon, n) < bounds.lower_full(horizon, n)
    error = 5 * regret.std() / math.sqrt(games)
    assert error < 0.1 * exact  # it would see a constant that is 10% off


def test_fair_coins_exact_by_enumeration():
    for horizon, n in ((1, 2), (3, 2), (2, 3), (4, 3)):
        binomial = np.array([math.comb(horizon, k) for k in range(horizon + 1)]) / 2**horizon
        grid = np.indices((horizon + 1,) * n)
        law = np.prod(binomial[grid], axis=0)
        assert bounds.fair_coins_exact(horizon, n) == pytest.approx(horizon / 2 - (law * grid.min(axis=0)).sum())
    assert bounds.fair_coins_exact(10**6, 64) == pytest.approx(bounds.fair_coins(10**6, 64), rel=1e-5)


def test_mean_of_the_largest_normal():
    known = {1: 0.0, 2: 1 / math.sqrt(math.pi), 3: 1.5 / math.sqrt(math.pi), 4: 1.0293753730039641}
    for n, value in known.items():
        assert bounds.mean_max_normal(n) == pytest.approx(value, abs=1e-10)
    draws = np.random.default_rng(0).standard_normal((4000, 1000)).max(axis=1)
    assert bounds.mean_max_normal(1000) == pytest.approx(draws.mean(), abs=5 * draws.std() / math.sqrt(4000))
    assert bounds.mean_max_normal(10**6) < math.sqrt(2 * math.log(10**6))


# ------------------------------------------------------------------------------------------------------- bandits


class Many:
    """A bandit learner in many games at once: `pick` writes (games,), `see` reads their losses."""

    def __init__(self, games, n, horizon, rng):
        self.games, self.n, self.horizon, self.rng = games, n, horizon, rng
        self.rows = np.arange(games)
        self.count, self.reward = np.zeros((games, n)), np.zeros((games, n))

    def see(self, pick, loss):
        self.count[self.rows, pick] += 1
        self.reward[self.rows, pick] += 1 - loss

    def first_largest(self, index):
        return (index + 1e-9 * self.rng.random(index.shape)).argmax(axis=1)  # ties at random

    def mean(self):
        return self.reward / np.maximum(self.count, 1)


class Uniform(Many):
    def pick(self, t):
        return self.rng.integers(0, self.n, self.games)


class Stubborn(Many):
    def pick(self, t):
        return np.zeros(self.games, dtype=int)


class UCB1(Many):
    beta = 1.0

    def pick(self, t):
        width = self.beta * np.sqrt(2 * math.log(max(t, 1)) / np.maximum(self.count, 1))
        return self.first_largest(np.where(self.count == 0, 1e9, self.mean() + width))


class Tuned(UCB1):
    beta = 0.8


class MOSS(Many):
    def pick(self, t):
        count = np.maximum(self.count, 1)
        width = np.sqrt(np.maximum(0, np.log(self.horizon / (self.n * count))) / count)
        return self.first_largest(np.where(self.count == 0, 1e9, self.mean() + width))


class EXP3(Many):
    gamma = 0.0

    def __init__(self, *args):
        super().__init__(*args)
        self.loss = np.zeros((self.games, self.n))
        self.rate = math.sqrt(2 * math.log(self.n) / (self.horizon * self.n))

    def pick(self, t):
        w = np.exp(-self.rate * (self.loss - self.loss.min(axis=1, keepdims=True)))
        self.w = w / w.sum(axis=1, keepdims=True)
        return (self.w.cumsum(axis=1) < self.rng.random(self.games)[:, None]).sum(axis=1).clip(0, self.n - 1)

    def see(self, pick, loss):
        self.loss[self.rows, pick] += loss / (self.w[self.rows, pick] + self.gamma)


class EXP3IX(EXP3):
    def pick(self, t):
        self.gamma = self.rate / 2
        return super().pick(t)


class Commit(Many):
    explore = 30

    def pick(self, t):
        if t < self.explore * self.n:
            return np.full(self.games, t % self.n)
        if t == self.explore * self.n:
            self.choice = self.first_largest(self.mean())
        return self.choice


class Eliminate(Many):
    delta = 0.05

    def pick(self, t):
        count = np.maximum(self.count, 1)
        radius = np.sqrt(np.log(math.pi**2 * self.n * count**2 / (3 * self.delta)) / (2 * count))
        low = np.where(self.count > 0, self.mean() - radius, -np.inf)
        out = (self.count > 0) & (self.mean() + radius < low.max(axis=1, keepdims=True))
        self.out = out if t == 0 else self.out | out
        left = ~self.out
        return self.first_largest(np.where(left, -self.count, -np.inf))


def plays(kind, best, mean_loss, gap, n, horizon, seed):
    """Return plays, (games, n): in game g, best[g] has mean loss mean_loss - gap and every other drafter mean_loss."""
    rng = np.random.default_rng(seed)
    learner = kind(len(best), n, horizon, rng)
    counts = np.zeros((len(best), n))
    for t in range(horizon):
        pick = learner.pick(t)
        loss = (rng.random(len(best)) < mean_loss - gap * (pick == best)).astype(float)
        learner.see(pick, loss)
        counts[learner.rows, pick] += 1
    return counts


@pytest.mark.parametrize("kind", [Uniform, Stubborn, UCB1, MOSS, EXP3])
@pytest.mark.parametrize("n", [2, 8])
def test_lower_bound_on_its_own_instance(kind, n):
    # 100 games for each place of the good drafter; 4 standard errors: a false alarm once in 30,000, ten cases
    horizon = 400
    gap = (1 - 1 / n) / 2 * math.sqrt(n / horizon)
    best = np.repeat(np.arange(n), 100)
    counts = plays(kind, best, 0.5, gap, n, horizon, seed=n)
    regret = gap * (horizon - counts[np.arange(len(best)), best])
    floor = bounds.bandit_instance(horizon, n, gap)
    assert regret.mean() > floor - 4 * regret.std() / math.sqrt(len(best))
    places = regret.reshape(n, 100)
    error = places.std(axis=1).max() / 10
    assert places.mean(axis=1).max() > bounds.lower_bandit(horizon, n) - 4 * error
    assert floor > bounds.lower_bandit(horizon, n)
    # it can fail: whoever knows the drafter after one round pays gap, far below
    assert gap + 4 * error < bounds.lower_bandit(horizon, n)


def test_lower_bound_constant():
    # sqrt(N T)/20 follows from the instance for all T >= N >= 2: the best gap gives more everywhere
    for n in (2, 3, 5, 20, 100, 4096):
        for horizon in (n, n + 1, 2 * n, 10 * n, 1000 * n):
            gaps = np.linspace(0, 0.49, 200) * math.sqrt(n / horizon)
            best = max(bounds.bandit_instance(horizon, n, gap) for gap in gaps)
            assert best > bounds.lower_bandit(horizon, n)
    with pytest.raises(bounds.ConditionError, match="T must be a whole number of at least 8"):
        bounds.lower_bandit(7, 8)


STOCHASTIC = {
    UCB1: lambda T, gaps: bounds.ucb1(T, gaps),
    Tuned: lambda T, gaps: bounds.ucb_tuned(T, gaps, beta=0.8),
    MOSS: lambda T, gaps: bounds.moss(T, len(gaps), gaps=gaps),
    EXP3: lambda T, gaps: bounds.exp3(T, len(gaps)),
    Commit: lambda T, gaps: bounds.explore_then_commit(T, gaps, 30),
    Eliminate: lambda T, gaps: bounds.successive_elimination(T, gaps),
}


@pytest.mark.parametrize("kind", STOCHASTIC)
def test_stochastic_regret_is_below_the_bound(kind):
    # the means lie far below the bounds, or for `Commit` near it (its bound is nearly an equality): 4 standard errors
    n, horizon = 4, 600
    for gap in (0.1, 0.5):
        best = np.full(150, 2)
        counts = plays(kind, best, 0.6, gap, n, horizon, seed=1)
        regret = gap * (horizon - counts[:, 2])
        gaps = np.where(np.arange(n) == 2, 0.0, gap)
        assert regret.mean() <= STOCHASTIC[kind](horizon, gaps) + 4 * regret.std() / math.sqrt(150)
        assert regret.mean() > 0


def test_exp3_ix_quantile():
    # realised regret against the best drafter's realised loss, on fair coins, 300 games; the bound is far above
    n, horizon, games = 4, 400, 300
    rng = np.random.default_rng(0)
    losses = rng.integers(0, 2, (horizon, games, n)).astype(float)
    learner, own = EXP3IX(games, n, horizon, rng), np.zeros(games)
    for t, loss in enumerate(losses):
        pick = learner.pick(t)
        got = loss[np.arange(games), pick]
        learner.see(pick, got)
        own += got
    regret = own - losses.sum(axis=0).min(axis=1)
    assert (regret > bounds.exp3_ix(horizon, n, delta=0.1)).mean() <= 0.1
    assert regret.max() > 0.1 * bounds.exp3_ix(horizon, n, delta=0.1)


def test_ucbspec_rounds():
    # lengths 1..K+1 of two means; the bound counts rounds beyond the better drafter's
    K, T, delta = 4, 1500, 0.5
    chance = np.array([0.8, 0.3])  # of committing K + 1 tokens, else 1
    means = 1 + K * chance
    extra = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        count, total, tokens, rounds = np.zeros(2), np.zeros(2), 0, 0
        while tokens < T:
            if rounds < 2:
                i = rounds
            else:
                width = (1 + count) / count**2 * (1 + 2 * np.log(2 * rounds**2 * np.sqrt(1 + count) / delta))
                i = int((total / count + K / 2 * np.sqrt(width)).argmax())
            length = 1 + K * (rng.random() < chance[i])
            count[i] += 1
            total[i] += length
            tokens += length
            rounds += 1
        extra.append(rounds - T / means[0])
    assert 0 < np.mean(extra) < bounds.ucbspec(T, means, K)
    assert bounds.ucbspec(T, [3.0], K) == 0.0
    assert bounds.ucbspec(10**6, [4.2, 2.2], K) < 3 * bounds.ucbspec(10**3, [4.2, 2.2], K)  # logarithmic in T
    assert bounds.exp3spec(10**4, 7, 7, best_rounds=1) < bounds.exp3spec(10**4, 7, 7)


# --------------------------------------------------------------------------------------------------------- delay


def test_decode_bounds_are_their_derivations():
    for K in (1, 4, 7):
        for n in (2, 7):
            T = 2 * K * (K + 1) * 10
            boxed = bounds.bold(lambda m, n=n: bounds.hedge(m, n), T, K)
            assert bounds.decode_acceptance(T, n, K) == pytest.approx(boxed)
            assert bounds.decode_acceptance(T, n, K) / T == pytest.approx(math.sqrt((K + 1) * math.log(n) / (2 * T)))
            boxed = bounds.bold(lambda m, n=n, K=K: bounds.hedge(m, n, loss_range=K / (K + 1)), T, 2 * K - 1)
            assert bounds.decode_length(T, n, K) == pytest.approx((K + 1) * boxed)
            assert bounds.decode_length(T, n, K) / T == pytest.approx(K * math.sqrt(K * math.log(n) / T))
            assert bounds.decode_acceptance(T, n, K, mode="stale") == bounds.hedge(T, n, delay=K)
            stale = bounds.decode_length(T, n, K, mode="stale")
            assert stale == pytest.approx(K * bounds.hedge(T, n, delay=2 * K - 1))
            assert stale > bounds.decode_length(T, n, K)


@given(T=st.integers(1, 400), delay=st.integers(0, 30), n=st.integers(2, 9))
def test_bold_of_hedge(T, delay, n):
    boxed = bounds.bold(lambda m: bounds.hedge(m, n), T, delay)
    whole = math.sqrt((delay + 1) * T * math.log(n) / 2)
    assert boxed <= whole * (1 + 1e-12)
    if T % (delay + 1) == 0:
        assert boxed == pytest.approx(whole)
    assert boxed >= bounds.hedge(T, n) * (1 - 1e-12)


@pytest.mark.parametrize("delay", [1, 7])
def test_copies_of_hedge_stay_below_bold(delay):
    horizon, n = 400, 3
    rate = math.sqrt(8 * math.log(n) / (horizon / (delay + 1)))
    bound = bounds.bold(lambda m: bounds.hedge(m, n), horizon, delay)
    shares = []
    for adversary in (greedy, block_greedy(delay + 1), coins(3)):
        totals = np.zeros((delay + 1, n))  # of each copy: its last loss has arrived when it plays again

        def weigh(t, losses, total, weights, totals=totals):
            if t:
                totals[(t - 1) % (delay + 1)] += losses[-1]
            return exponential(totals[t % (delay + 1)], rate)

        shares.append(Played(weigh, adversary, n, horizon).regret / bound)
    assert 0.3 < max(shares) <= 1


def test_queued_ucb1_stays_within_qpm_d():
    # QPM-D: play what UCB1 asks for; a queued loss of it answers at once, else play it until one arrives. Paired on the
    # losses of each drafter, so the plays differ by at most the outstanding ones, in every game
    n, horizon, delay, gap = 3, 400, 11, 0.3
    for seed in range(5):
        rng = np.random.default_rng(seed)
        stack = (rng.random((n, horizon)) < np.array([0.6 - gap, 0.6, 0.6])[:, None]).astype(float)
        base, used = UCB1(1, n, horizon, np.random.default_rng(9)), np.zeros(n, dtype=int)
        played, arrived = np.zeros(n, dtype=int), np.zeros(n, dtype=int)
        flying = {}
        want, asked = None, 0
        for t in range(horizon):
            if t in flying:
                arrived[flying.pop(t)] += 1
            while True:
                if want is None:
                    want = int(base.pick(asked)[0])
                    asked += 1
                if arrived[want] == used[want]:
                    break  # nothing queued
                base.see(np.array([want]), stack[want, used[want]])
                used[want] += 1
                want = None
            played[want] += 1
            flying[t + 1 + delay] = want
        assert (played - used <= delay + 1).all()
        assert asked <= horizon + 1
        alone, total = UCB1(1, n, horizon, np.random.default_rng(9)), np.zeros(n, dtype=int)
        for t in range(horizon):
            pick = int(alone.pick(t)[0])
            alone.see(np.array([pick]), stack[pick, total[pick]])
            total[pick] += 1
        gaps = np.array([0.0, gap, gap])
        assert gaps @ played <= bounds.qpm_d(float(gaps @ total), gaps, delay + 1)


# ------------------------------------------------------------------------------------- values, relations, conditions


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (bounds.hedge(512, 7), math.sqrt(512 * math.log(7) / 2)),
        (bounds.hedge_doubling(100, 4), (2 + math.sqrt(2)) * math.sqrt(50 * math.log(4))),
        (bounds.adahedge(512, 7, variance=10.0), 2 * math.sqrt(10 * math.log(7)) + 4 / 3 * math.log(7) + 2),
        (bounds.optimistic_hedge(512, 7, variation=0.0), 0.0),
        (bounds.exp3(512, 7), math.sqrt(2 * 512 * 7 * math.log(7))),
        (bounds.exp3(512, 7, learning_rate=math.sqrt(2 * math.log(7) / (512 * 7))), bounds.exp3(512, 7)),
        (bounds.exp3_anytime(512, 7), 2 * math.sqrt(512 * 7 * math.log(7))),
        (bounds.exp3_p(512, 7, delta=0.1), 5.15 * math.sqrt(512 * 7 * math.log(70))),
        (bounds.tsallis_inf(100, 4), 81.0),
        (bounds.ucb1(1000, [0, 0.5, 0.5]), 32 * math.log(1000) + 1 + math.pi**2 / 3),
        (bounds.ucb_v(1000, [0, 0.5], [0.2, 0.1]), 10 * math.log(1000) * (0.2 + 2)),
        (bounds.moss(100, 4, gaps=[0, 0.5, 0.5, 1]), 392.0),
        (bounds.thompson_bayes(100, 4), math.sqrt(200 * math.log(4))),
        (bounds.explore_then_commit(100, [0, 0.5], 10), 5 + 40 * math.exp(-2.5)),
        (bounds.successive_elimination(1000, [0.0, 0.0]), 0.0),
        (bounds.successive_elimination(50, [0.0, 0.1, 0.2]), 15.0),
        (bounds.explore_then_commit_minimax(1000, 8), 400 * math.log(1000) ** (1 / 3) + 16),
        (bounds.tsallis_inf(100, 4, reduced_variance=True), 56 + 56 * math.log(100)),
        (bounds.optimistic_anytime(512, 7), math.sqrt((4 + 2048) * math.log(7))),
        (bounds.lower_full(512, 7), math.sqrt(512 * math.log(7) / 2)),
        (bounds.lower_bandit(400, 4), 2.0),
        (bounds.lai_robbins(1000, [0.5, 0.5]), 0.0),
        (bounds.kl_ucb(1000, [0.5, 0.25]), 0.25 * math.log(1000) / (0.25 * math.log(0.5) + 0.75 * math.log(1.5))),
    ],
)
def test_values(value, expected):
    assert value == pytest.approx(expected)


MONOTONE = [
    bounds.hedge,
    bounds.hedge_anytime,
    bounds.hedge_doubling,
    bounds.optimistic_hedge,
    bounds.adahedge,
    bounds.normalhedge,
    bounds.adanormalhedge,
    bounds.squint,
    bounds.ml_prod,
    bounds.ftpl,
    bounds.exp3,
    bounds.exp3_anytime,
    bounds.exp3_ix,
    bounds.tsallis_inf,
    bounds.ucb1_minimax,
    bounds.explore_then_commit_minimax,
    bounds.optimistic_anytime,
    lambda T, N: bounds.fixed_share_anytime(T, N, 3),
    bounds.moss,
    bounds.thompson_gauss,
    bounds.thompson_bayes,
    bounds.lower_full,
    bounds.fair_coins,
    bounds.fair_coins_exact,
    bounds.lower_bandit,
    lambda T, N: bounds.decode_acceptance(T, N, 4),
    lambda T, N: bounds.decode_length(T, N, 4, mode="stale"),
    lambda T, N: bounds.fixed_share(T, N, 3),
    lambda T, N: bounds.exp3spec(T, N, 4),
]


@pytest.mark.parametrize("bound", MONOTONE)
def test_bounds_grow_with_rounds_and_drafters(bound):
    times, sizes = (100, 101, 512, 5000), (2, 3, 7, 50)
    table = np.array([[bound(T, N) for N in sizes] for T in times])
    assert (np.diff(table, axis=0) > 0).all()
    assert (np.diff(table, axis=1) >= 0).all()
    assert (table[:, -1] > table[:, 0]).all() or bound is bounds.hedge_anytime


def test_one_drafter_has_no_regret():
    for name in ("hedge", "hedge_anytime", "adahedge", "normalhedge", "adanormalhedge", "squint", "ml_prod", "ftl"):
        assert getattr(bounds, name)(100, 1) == 0.0
    for name in ("ftpl", "exp3", "exp3_anytime", "exp3_ix", "exp3_p", "moss", "ucb1_minimax", "fair_coins_exact"):
        assert getattr(bounds, name)(100, 1) == pytest.approx(0.0, abs=1e-10)
    assert bounds.fixed_share(100, 1, 5) == 0.0
    assert bounds.ucb1(100, [0.0]) == 0.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: bounds.hedge(0, 2), "T must be a whole number of at least 1"),
        (lambda: bounds.hedge(math.nan, 2), "T must"),
        (lambda: bounds.hedge("9", 2), "T must"),
        (lambda: bounds.hedge_anytime(9, 2, scale=0), "scale must be positive"),
        (lambda: bounds.hedge_path([0.1, math.inf], [0, 0], 2), "finite"),
        (lambda: bounds.hedge_path([0.1], [math.nan], 2), "negative"),
        (lambda: bounds.hedge(10, 0, delay=-1), "N must be.*delay must be"),
        (lambda: bounds.hedge(10, 2, loss_range=2.0), "loss_range"),
        (lambda: bounds.hedge_path([0.1, 0.2], [0, 0], 2), "never rise"),
        (lambda: bounds.hedge_path([0.1], [0, 0], 2), "one length"),
        (lambda: bounds.hedge_path([0.1], [-1], 2), "negative"),
        (lambda: bounds.hedge_path([0.2, 0.3], [-1, 0], 2), "rates must.*missing must"),
        (lambda: bounds.optimistic_path([0.1], [math.inf], 2), "ranges must"),
        (lambda: bounds.optimistic_hedge(10, 2, variation=41), "variation must"),
        (lambda: bounds.adahedge(10, 2, variance=3), "variance must"),
        (lambda: bounds.normalhedge(10, 4, quantile=0.2), "quantile must"),
        (lambda: bounds.normalhedge(10, 4, b=0.6), "b must be in"),
        (lambda: bounds.adanormalhedge(10, 4, totals=[1, 2]), "totals must be a vector of 4"),
        (lambda: bounds.adanormalhedge(10, 2, totals=[1, 12]), "totals must"),
        (lambda: bounds.squint(10, 4, squares=11), "squares must"),
        (lambda: bounds.ml_prod(10, 4, squares=-1), "squares must"),
        (lambda: bounds.fixed_share(10, 4, 10), "switches must.*at most 9"),
        (lambda: bounds.fixed_share(10, 4, 1, share=1.5), "share must"),
        (lambda: bounds.fixed_share(10, 4, 1, learning_rate=0), "learning_rate must"),
        (lambda: bounds.fixed_share_anytime(10, 4, 10), "switches must.*at most 9"),
        (lambda: bounds.optimistic_anytime(10, 4, variation=-1), "variation must"),
        (lambda: bounds.explore_then_commit_minimax(1, 4), "T must be a whole number of at least 2"),
        (lambda: bounds.FOR_LEARNER["explore-then-commit"](bounds.Facts(10, 4)), "explore and gaps must.*horizon must"),
        (lambda: bounds.ftl(10, 4, changes=11), "changes must"),
        (lambda: bounds.ftpl(10, 4, noise="gaussian"), "noise must be 'exponential' or 'gumbel'"),
        (lambda: bounds.exp3(10, 4, learning_rate=-1), "learning_rate must"),
        (lambda: bounds.exp3_ix(10, 4, delta=0), "delta must be strictly between"),
        (lambda: bounds.exp3_p(10, 0, delta=1), "N must.*delta must"),
        (lambda: bounds.ucb1(10, [0.1, 0.2]), "gaps must.*the best drafter's being 0"),
        (lambda: bounds.ucb1(10, [[0.1]]), "gaps must"),
        (lambda: bounds.ucb1(10, ["a"]), "gaps must"),
        (lambda: bounds.ucb_tuned(10, [0, 0.2], beta=0.7), "beta must be above 1/sqrt 2"),
        (lambda: bounds.ucb_v(10, [0, 0.2], [0.1]), "variances must be a vector of 2"),
        (lambda: bounds.kl_ucb(10, [0.0, 0.2]), "means must"),
        (lambda: bounds.moss(10, 3, gaps=[0, 0.2]), "gaps must be a vector of 3"),
        (lambda: bounds.explore_then_commit(10, [0, 0.2], 6), "explore must.*at most 5"),
        (lambda: bounds.successive_elimination(10, [0, 0.2], delta=1.0), "delta must be strictly"),
        (lambda: bounds.ucbspec(10, [0.5, 2.0], 4), "means must"),
        (lambda: bounds.exp3spec(10, 4, 4, best_rounds=11), "best_rounds must"),
        (lambda: bounds.bold(lambda n: n, 10, -1), "outstanding must"),
        (lambda: bounds.qpm_d(-1.0, [0.0, 0.5], 1), "base must be at least 0"),
        (lambda: bounds.qpm_d(1.0, [0.0, 0.5], [1, 2, 3]), "outstanding must"),
        (lambda: bounds.decode_acceptance(10, 4, 0), "K must"),
        (lambda: bounds.decode_length(10, 4, 4, mode="queue"), "mode must be 'bold' or 'stale'"),
        (lambda: bounds.lower_bandit(10, 1), "N must be a whole number of at least 2"),
        (lambda: bounds.bandit_instance(10, 2, 0.5), "gap must"),
        (lambda: bounds.mean_max_normal(0), "N must"),
    ],
)
def test_conditions(call, words):
    with pytest.raises(bounds.ConditionError, match=words):
        call()


def test_condition_error_carries_every_problem():
    with pytest.raises(bounds.ConditionError) as caught:
        bounds.hedge(0, 0, delay=-1, loss_range=2)
    assert [problem.split()[0] for problem in caught.value.problems] == ["T", "N", "delay", "loss_range"]
    assert isinstance(caught.value, ValueError)
    assert pickle.loads(pickle.dumps(caught.value)).problems == caught.value.problems


def test_every_bound_checks_its_rounds_and_drafters():
    bad = {"T": 0, "N": 0, "K": 0, "means": [], "gaps": [0.1], "switches": -1, "gap": 2.0, "explore": 0}
    for name, theorem in bounds.BOUNDS.items():
        needed = [p for p in inspect.signature(theorem.bound).parameters.values() if p.default is p.empty]
        if needed[0].name != "T":
            continue  # paths and black boxes, above
        arguments = [bad.get(p.name, 1.0) for p in needed]
        with pytest.raises(bounds.ConditionError, match="T must be"):
            theorem.bound(
                *arguments[: len(needed) - (name == "ucb_tuned")], **({"beta": 1.0} if name == "ucb_tuned" else {})
            )
        assert theorem.bound is getattr(bounds, name)


# ----------------------------------------------------------------------------------------------------- the tables


def test_table_and_docstrings_agree():
    functions = {name for name in bounds.__all__ if inspect.isfunction(getattr(bounds, name))}
    assert set(bounds.BOUNDS) == functions - {"mean_max_normal"}
    for theorem in bounds.BOUNDS.values():
        assert f"Status: {theorem.status} ({theorem.holds}). Source: {theorem.source}." in theorem.bound.__doc__
        if theorem.status == "asymptotic":
            assert "no bound" in theorem.bound.__doc__ or "grow" in theorem.bound.__doc__


FACTS = bounds.Facts(
    T=500,
    N=3,
    K=4,
    horizon=500,
    rates=np.full(500, 0.1),
    variance=50.0,
    squares=100.0,
    totals=[100.0, 200.0, 300.0],
    ranges=np.ones(500),
    changes=20,
    switches=3,
    share=0.01,
    learning_rate=0.2,
    gaps=[0.0, 0.1, 0.2],
    means=[0.6, 0.5, 0.4],
    variances=[0.24, 0.25, 0.24],
    lengths=[3.0, 2.0, 2.5],
    explore=20,
    beta=1.0,
)


def test_facts_of_play():
    rng = np.random.default_rng(0)
    losses, probs = rng.random((50, 4)), rng.dirichlet(np.ones(4), 50)
    losses[:25] = losses[0].round()
    facts = bounds.Facts.of_play(losses, probs, switches=2)
    assert (facts.T, facts.N, facts.switches) == (50, 4, 2)
    best = losses.sum(axis=0).argmin()
    variance = squares = changes = 0.0
    totals, ranges, total, before, leaders = np.zeros(4), [], np.zeros(4), np.zeros(4), {0, 1, 2, 3}
    for w, loss in zip(probs, losses, strict=True):
        own = w @ loss
        variance += w @ loss**2 - own**2
        squares += (own - loss[best]) ** 2
        totals += abs(own - loss)
        ranges.append((loss - before).max() - (loss - before).min())
        total, before = total + loss, loss
        changes += leaders != (leaders := set(np.flatnonzero(total == total.min())))
    assert facts.variance == pytest.approx(variance)
    assert facts.squares == pytest.approx(squares)
    assert facts.totals == pytest.approx(tuple(totals))
    assert facts.ranges == pytest.approx(ranges)
    assert facts.changes == changes > 1
    with pytest.raises(bounds.ConditionError, match="one shape"):
        bounds.Facts.of_play(losses, probs[1:])


@pytest.mark.parametrize("name", bounds.FOR_LEARNER)
def test_bound_of_each_learner(name):
    entry = bounds.FOR_LEARNER[name]
    assert entry.theorem in bounds.BOUNDS
    value = entry(FACTS)
    assert type(value) is float
    assert 0 < value < math.inf
    least = (*entry.needs, "horizon") if name == "explore-then-commit" else entry.needs
    known = {"T": FACTS.T, "N": FACTS.N} | {fact: getattr(FACTS, fact) for fact in least}
    assert entry(bounds.Facts(**known)) >= value * (1 - 1e-12) or name.startswith("exp3")  # fewer facts, a weaker bound
    for fact in entry.needs:
        with pytest.raises(bounds.ConditionError, match=f"{fact} must be given"):
            entry(bounds.Facts(**(known | {fact: None})))
    if "horizon" in entry.needs:
        with pytest.raises(bounds.ConditionError, match="horizon must be T = 500, got 400"):
            entry(bounds.Facts(**(known | {"horizon": 400})))


def test_every_registered_learner_has_a_bound_or_a_reason():
    assert set(hl.learners()) <= set(bounds.FOR_LEARNER) | set(bounds.NO_BOUND)
    assert not set(bounds.FOR_LEARNER) & set(bounds.NO_BOUND)


def test_late_terms_of_the_path_bound():
    # ln 2 / eta + B^2 (1/8) eta (1 + 2 d) a round
    path = bounds.hedge_path([0.5, 0.5], [0, 3], 2, loss_range=0.5)
    assert path.tolist() == pytest.approx(
        [2 * math.log(2) + 0.25 * 0.0625, 2 * math.log(2) + 0.25 * (0.0625 + 0.0625 * 7)]
    )


def test_facts_are_those_of_the_final_best():
    losses = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])  # the first leads once, the second is best
    uneven = bounds.Facts.of_play(losses, np.array([[0.5, 0.5], [0.25, 0.75], [0.25, 0.75]]))
    assert uneven.squares == pytest.approx(0.25 + 2 * 0.0625)


def test_constants_of_single_terms():
    powers = math.sqrt(513 / math.log(7)) * math.log(1 + 3.5 * math.log(513))
    assert bounds.ml_prod(512, 7) == pytest.approx(2 * math.sqrt(512 * math.log(7)) + 2 * math.log(7) + powers)
    small = 2 * math.log(7) + 2 * math.log(1 + 3.5 * math.log(5))  # where 2 is the larger
    assert bounds.ml_prod(4, 7, squares=0.0) == pytest.approx(small)
    tail = math.sqrt(512 * 7 / math.log(7)) * math.log(10)
    expected = 5.15 * math.sqrt(512 * 7 * math.log(7)) + tail
    assert bounds.exp3_p(512, 7, delta=0.1, tuned=False) == pytest.approx(expected)
    facts = bounds.Facts(512, 7, horizon=512, delta=0.1)
    assert bounds.FOR_LEARNER["exp3-p"](facts) == pytest.approx(expected)
    assert bounds.FOR_LEARNER["exp3-ix"](facts) == bounds.exp3_ix(512, 7, delta=0.1)
    with pytest.raises(bounds.ConditionError, match="horizon must be T"):
        bounds.FOR_LEARNER["exp3-ix"](bounds.Facts(512, 7, horizon=1))
