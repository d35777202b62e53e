"""Which bound belongs to which registered learner, and what a run must tell it.

    facts = Facts.of_play(losses, probs)
    FOR_LEARNER["adahedge"](facts)

Each entry is for the learner's default parameters unless a fact says otherwise, and for games without delay. Which
regret it is about is `BOUNDS[entry.theorem].holds`; with status "asymptotic" or "order only" the number is no bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hedgelab.bounds import bandits, full_information
from hedgelab.bounds.conditions import ConditionError

__all__ = ["FOR_LEARNER", "NO_BOUND", "Facts", "LearnerBound"]


@dataclass(frozen=True)
class Facts:
    """What a run without delay can tell about itself; what is None is unknown, and the worst case is taken.

    T, N : rounds and drafters; K : draft length
    horizon : the learner's parameter of that name
    rates : (T,) learning rates played (optimistic Hedge, FTPL)
    variance : sum over rounds of the variance of l_t(i), i ~ w_t
    squares : sum over rounds of (<w_t, l_t> - l_t(best))^2
    totals : (N,) sum over rounds of |<w_t, l_t> - l_t(i)|
    ranges : (T,) max - min of l_t - l_{t-1}, with l_0 = 0
    changes : rounds after which the set of leaders is another
    switches : of the sequence that tracking regret compares with; share, learning_rate : Fixed-Share's parameters
    gaps, means, variances : (N,) of rewards 1 - loss, stochastic worlds; lengths : (N,) mean committed tokens a round
    explore : plays of each drafter before commitment; beta : factor of a tuned index; delta : allowed failure
        probability
    """

    T: int
    N: int
    K: int | None = None
    horizon: int | None = None
    rates: ArrayLike | None = None
    variance: float | None = None
    squares: float | None = None
    totals: ArrayLike | None = None
    ranges: ArrayLike | None = None
    changes: int | None = None
    switches: int | None = None
    share: float | None = None
    learning_rate: float | None = None
    gaps: ArrayLike | None = None
    means: ArrayLike | None = None
    variances: ArrayLike | None = None
    lengths: ArrayLike | None = None
    explore: int | None = None
    beta: float | None = None
    delta: float = 0.05

    @classmethod
    def of_play(cls, losses: ArrayLike, probs: ArrayLike, **known: Any) -> Facts:
        """Return the facts of a game of full information played without delay.

        losses : (T, N); probs : (T, N) the weights played. Other facts go into `known`, e.g. rates or switches.

        >>> Facts.of_play([[1, 0], [1, 0]], [[0.5, 0.5], [0.0, 1.0]]).totals
        (1.5, 0.5)
        """
        loss, w = np.asarray(losses, dtype=np.float64), np.asarray(probs, dtype=np.float64)
        if loss.ndim != 2 or loss.shape != w.shape or len(loss) == 0:
            raise ConditionError(f"losses and probs must be two tables of one shape, got {loss.shape} and {w.shape}")
        own = (w * loss).sum(axis=1, keepdims=True)
        leads = np.vstack([np.zeros(loss.shape[1]), loss.cumsum(axis=0)])
        leaders = leads == leads.min(axis=1, keepdims=True)
        facts: dict[str, Any] = {
            "variance": float((w * (loss - own) ** 2).sum()),
            "squares": float(((own[:, 0] - loss[:, leads[-1].argmin()]) ** 2).sum()),
            "totals": tuple(np.abs(own - loss).sum(axis=0).tolist()),
            "ranges": np.ptp(np.diff(loss, axis=0, prepend=0.0), axis=1),
            "changes": int((leaders[1:] != leaders[:-1]).any(axis=1).sum()),
        }
        return cls(*loss.shape, **(facts | known))


@dataclass(frozen=True)
class LearnerBound:
    """A learner's bound: `theorem` names it in BOUNDS, it needs the facts `needs` and can use those in `uses`.

    `note` says what holds for this learner beyond `BOUNDS[theorem].holds`.

    Call it with Facts. Raises ConditionError naming each needed fact that is None, and horizon where it must be T.
    """

    theorem: str
    bound: Callable[[Facts], float]
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    note: str = ""

    def __call__(self, facts: Facts) -> float:
        problems = [f"{name} must be given" for name in self.needs if getattr(facts, name) is None]
        if "horizon" in self.needs and facts.horizon is not None and facts.horizon != facts.T:
            problems.append(f"horizon must be T = {facts.T}, got {facts.horizon}")
        if problems:
            raise ConditionError(*problems)
        return self.bound(facts)


def _hedge(f: Facts) -> float:
    if f.rates is None:
        return full_information.hedge_anytime(f.T, f.N)
    return float(full_information.hedge_path(f.rates, np.zeros(f.T), f.N)[-1])


def _optimistic(f: Facts) -> float:
    if f.ranges is None:
        return full_information.optimistic_anytime(f.T, f.N)
    if f.rates is None:
        return full_information.optimistic_anytime(f.T, f.N, variation=float(np.square(f.ranges).sum()))
    return float(full_information.optimistic_path(f.rates, f.ranges, f.N)[-1])


def _fixed_share(f: Facts) -> float:
    assert f.switches is not None  # LearnerBound saw to it
    if f.share is None or f.learning_rate is None:
        return full_information.fixed_share_anytime(f.T, f.N, f.switches)
    return full_information.fixed_share(f.T, f.N, f.switches, share=f.share, learning_rate=f.learning_rate)


def _commit(f: Facts) -> float:
    if f.explore is not None and f.gaps is not None:
        return bandits.explore_then_commit(f.T, f.gaps, f.explore)
    if f.horizon != f.T:
        raise ConditionError("explore and gaps must be given, or horizon must be T")
    return bandits.explore_then_commit_minimax(f.T, f.N)


def _exp3_ix(f: Facts) -> float:
    if f.horizon not in (None, f.T):
        raise ConditionError(f"horizon must be T = {f.T}, or none, got {f.horizon}")
    return bandits.exp3_ix(f.T, f.N, delta=f.delta, anytime=f.horizon is None)


def _exp3(f: Facts) -> float:
    if f.learning_rate is None:
        return bandits.exp3_anytime(f.T, f.N)
    return bandits.exp3(f.T, f.N, learning_rate=f.learning_rate)


FOR_LEARNER: dict[str, LearnerBound] = {
    "hedge": LearnerBound("hedge_path", _hedge, uses=("rates",)),
    "adahedge": LearnerBound(
        "adahedge", lambda f: full_information.adahedge(f.T, f.N, variance=f.variance), uses=("variance",)
    ),
    "normalhedge": LearnerBound("normalhedge", lambda f: full_information.normalhedge(f.T, f.N)),
    "adanormalhedge": LearnerBound(
        "adanormalhedge", lambda f: full_information.adanormalhedge(f.T, f.N, totals=f.totals), uses=("totals",)
    ),
    "squint": LearnerBound("squint", lambda f: full_information.squint(f.T, f.N, squares=f.squares), uses=("squares",)),
    "ml-prod": LearnerBound(
        "ml_prod", lambda f: full_information.ml_prod(f.T, f.N, squares=f.squares), uses=("squares",)
    ),
    "optimistic-hedge": LearnerBound("optimistic_anytime", _optimistic, uses=("rates", "ranges")),
    "fixed-share": LearnerBound(
        "fixed_share_anytime", _fixed_share, needs=("switches",), uses=("share", "learning_rate")
    ),
    "ftl": LearnerBound("ftl", lambda f: full_information.ftl(f.T, f.N, changes=f.changes), uses=("changes",)),
    "ftpl": LearnerBound(
        "ftpl_path",
        _hedge,  # Gumbel noise: the law of the pick is Hedge's
        uses=("rates",),
        note="in expectation, for losses that do not depend on this round's pick: its one-hot weights reveal it",
    ),
    "exp3": LearnerBound("exp3_anytime", _exp3, uses=("learning_rate",)),
    "exp3-ix": LearnerBound("exp3_ix", _exp3_ix, uses=("horizon", "delta")),
    "exp3-p": LearnerBound(
        "exp3_p", lambda f: bandits.exp3_p(f.T, f.N, delta=f.delta, tuned=False), ("horizon",), ("delta",)
    ),
    "tsallis-inf": LearnerBound("tsallis_inf", lambda f: bandits.tsallis_inf(f.T, f.N)),
    "ucb1": LearnerBound("ucb1", lambda f: bandits.ucb1(f.T, f.gaps), needs=("gaps",)),  # type: ignore[arg-type]
    "ucb-v": LearnerBound(
        "ucb_v",
        lambda f: bandits.ucb_v(f.T, f.gaps, f.variances),  # type: ignore[arg-type]
        needs=("gaps", "variances"),
    ),
    "kl-ucb": LearnerBound("kl_ucb", lambda f: bandits.kl_ucb(f.T, f.means), needs=("means",)),  # type: ignore[arg-type]
    "moss": LearnerBound(
        "moss",
        lambda f: bandits.moss(f.T, f.N, gaps=f.gaps),
        needs=("horizon",),
        uses=("gaps",),
    ),
    "thompson-beta": LearnerBound(
        "thompson_beta",
        lambda f: bandits.thompson_beta(f.T, f.means),  # type: ignore[arg-type]
        needs=("means",),
    ),
    "thompson-gauss": LearnerBound("thompson_gauss", lambda f: bandits.thompson_gauss(f.T, f.N)),
    "explore-then-commit": LearnerBound("explore_then_commit", _commit, uses=("gaps", "explore", "horizon")),
    "successive-elimination": LearnerBound(
        "successive_elimination",
        lambda f: bandits.successive_elimination(f.T, f.gaps, delta=f.delta),  # type: ignore[arg-type]
        needs=("gaps",),
        uses=("delta",),
    ),
    "ucb-tuned": LearnerBound(
        "ucb_tuned",
        lambda f: bandits.ucb_tuned(f.T, f.gaps, beta=f.beta),  # type: ignore[arg-type]
        needs=("gaps", "beta"),
    ),
    "metasd": LearnerBound(
        "ucb_tuned",
        lambda f: bandits.ucb_tuned(f.T, f.gaps, beta=f.beta),  # type: ignore[arg-type]
        needs=("gaps", "beta"),
    ),
    "metasd-onpath": LearnerBound(
        "ucb_tuned",
        lambda f: bandits.ucb_tuned(f.T, f.gaps, beta=f.beta),  # type: ignore[arg-type]
        needs=("gaps", "beta"),
    ),
    "ucbspec": LearnerBound(
        "ucbspec",
        lambda f: bandits.ucbspec(f.T, f.lengths, f.K),  # type: ignore[arg-type]
        needs=("lengths", "K"),
    ),
    "exp3spec": LearnerBound(
        "exp3spec",
        lambda f: bandits.exp3spec(f.T, f.N, f.K),  # type: ignore[arg-type]
        needs=("K",),
    ),
}

NO_BOUND: dict[str, str] = {
    "uniform": "learns nothing: regret grows with T",
    "fixed": "learns nothing: regret grows with T",
    "normalhedge-bh": "published as O(sqrt(V ln(V / eps))), without constants (Freund et al. 2026)",
    "banditspec-release": "divides its bonus by the total count: greedy after one play each, regret grows with T",
}
