"""Uniforms that are a pure function of where they are used.

One uniform per (seed, stream, sequence, position, replicate): every policy, drafter, depth and draft length meets
the same coins, and a part of a trace meets the same coins as the whole, in any order and on any host. The generator is
Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"), written for int64
arithmetic so that compiled code and plain Python agree to the bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hedgelab._jit import kernel

__all__ = ["COIN", "DRAFT", "TARGET", "fill", "uniforms"]

COIN = 0  # stream of the acceptance coins
TARGET = 1  # stream of the target's own sampling
DRAFT = 2  # stream of drafts

_LOW = 0xFFFFFFFF


@kernel
def _philox(c0, c1, c2, c3, k0, k1):
    for _ in range(10):
        # int64 products wrap, but shift and mask recover both halves; Python's integers do not wrap and agree
        product0 = 0xD2511F53 * c0
        product1 = 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            ((product1 >> 32) & _LOW) ^ c1 ^ k0,
            product1 & _LOW,
            ((product0 >> 32) & _LOW) ^ c3 ^ k1,
            product0 & _LOW,
        )
        k0 = (k0 + 0x9E3779B9) & _LOW
        k1 = (k1 + 0xBB67AE85) & _LOW
    return c0, c1, c2, c3


@kernel
def fill(seed, stream, sequence, start, replicate, out):
    """Write the uniforms of positions start, start + 1, ... into `out`; all arguments are non-negative int64.

    A Philox block makes two of them. Its counter is (position // 2, replicate, sequence low, sequence high), its key
    (seed low, seed high xor stream): distinct for seed < 2^56, position and replicate < 2^32, stream < 2^8.
    """
    sequence = int(sequence)  # a numpy scalar would overflow with a warning in plain Python
    block = -1
    even = 0.0
    odd = 0.0
    for i in range(out.shape[0]):
        position = start + i
        if position >> 1 != block:
            block = position >> 1
            a, b, c, d = _philox(
                block & _LOW,
                replicate & _LOW,
                sequence & _LOW,
                (sequence >> 32) & _LOW,
                seed & _LOW,
                ((seed >> 32) & _LOW) ^ (stream << 24),
            )
            # 53 bits, as numpy.random takes them
            even = ((a >> 5) * 67108864.0 + (b >> 6)) * 1.1102230246251565e-16
            odd = ((c >> 5) * 67108864.0 + (d >> 6)) * 1.1102230246251565e-16
        out[i] = odd if position & 1 else even


def uniforms(seed: int, stream: int, sequence: int, start: int, count: int, replicate: int = 0) -> NDArray[np.float64]:
    """Return the `count` uniforms in [0, 1) at positions start, start + 1, ... of a sequence.

    Raises ValueError outside 0 <= seed < 2^56, 0 <= stream < 2^8, 0 <= sequence < 2^63, or where a position or the
    replicate leaves [0, 2^32).

    >>> uniforms(0, COIN, 3, 10, 4)[2] == uniforms(0, COIN, 3, 12, 1)[0]
    np.True_
    """
    for name, value, limit in (
        ("seed", seed, 2**56),
        ("stream", stream, 2**8),
        ("sequence", sequence, 2**63),
        ("start", start, 2**32),
        ("start + count", start + count, 2**32 + 1),
        ("replicate", replicate, 2**32),
        ("count", count, 2**32 + 1),
    ):
        if not 0 <= value < limit:
            raise ValueError(f"{name} must lie in [0, {limit}), got {value}")
    out = np.empty(count)
    fill(seed, stream, sequence, start, replicate, out)
    return out
