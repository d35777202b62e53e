r"""Expected committed length of a round, three estimators from one verified path.

A round that starts at row t with draft length k commits Y tokens in 1..k+1. With a_j, g_j the alpha and gamma of its
j-th draft:

    plug-in A          1 + sum_{m<=k} prod_{j<=m} g_j                 biased at target temperature > 0
    realised B         1 + sum_{m<=k} prod_{j<=m} a_j                 = E[Y | path], unbiased
    Rao-Blackwell C    1 + sum_{m<=k} (prod_{j<m} a_j) g_m            unbiased

A is the published formula (arXiv 2510.20064); it is exact where gamma does not depend on the path, so for greedy
targets. Where a path has left a draft tree, gamma is undefined: use B or C.
"""

from __future__ import annotations

import numpy as np

from hedgelab._jit import kernel

__all__ = ["ESTIMATORS", "committed_lengths"]

ESTIMATORS = ("A", "B", "C")


@kernel
def committed_lengths(
    alpha_flat, gamma_flat, alpha_deep, gamma_deep, row, k, estimator, flat_columns, deep_columns, out
):
    """Write each drafter's estimate for a round that starts at `row` into `out` (N,), in tokens, 1..k+1.

    alpha_flat, gamma_flat : (T, N1), drafters whose acceptance depends on the prefix only
    alpha_deep, gamma_deep : (T, K, N2), entry [t, d]: row t as the d-th draft of a round that began at t - d
    estimator : index into ESTIMATORS; rows `row` to `row + k - 1` must belong to one sequence
    """
    for column in range(flat_columns.shape[0]):
        reach = 1.0
        length = 1.0
        for d in range(k):
            if estimator == 0:
                reach *= np.float64(gamma_flat[row + d, column])
                length += reach
            elif estimator == 1:
                reach *= np.float64(alpha_flat[row + d, column])
                length += reach
            else:
                length += reach * np.float64(gamma_flat[row + d, column])
                reach *= np.float64(alpha_flat[row + d, column])
        out[flat_columns[column]] = length
    for column in range(deep_columns.shape[0]):
        reach = 1.0
        length = 1.0
        for d in range(k):
            if estimator == 0:
                reach *= np.float64(gamma_deep[row + d, d, column])
                length += reach
            elif estimator == 1:
                reach *= np.float64(alpha_deep[row + d, d, column])
                length += reach
            else:
                if reach == 0.0:  # gamma may be undefined from here on
                    break
                length += reach * np.float64(gamma_deep[row + d, d, column])
                reach *= np.float64(alpha_deep[row + d, d, column])
        out[deep_columns[column]] = length
