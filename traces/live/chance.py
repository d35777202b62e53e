"""All randomness of a round: which id a law yields, and whether a draft is accepted.

A round asks a `Chance` and nothing else, so a test can put one in its place that goes through every outcome. `Coins` is
the one that decodes: its answers are a pure function of where they are asked for, see `hedgelab.coins`.
"""

from __future__ import annotations

from typing import Protocol

import torch
from numpy.typing import NDArray

from hedgelab.coins import COIN, DRAFT, TARGET, uniforms
from traces.sampling import Law, OneHot, draw

__all__ = ["Chance", "Coins"]

_FETCHED = 64  # places whose uniforms one call makes
_LIMIT = 2**16  # of nth and of replicates: both share the 32 bits of the generator's replicate


class Chance(Protocol):
    """place : the row of the token that is decided about. nth : tells apart what one place is asked for repeatedly."""

    def draw(self, law: Law, place: int, stream: int, nth: int = 0) -> int:
        """Return an id of a law of one row. stream : TARGET for the target's token, DRAFT for a draft."""

    def accept(self, chance: float, place: int, nth: int = 0) -> bool:
        """Return True with probability `chance`."""


class Coins:
    """The coins of one text: of a seed, its sequence in the trace, and a replicate below 2^16.

    draw(TARGET) at row t takes the uniform at position t + 1, of replicate 0 whatever this one's is, as a recording
    does; so the first token is drawn at place -1. accept(nth=0) takes the coin of the row, as a replay of this
    replicate does. Drafts have a stream of their own. An nth of 1 or more takes the same stream's replicate + 2^16 nth,
    nth < 2^16: no two of (stream, place, nth) share a uniform, and none meets those of a replay with a replicate below
    2^16.

    >>> coins = Coins(seed=0, sequence=3)
    >>> coins.accept(float(uniforms(0, COIN, 3, 10, 1)[0]), 10)  # accepted strictly below
    False
    """

    def __init__(self, seed: int, sequence: int, replicate: int = 0) -> None:
        if not 0 <= replicate < _LIMIT:
            raise ValueError(f"replicate must lie in [0, {_LIMIT}), got {replicate}")
        self._seed, self._sequence, self._replicate = seed, sequence, replicate
        # by (stream, nth): the first position that is held, and the uniforms from there on
        self._held: dict[tuple[int, int], tuple[int, NDArray]] = {}

    def draw(self, law: Law, place: int, stream: int, nth: int = 0) -> int:
        """Return an id of a law of one row, by inverse CDF."""
        if law.size != 1:
            raise ValueError(f"place {place}: an id is drawn from a law of one row, this one has {law.size}")
        uniform = self._uniform(stream, place + 1 if stream == TARGET else place, nth)
        device = law.token.device if isinstance(law, OneHot) else law.probs.device
        return int(draw(law, torch.tensor([uniform], dtype=torch.float64, device=device)))

    def accept(self, chance: float, place: int, nth: int = 0) -> bool:
        """Return whether the coin of this place lies below `chance`."""
        return self._uniform(COIN, place, nth) < chance

    def _uniform(self, stream: int, position: int, nth: int) -> float:
        if stream not in (COIN, TARGET, DRAFT):
            raise ValueError(f"stream is {stream}; allowed: {COIN} (COIN), {TARGET} (TARGET), {DRAFT} (DRAFT)")
        if not 0 <= nth < _LIMIT:
            raise ValueError(f"nth must lie in [0, {_LIMIT}), got {nth}")
        first, found = self._held.get((stream, nth), (0, None))
        if found is None or not 0 <= position - first < _FETCHED:
            replicate = (0 if stream == TARGET else self._replicate) + _LIMIT * nth
            first, found = position, uniforms(self._seed, stream, self._sequence, position, _FETCHED, replicate)
            self._held[stream, nth] = first, found
        return float(found[position - first])
