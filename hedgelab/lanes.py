"""Reductions in eight explicit lanes: fast, and in a fixed order.

A strict sum cannot be reordered by the compiler, so it runs one addition at a time; a fast-math sum runs in an order
that nobody knows. Eight accumulators written out give SIMD speed and the same bits as the plain Python function.
"""

from __future__ import annotations

from hedgelab._jit import kernel

__all__ = ["count_outside", "lane_dot", "lane_max", "lane_min", "lane_moments", "lane_sum", "normalise"]


@kernel
def lane_sum(x):
    """Return the sum of x (n,)."""
    n = x.shape[0]
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    whole = n - n % 8
    for i in range(0, whole, 8):
        s0 += x[i]
        s1 += x[i + 1]
        s2 += x[i + 2]
        s3 += x[i + 3]
        s4 += x[i + 4]
        s5 += x[i + 5]
        s6 += x[i + 6]
        s7 += x[i + 7]
    for i in range(whole, n):
        s0 += x[i]
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@kernel
def count_outside(x, low, high):
    """Return how many entries of x (n,) do not lie in [low, high]; NaN does not."""
    outside = 0
    for i in range(x.shape[0]):
        outside += not (low <= x[i]) & (x[i] <= high)
    return outside


@kernel
def normalise(x):
    """Divide x (n,) by its sum, which must not be 0."""
    scale = 1.0 / lane_sum(x)
    for i in range(x.shape[0]):
        x[i] *= scale


@kernel
def lane_dot(x, y):
    """Return the inner product of x (n,) and y (n,)."""
    n = x.shape[0]
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    whole = n - n % 8
    for i in range(0, whole, 8):
        s0 += x[i] * y[i]
        s1 += x[i + 1] * y[i + 1]
        s2 += x[i + 2] * y[i + 2]
        s3 += x[i + 3] * y[i + 3]
        s4 += x[i + 4] * y[i + 4]
        s5 += x[i + 5] * y[i + 5]
        s6 += x[i + 6] * y[i + 6]
        s7 += x[i + 7] * y[i + 7]
    for i in range(whole, n):
        s0 += x[i] * y[i]
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@kernel
def lane_moments(weight, value):
    """Return (sum w x, sum w x^2) of weight w and value x, both (n,), in four lanes each."""
    n = weight.shape[0]
    a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = 0.0
    whole = n - n % 4
    for i in range(0, whole, 4):
        x0, x1, x2, x3 = value[i], value[i + 1], value[i + 2], value[i + 3]
        w0, w1, w2, w3 = weight[i] * x0, weight[i + 1] * x1, weight[i + 2] * x2, weight[i + 3] * x3
        a0 += w0
        a1 += w1
        a2 += w2
        a3 += w3
        b0 += w0 * x0
        b1 += w1 * x1
        b2 += w2 * x2
        b3 += w3 * x3
    for i in range(whole, n):
        w0 = weight[i] * value[i]
        a0 += w0
        b0 += w0 * value[i]
    return (a0 + a1) + (a2 + a3), (b0 + b1) + (b2 + b3)


@kernel
def lane_max(x):
    """Return the largest entry of x (n,), n >= 1, without NaN."""
    n = x.shape[0]
    m0 = m1 = m2 = m3 = x[0]
    whole = n - n % 4
    for i in range(0, whole, 4):
        m0 = x[i] if x[i] > m0 else m0
        m1 = x[i + 1] if x[i + 1] > m1 else m1
        m2 = x[i + 2] if x[i + 2] > m2 else m2
        m3 = x[i + 3] if x[i + 3] > m3 else m3
    for i in range(whole, n):
        m0 = x[i] if x[i] > m0 else m0
    m0 = m1 if m1 > m0 else m0
    m2 = m3 if m3 > m2 else m2
    return m2 if m2 > m0 else m0


@kernel
def lane_min(x):
    """Return the smallest entry of x (n,), n >= 1, without NaN."""
    n = x.shape[0]
    m0 = m1 = m2 = m3 = x[0]
    whole = n - n % 4
    for i in range(0, whole, 4):
        m0 = x[i] if x[i] < m0 else m0
        m1 = x[i + 1] if x[i + 1] < m1 else m1
        m2 = x[i + 2] if x[i + 2] < m2 else m2
        m3 = x[i + 3] if x[i + 3] < m3 else m3
    for i in range(whole, n):
        m0 = x[i] if x[i] < m0 else m0
    m0 = m1 if m1 < m0 else m0
    m2 = m3 if m3 < m2 else m2
    return m2 if m2 < m0 else m0
