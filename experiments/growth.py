r"""How a quantity grows with the number of drafters N: exponents and competing laws, by weighted least squares."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.bounds import mean_max_normal

__all__ = ["aic", "law", "power_aic", "scale", "slope"]

Vector = NDArray[np.float64]


def law(name: str, drafters: ArrayLike) -> Vector:
    """Return a law of growth at each N (P,): sqrt N, sqrt(N ln N), sqrt(ln N), ln N, or the mean largest of N standard
    normal variables (max_normal).

    >>> law("sqrt_n", [4, 9]).tolist()
    [2.0, 3.0]
    """
    n = np.asarray(drafters, np.float64)
    if name == "max_normal":
        return np.array([mean_max_normal(int(each)) for each in n])
    laws = {"sqrt_n": n, "sqrt_n_log_n": n * np.log(n), "sqrt_log_n": np.log(n), "log_n": np.log(n) ** 2}
    return np.sqrt(laws[name])


def slope(x: ArrayLike, values: ArrayLike, weights: ArrayLike) -> Vector:
    """Return b of values = a x^b, (...), by weighted least squares on logarithms; NaN where a value is not positive.

    x : (P,) positive. values : (..., P). weights : (P,) one over the variance of each logarithm, or in proportion

    >>> round(float(slope([1, 2, 4], [3, 6, 12], [1, 1, 1])), 9)
    1.0
    """
    positive = np.asarray(values, np.float64)
    logs = np.log(np.where(positive > 0, positive, np.nan))
    w = np.asarray(weights, np.float64) / np.sum(weights)
    u = np.log(np.asarray(x, np.float64))
    centred = u - w @ u
    return np.asarray(logs @ (w * centred) / (w @ centred**2))


def scale(shape: ArrayLike, values: ArrayLike, variances: ArrayLike) -> Vector:
    """Return a of values = a shape, (...): weighted least squares; values (..., P), variances (P,) of its errors."""
    f, v = np.asarray(shape, np.float64), np.asarray(variances, np.float64)
    return np.asarray(np.asarray(values, np.float64) @ (f / v) / (f @ (f / v)))


def aic(shape: ArrayLike, values: ArrayLike, variances: ArrayLike, parameters: int = 1) -> Vector:
    r"""Return Akaike's criterion of values = a shape, (...), smaller is better.

        sum_p (values_p - a shape_p)^2 / variance_p + 2 parameters

    -2 log likelihood of normal errors of known variance, less a constant that is the same for all laws (Akaike 1974).
    shape, variances : (P,). values : (..., P)

    >>> float(aic([1, 2, 3], [2, 4, 6], [1, 1, 1]))
    2.0
    """
    f, y = np.asarray(shape, np.float64), np.asarray(values, np.float64)
    left = y - scale(f, y, variances)[..., None] * f
    return np.asarray((left**2 / np.asarray(variances, np.float64)).sum(axis=-1) + 2 * parameters)


def power_aic(drafters: ArrayLike, values: ArrayLike, variances: ArrayLike) -> tuple[float, float]:
    """Return (AIC, b) of values = a N^b, two parameters, b in [-1, 3] to within 0.001. All (P,)."""
    n = np.asarray(drafters, np.float64)
    found = [(float(aic(n**b, values, variances, 2)), float(b)) for b in np.linspace(-1, 3, 4001)]
    return min(found, default=(math.nan, math.nan))
