r"""The texts that a claim's numbers are of: kept with its results, so that `check` can resample and halve them.

Results hold numbers text by text, and `experiments.labels` says what a text is drawn with (its prompt, a conversation
as a whole) and within (the domain that it began in). Each domain's resamples are its own, and the same for all policies
and for all settings of the same texts: that pairs the comparisons.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from experiments.intervals import FEWEST, Draws, of_difference_of_ratios, of_ratio, resample
from hedgelab.comparison import POOLED
from hedgelab.regret import Interval

__all__ = ["POOLED", "Texts"]

RESAMPLES = 20_000


@functools.lru_cache(maxsize=64)
def _draws(prompts: tuple[str, ...], homes: tuple[str, ...], resamples: int, seed: int) -> Draws:
    return resample(prompts, homes, resamples=resamples, seed=seed)


class Texts:
    """S texts with the labels that results hold. A group is one of their domains, or POOLED.

    prompts, homes, domains : (S,) labels
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.prompts, self.homes, self.domains = (
            np.asarray(arrays[name], str) for name in ("prompts", "homes", "domains")
        )

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def groups(self) -> tuple[str, ...]:
        """The domains in the order of the texts, and POOLED."""
        return (*dict.fromkeys(self.domains.tolist()), POOLED)

    @property
    def spread(self) -> bool:
        """Whether every domain has two prompts or more: else nothing is known of how prompts differ."""
        return all(len(set(self.prompts[self.homes == home])) > 1 for home in set(self.homes.tolist()))

    def of(self, group: str) -> NDArray[np.bool_]:
        """Return (S,) whether a text is of a group."""
        return np.full(len(self), True) if group == POOLED else self.domains == group

    def draws(self, group: str = POOLED, comparisons: int = 1, among: NDArray[np.bool_] | None = None) -> Draws:
        """Return resamples of a group's texts, enough of them for so many comparisons; or of those `among` them (S,).

        A group with a domain of one prompt has no spread to show there: no degrees of freedom, and its intervals NaN.
        """
        here = self.of(group) if among is None else self.of(group) & among
        prompts, homes = self.prompts[here], self.homes[here] if group == POOLED else np.full(int(here.sum()), group)
        seed = (self.groups.index(group) + 1) % len(self.groups)
        drawn = _draws(tuple(prompts.tolist()), tuple(homes.tolist()), max(RESAMPLES, FEWEST * comparisons), seed)
        single = min(len(set(prompts[homes == home])) for home in np.unique(homes)) < 2
        return Draws(drawn.weights, 0) if single else drawn

    def ratio(self, above: ArrayLike, below: ArrayLike, group: str = POOLED, comparisons: int = 1) -> Interval:
        """Return sum(above) / sum(below) over a group's texts; above, below : (S,) of all texts."""
        top, bottom = (np.asarray(part, np.float64)[self.of(group)] for part in (above, below))
        return of_ratio(top, bottom, self.draws(group, comparisons), comparisons)

    def difference(
        self, tokens: ArrayLike, rounds: ArrayLike, other: ArrayLike, group: str = POOLED, comparisons: int = 1
    ) -> Interval:
        """Return MAT of one policy minus that of another over a group's texts, paired: all (S,)."""
        all_of, own, its = (np.asarray(part, np.float64)[self.of(group)] for part in (tokens, rounds, other))
        return of_difference_of_ratios(all_of, own, its, self.draws(group, comparisons), comparisons)

    def halves(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return two halves of the texts, (S,) each: every other prompt of each domain, in order of their names."""
        first = np.zeros(len(self), bool)
        for home in np.unique(self.homes):
            here = self.homes == home
            first |= here & np.isin(self.prompts, np.unique(self.prompts[here])[::2])
        return first, ~first
