r"""Regret bounds, one function a theorem, in units of loss.

Static regret R_T = sum_t <w_t, l_t> - min_i sum_t l_t(i) of the weights that were played.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["hedge", "hedge_anytime", "hedge_path"]


def _checked(T: int, N: int, delay: int = 0, loss_range: float = 1.0, scale: float = 1.0) -> tuple[int, int, int]:
    """Return T, N and delay as ints. Raises ValueError naming every argument that is out of range."""
    problems = [
        f"{name} must be {what}, got {value!r}"
        for name, value, what, right in (
            ("T", T, "a whole number of at least 1", T >= 1 and int(T) == T),
            ("N", N, "a whole number of at least 1", N >= 1 and int(N) == N),
            ("delay", delay, "a whole number of at least 0", delay >= 0 and delay == int(delay)),
            ("loss_range", loss_range, "in (0, 1]", 0 < loss_range <= 1),
            ("scale", scale, "positive and finite", 0 < scale < math.inf),
        )
        if not right
    ]
    if problems:
        raise ValueError("; ".join(problems))
    return int(T), int(N), int(delay)


def hedge(T: int, N: int, *, delay: int = 0, loss_range: float = 1.0) -> float:
    """Return Hedge's bound with the fixed rate tuned to T, for losses in an interval of width B = `loss_range`.

    Without delay: B sqrt(T ln N / 2), rate sqrt(8 ln N / T) / B, on every sequence (Cesa-Bianchi and Lugosi 2006,
    Theorem 2.2). When a loss may be missing for `delay` further plays, with D the sum over plays of the losses missing,
    at most sum_t min(t, delay), and rate sqrt(8 ln N / (T + 2D)) / B: B sqrt((T + 2D) ln N / 2), see `hedge_path`. The
    bound holds for that rate, not for the one tuned to T alone.

    >>> round(hedge(512, 7), 1)
    22.3
    """
    T, N, delay = _checked(T, N, delay, loss_range)
    late = min(T, delay)
    missing = late * (late - 1) // 2 + (T - late) * delay
    return loss_range * math.sqrt((T + 2 * missing) * math.log(N) / 2)


def hedge_anytime(T: int, N: int, *, delay: int = 0, loss_range: float = 1.0, scale: float = 2.0) -> float:
    """Return the bound of Hedge with rate scale * sqrt(ln N / t), t - 1 losses seen; T need not be known beforehand.

    Without delay at most (1/scale + scale/4) sqrt(T ln N) for losses in [0, 1]. With delay: an upper bound on
    `hedge_path` at T for every pattern in which at most `delay` losses are ever missing.

    >>> hedge_anytime(1000, 8) <= math.sqrt(1000 * math.log(8))
    True
    """
    T, N, delay = _checked(T, N, delay, loss_range, scale)
    if N == 1:
        return 0.0
    play = np.arange(T)
    missing = np.minimum(play, delay)  # every term of the sum is largest when as much as can be is missing ...
    rates = scale * np.sqrt(math.log(N) / (play - missing + 1.0))
    lowest = scale * math.sqrt(math.log(N) / T)  # ... and the first term when nothing is
    return float(math.log(N) / lowest + loss_range**2 * (rates * (1 + 2 * missing)).sum() / 8)


def hedge_path(rates: ArrayLike, missing: ArrayLike, N: int, *, loss_range: float = 1.0) -> NDArray[np.float64]:
    r"""Return the bound on R_t after each play, (T,), of exponential weights under delay.

    rates : (T,) positive, not increasing; missing : (T,) losses of earlier plays not yet seen at each play

        R_t <= ln N / eta_t + B^2 sum_{s <= t} eta_s (1 + 2 d_s) / 8

    Pathwise, for every pattern of delays. Proof: weights with *all* earlier losses have regret at most ln N / eta_t
    + B^2 sum eta_s / 8 (the mixability gap is at most eta B^2 / 8 by Hoeffding's lemma, and mix losses with falling
    rates sum to at most min L + ln N / eta_t; de Rooij et al. 2014, Lemmas 1 and 2). The weights played lack d_s
    loss vectors; moving the log-weights by eta M with M of range d B changes <w, l> at the rate eta Cov_w(M, l), at
    most eta d B^2 / 4. Derived here, checked on adversaries.

    >>> hedge_path([0.5, 0.5], [0, 0], 2).round(4).tolist()
    [1.4488, 1.5113]
    """
    eta, late = np.asarray(rates, dtype=np.float64), np.asarray(missing, dtype=np.float64)
    if eta.ndim != 1 or eta.shape != late.shape or len(eta) == 0:
        raise ValueError(f"rates and missing must be two vectors of one length, got {eta.shape} and {late.shape}")
    if not ((eta > 0) & np.isfinite(eta)).all() or (np.diff(eta) > 0).any():
        raise ValueError("the bound needs positive, finite rates that never rise")
    if not (late >= 0).all():
        raise ValueError("missing must not be negative")
    _checked(len(eta), N, loss_range=loss_range)
    return math.log(N) / eta + loss_range**2 * np.cumsum(eta * (1 + 2 * late)) / 8
