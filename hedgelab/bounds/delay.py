r"""Bounds under delay: two black boxes, and the two objectives of a decode loop (theory of the token game).

Hedge on the losses that have arrived, without any box, has its bounds in `hedge(..., delay=)` and `hedge_path`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from hedgelab.bounds.conditions import Condition, gaps_of, inside, require, whole
from hedgelab.bounds.full_information import hedge
from hedgelab.bounds.table import theorem

__all__ = ["bold", "decode_acceptance", "decode_length", "qpm_d"]


@theorem("proved here", "pathwise", "Joulani, György and Szepesvari 2013, for BOLD")
def bold(base: Callable[[int], float], T: int, outstanding: int) -> float:
    r"""Return BOLD's bound (G + 1) f(T / (G + 1)): a fresh copy of the base learner whenever all copies wait.

    base : n -> f(n), the base learner's bound for n rounds without delay, concave in n with f(0) = 0; outstanding :
        G, most losses missing at a play (with a constant delay d, G = d)

    Where G + 1 does not divide T, the copies' shares T // (G + 1) and one more are used. Proof: G + 1 copies
    suffice, each plays its own n_j rounds without delay, regrets against the copies' own best add up to at least the
    regret, and for a concave f equal shares are the worst. With an f that holds pathwise, against any adversary, delays
    may follow the picks, as those of a decode loop do (`experiments/claims/delay` measures it). An f in expectation
    needs delays that do not depend on the predictions: wait for the largest (padding).

    >>> round(bold(lambda n: hedge(n, 7), 512, 7) / math.sqrt(8 * 512 * math.log(7) / 2), 12)
    1.0
    """
    require(whole("T", T), whole("outstanding", outstanding, 0))
    share, more = divmod(int(T), int(outstanding) + 1)
    return more * base(share + 1) + (outstanding + 1 - more) * (base(share) if share else 0.0)


@theorem("proved here", "stochastic", "Joulani, György and Szepesvari 2013, for QPM-D")
def qpm_d(base: float, gaps: ArrayLike, outstanding: ArrayLike) -> float:
    r"""Return QPM-D's bound for stochastic bandits: base + sum_i Delta_i G_i.

    base : the base learner's bound without delay at the same T; gaps : (N,) in [0, 1], the best drafter's 0;
        outstanding : (N,) most losses of each drafter missing at once, or one number for all

    Delays must not depend on the losses: hold back the bad ones, and the queue shows the base learner the good alone.

    Proof: losses of one drafter are exchangeable, so the queue shows the base learner a game without delay, of at
    most T rounds; the plays of i beyond those the base asked for are among its losses still missing or queued, at
    most G_i.

    >>> qpm_d(100.0, [0.0, 0.5], 7)
    103.5
    """
    require(gaps_of("gaps", gaps), inside("base", base, 0.0, math.inf)._replace(right=base >= 0, what="at least 0"))
    gap = np.asarray(gaps, dtype=np.float64)
    late = np.asarray(outstanding, dtype=np.float64)
    right = late.shape in ((), gap.shape) and bool((late >= 0).all() and np.isfinite(late).all())
    require(Condition("outstanding", outstanding, f"a number of at least 0, or {len(gap)} of them", right))
    return float(base + (gap * late).sum())


Mode = Literal["bold", "stale"]


def _mode(mode: str) -> Condition:
    return Condition("mode", mode, "'bold' or 'stale'", mode in ("bold", "stale"))


@theorem("proved here", "pathwise", "`bold` with `hedge`; mode 'stale': `hedge_path`")
def decode_acceptance(T: int, N: int, K: int, *, mode: Mode = "bold") -> float:
    r"""Return Hedge's bound on the total regret in acceptance loss over T tokens of a decode loop with drafts of K.

        bold:  sqrt((K + 1) T ln N / 2), an average gap of sqrt((K + 1) ln N / (2 T))
        stale: sqrt((T + 2D) ln N / 2) with D <= K T, about sqrt((2K + 1) T ln N / 2)

    The loss at a token, 1 - gamma or 1 - alpha in [0, 1], is known when the round that commits it ends, so up to K
    losses are missing at a play. bold: every loss is held back for K plays and K + 1 copies of Hedge, tuned to T /
    (K + 1) plays, take turns. stale: one Hedge on what has arrived, rate sqrt(8 ln N / (T + 2D)), with no need to
    hold back.

    >>> round(decode_acceptance(512, 7, 7), 1), round(decode_acceptance(512, 7, 7, mode="stale"), 1)
    (63.1, 86.1)
    """
    require(whole("T", T), whole("N", N), whole("K", K), _mode(mode))
    return hedge(T, N, delay=K) if mode == "stale" else math.sqrt((K + 1) * T * math.log(N) / 2)


@theorem("proved here", "pathwise", "`bold` with `hedge`; mode 'stale': `hedge_path`")
def decode_length(T: int, N: int, K: int, *, mode: Mode = "bold") -> float:
    r"""Return Hedge's bound on the total regret in expected committed length, in tokens, summed over T round starts.

        bold:  K sqrt(K T ln N), an average gap of K sqrt(K ln N / T) tokens
        stale: K sqrt((T + 2D) ln N / 2) with D <= (2K - 1) T, about K sqrt((4K - 1) T ln N / 2)

    The loss 1 - len/(K + 1) lies in [0, K/(K + 1)], a unit of it is K + 1 tokens, and it needs the K tokens from the
    start on: known when the round that commits the last of them ends, with up to 2K - 1 missing at a play. bold: 2K
    copies, so (K + 1) (K/(K + 1)) sqrt(2K T ln N / 2). T counts the starts with K tokens after them in the query:
    the others have no length loss.

    >>> round(decode_length(512, 7, 7), 1), round(decode_length(512, 7, 7, mode="stale"), 1)
    (584.6, 806.5)
    """
    require(whole("T", T), whole("N", N), whole("K", K), _mode(mode))
    if mode == "stale":
        return (K + 1) * hedge(T, N, delay=2 * K - 1, loss_range=K / (K + 1))
    return K * math.sqrt(K * T * math.log(N))
