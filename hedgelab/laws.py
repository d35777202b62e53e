"""Next-token laws as arrays: the checks that all acceptance rules share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["at_token", "checked_laws", "on_path"]


def checked_laws(**laws: ArrayLike) -> list[NDArray[np.float64]]:
    """Return the laws (..., V) as float64. Raises ValueError naming one that is no law, or other vocabularies.

    Sums may miss 1 by 1e-4: laws are often float32 softmaxes.

    >>> checked_laws(p=[0.5, 0.5])
    [array([0.5, 0.5])]
    """
    checked = []
    for name, law in laws.items():
        array = np.asarray(law, dtype=np.float64)
        if array.ndim < 1 or array.shape[-1] == 0:
            raise ValueError(f"{name} must have shape (..., V) with V >= 1, got {array.shape}")
        if not (np.isfinite(array).all() and (array >= 0).all()):
            raise ValueError(f"{name} holds entries that are no probabilities")
        total = array.sum(axis=-1)
        if not np.allclose(total, 1.0, atol=1e-4, rtol=0):
            worst = np.unravel_index(np.abs(total - 1).argmax(), total.shape)
            raise ValueError(f"{name}{list(map(int, worst))} sums to {total[worst]:g}, not to 1")
        checked.append(array)
    if len({array.shape[-1] for array in checked}) > 1:
        sizes = ", ".join(f"{name} {array.shape[-1]}" for name, array in zip(laws, checked, strict=True))
        raise ValueError(f"the laws have different vocabularies: {sizes}")
    return checked


def at_token(values: NDArray, token: ArrayLike, name: str) -> NDArray:
    """Return values (..., V) at token (...), broadcast over leading axes.

    Raises ValueError, with the argument's name, for tokens that are no integers in [0, V - 1].

    >>> at_token(np.array([0.5, 0.25, 0.25]), [0, 2], "token").tolist()
    [0.5, 0.25]
    """
    index = np.asarray(token)
    if not np.issubdtype(index.dtype, np.integer):
        raise ValueError(f"{name} must be integers, got dtype {index.dtype}")
    if ((index < 0) | (index >= values.shape[-1])).any():
        raise ValueError(f"{name} must lie in [0, {values.shape[-1] - 1}]")
    values, index = np.broadcast_arrays(values, index[..., None])
    return np.take_along_axis(values, index[..., :1], axis=-1)[..., 0]


def on_path(p: NDArray[np.float64], token: ArrayLike) -> NDArray[np.float64]:
    """Return p at the path's token. Raises ValueError where it is 0: no path sampled from p holds that token."""
    chance = at_token(p, token, "token")
    if (chance <= 0).any():
        raise ValueError("token has probability 0 under p: it cannot be on a path sampled from p")
    return chance
