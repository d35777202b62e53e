r"""Synthetic traces: drafters of known mean acceptance in each domain.

What a recording fixes and nobody knows exactly (mean acceptance, how far drafters agree, how much of alpha is
luck) is given here, so engines, oracles and metrics can be held against formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.feedback import LONGEST_DRAFT
from hedgelab.trace import Trace

__all__ = ["pool"]

_POOL = 2  # spawn key of its generators, see hedgelab.worlds


def _number(name: str, value: Any, low: float, high: float, *, integer: bool = False) -> list[str]:
    """Return the problem of an argument that must be a number in [low, high], if there is one."""
    kinds = (int, np.integer) if integer else (int, float, np.integer, np.floating)
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        what = "whole number" if integer else "number"
        return [f"{name} must be a {what} in [{low:g}, {high:g}], got {value!r}"]
    return []


def _names(name: str, given: Sequence[str] | None, default: str, count: int) -> tuple[list[str], list[str]]:
    names = [f"{default}{i}" for i in range(count)] if given is None else [str(each) for each in given]
    if len(names) != count or len(set(names)) != count:
        return names, [f"{name} must be {count} different names, got {names}"]
    return names, []


def _gammas(
    rng: np.random.Generator, means: NDArray[np.float64], concentration: float, alike: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return (rows, N) gamma ~ Beta(c m, c (1 - m)), from one random distribution function where `alike` (rows,)."""
    rows = len(alike)
    order = np.argsort(means, kind="stable")
    steps = np.diff(means[order], prepend=0.0, append=1.0)
    heights = np.cumsum(rng.standard_gamma(concentration * steps, (rows, len(steps))), axis=1)
    together = np.empty((rows, len(means)))
    together[:, order] = heights[:, :-1] / heights[:, -1:]
    above = rng.standard_gamma(concentration * means, (rows, len(means)))
    below = rng.standard_gamma(concentration * (1.0 - means), (rows, len(means)))
    return np.where(alike[:, None], together, above / (above + below))


def _alphas(
    rng: np.random.Generator, gamma: NDArray[np.float64], softness: float, alike: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return (rows, N) alpha in {s gamma, 1} of mean gamma, from one uniform a row where `alike` (rows,)."""
    own = rng.random(gamma.shape)
    uniform = np.where(alike[:, None], rng.random((len(alike), 1)), own)
    low = softness * gamma
    whole = np.divide(gamma - low, 1.0 - low, out=np.ones_like(gamma), where=low < 1.0)  # probability that alpha is 1
    return np.where(uniform < whole, 1.0, low)


def pool(
    acceptance: ArrayLike,
    rows: int = 256,
    *,
    sequences: int = 8,
    k: int = 7,
    concentration: float = 4.0,
    shared: float = 0.5,
    softness: float = 0.0,
    domains: Sequence[str] | None = None,
    drafters: Sequence[str] | None = None,
    seed: int = 0,
) -> Trace:
    r"""Return a trace of made-up drafters with the given mean acceptance: flat drafters, independent rows.

    acceptance : (D, N) in [0, 1], mean of gamma in each domain, for each drafter. rows : of each sequence. sequences :
    of each domain, in order of domains. k : draft length. concentration : c below, small for gammas near 0 and 1.
    shared : probability that a row is easy or hard for all drafters alike. softness : s below; 0 for greedy drafters
    (alpha is 0 or 1), 1 for alpha = gamma, as under a greedy target. domains, drafters : names. seed : each sequence is
    a function of (seed, its domain's index, its index in the domain), of `rows`, and of the other arguments that shape
    it. Raises ValueError naming every argument that is out of range.

    With m the mean acceptance, for each row and drafter:

        gamma ~ Beta(c m, c (1 - m))
        alpha = 1 with probability (gamma - s gamma) / (1 - s gamma), else s gamma;    so E[alpha | gamma] = gamma

    A shared row has one random distribution function F, a Dirichlet process of mass c with uniform base (Ferguson
    1973), gamma_i = F(m_i), and one uniform decides all alphas; in other rows drafters are independent. Hence for m_i
    <= m_j the correlation of gamma_i and gamma_j is shared * sqrt(m_i (1 - m_j) / (m_j (1 - m_i))). Rows are
    independent, so a round of drafter i that the end does not cut commits sum_{d=0..k} m_i^d tokens on average.
    Tokens are random numbers without meaning. Values are rounded to float32, as in every trace.

    >>> pool([[0.8, 0.3], [0.2, 0.6]], rows=50, drafters=["coder", "medic"])
    <Trace 'arrays': 16 sequences, 2 drafters, k=7>
    """
    means = np.asarray(acceptance, dtype=np.float64)
    problems = []
    if means.ndim != 2 or means.size == 0 or not ((means >= 0) & (means <= 1)).all():
        problems.append("acceptance must be (domains, drafters) in [0, 1]")
        means = np.zeros((1, 1))
    problems += [
        *_number("rows", rows, 1, math.inf, integer=True),
        *_number("sequences", sequences, 1, math.inf, integer=True),
        *_number("k", k, 1, LONGEST_DRAFT, integer=True),
        *_number("concentration", concentration, 0.1, 1e6),
        *_number("shared", shared, 0, 1),
        *_number("softness", softness, 0, 1),
        *_number("seed", seed, 0, 2**56 - 1, integer=True),
    ]
    domain_names, wrong_domains = _names("domains", domains, "domain", len(means))
    drafter_names, wrong_drafters = _names("drafters", drafters, "drafter", means.shape[1])
    if len(problems) == 0 or not problems[0].startswith("acceptance"):
        problems += wrong_domains + wrong_drafters
    if problems:
        raise ValueError("; ".join(problems))
    alphas, gammas, tokens = [], [], []
    for d, row in enumerate(means):
        for s in range(sequences):
            rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(_POOL, d, s))))
            alike = rng.random(rows) < shared
            gamma = _gammas(rng, row, concentration, alike)
            gammas.append(gamma)
            alphas.append(_alphas(rng, gamma, softness, alike))
            tokens.append(rng.integers(0, 1000, rows))
    return Trace.from_arrays(
        token=np.concatenate(tokens),
        alpha=np.concatenate(alphas),
        gamma=np.concatenate(gammas),
        offsets=np.arange(len(means) * sequences + 1) * rows,
        domains=[name for name in domain_names for _ in range(sequences)],
        drafters=drafter_names,
        k=k,
    )
