"""The estimators of committed length, vectorised: against the formulas written out, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgelab import lengths
from hedgelab._jit import uncompiled


def naive(estimator, alpha, gamma, t, k, i):
    """One estimate, by its formula: products over drafts, one term after another."""

    def a(j):
        return float(alpha[t + j, j if alpha.shape[1] > 1 else 0, i])

    def g(j):
        return float(gamma[t + j, j if gamma.shape[1] > 1 else 0, i])

    total = 1.0
    for m in range(1, k + 1):
        accepted = np.prod([a(j) for j in range(m - 1)]) if estimator != "A" else np.prod([g(j) for j in range(m - 1)])
        if accepted > 0:  # else gamma may be undefined
            total += accepted * (a(m - 1) if estimator == "B" else g(m - 1))
    return total


def arrays(seed, T, D, N, dtype=np.float64):
    """Random alpha and gamma with some exact 0 and 1."""
    rng = np.random.default_rng(seed)
    alpha, gamma = np.clip(rng.uniform(-0.4, 1.4, (2, T, D, N)), 0, 1).astype(dtype)
    return alpha, gamma


def every(alpha, gamma, k, **options):
    return {
        "A": lengths.plug_in(gamma, k, **options),
        "B": lengths.realised(alpha, k, **options),
        "C": lengths.rao_blackwell(alpha, gamma, k, **options),
    }


@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 9),
    k=st.integers(1, 4),
    deep=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_estimators_agree_with_their_formulas(seed, rows, k, deep, dtype):
    alpha, gamma = arrays(seed, rows, k + 1 if deep else 1, 3, dtype)
    for estimator, values in every(alpha, gamma, k).items():
        assert values.shape == (max(0, rows - k + 1), 3)
        assert ((values >= 1) & (values <= k + 1)).all()
        for t, i in np.ndindex(values.shape):
            assert values[t, i] == pytest.approx(naive(estimator, alpha, gamma, t, k, i), rel=1e-14)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_plug_in_is_the_published_sum(gammas):
    k = len(gammas)
    g = [*gammas, 0.0]
    published = sum((m + 1) * (1 - g[m]) * np.prod(g[:m]) for m in range(k + 1))
    assert lengths.plug_in(np.array(gammas)[:, None], k)[0, 0] == pytest.approx(published, abs=1e-12)


def test_depth_one_is_the_same_at_every_depth():
    alpha, gamma = arrays(0, 12, 1, 2)
    deep = [np.repeat(values, 5, axis=1) for values in (alpha, gamma)]
    flat = [values[:, 0] for values in (alpha, gamma)]  # (T, N)
    for k in (1, 4):
        for estimator, values in every(alpha, gamma, k).items():
            np.testing.assert_array_equal(values, every(*deep, k)[estimator])
            np.testing.assert_array_equal(values, every(*flat, k)[estimator])


def test_certain_acceptance_and_certain_rejection():
    ones, zeros = np.ones((5, 2)), np.zeros((5, 2))
    for k in range(1, 6):
        for sure, value in ((ones, k + 1), (zeros, 1)):
            for values in every(sure, sure, k).values():
                assert (values == value).all()


def test_windows_never_cross_a_sequence_end():
    alpha, gamma = arrays(1, 10, 1, 2)
    offsets, k = [0, 4, 4, 5, 10], 3
    whole = every(alpha, gamma, k)
    for estimator, values in every(alpha, gamma, k, offsets=offsets).items():
        inside = [0, 1, 5, 6, 7]
        np.testing.assert_array_equal(values[inside], whole[estimator][inside])
        assert np.isnan(np.delete(values, inside, axis=0)).all()
        assert values.shape == (8, 2)
        parts = every(alpha[5:], gamma[5:], k)[estimator]
        np.testing.assert_array_equal(values[5:], parts)
    for k in (10, 11, 99):
        for values in every(alpha, gamma, k).values():
            assert values.shape == (max(0, 11 - k), 2)
    assert every(np.empty((0, 1, 2)), np.empty((0, 1, 2)), 1, offsets=[0, 0])["C"].shape == (0, 2)


def test_undefined_gamma_is_read_only_where_the_path_is_still_in_the_tree():
    alpha = np.array([[[1.0], [0.0]], [[1.0], [0.0]], [[0.0], [1.0]]])
    gamma = np.array([[[0.5], [np.nan]], [[0.25], [0.75]], [[0.5], [0.5]]])
    # from row 0: accepted, then gamma .75 at depth 1; from row 1: accepted, then .5
    np.testing.assert_array_equal(lengths.rao_blackwell(alpha, gamma, 2).ravel(), [2.25, 1.75])
    left = gamma.copy()
    left[2, 1] = np.nan
    alpha[1, 0] = 0.0  # the path leaves the tree at row 1: gamma of the next row is not needed
    np.testing.assert_array_equal(lengths.rao_blackwell(alpha, left, 2).ravel(), [2.25, 1.25])
    with pytest.raises(ValueError, match="row 1, drafter 0: gamma is undefined"):
        lengths.plug_in(left, 2)
    np.testing.assert_array_equal(lengths.plug_in(gamma, 2).ravel(), [1.875, 1.375])  # NaN where no round reads it
    alpha[1, 0] = 0.5
    with pytest.raises(ValueError, match="undefined"):
        lengths.rao_blackwell(alpha, left, 2)
    # and where all depths are one
    np.testing.assert_array_equal(lengths.rao_blackwell([[0.0], [1.0]], [[0.5], [np.nan]], 2), [[1.5]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a, g: lengths.realised(a + 1, 2), r"alpha\[0, 0, 0\] is .*; allowed: \[0, 1\]$"),
        (lambda a, g: lengths.realised(a * np.nan, 2), "alpha.* is nan"),
        (lambda a, g: lengths.plug_in(-g - 0.1, 2), r"gamma.*allowed: \[0, 1\] or NaN"),
        (lambda a, g: lengths.rao_blackwell(a, g, 0), "k must be a whole number"),
        (lambda a, g: lengths.rao_blackwell(a, g, 1.5), "k must be a whole number"),
        (lambda a, g: lengths.rao_blackwell(a, g, 4), "D >= k = 4 depths"),
        (lambda a, g: lengths.rao_blackwell(a[1:], g, 2), r"agree in \(T, N\)"),
        (lambda a, g: lengths.realised(a[0, 0], 2), "alpha must be"),
        (lambda a, g: lengths.realised(a, 2, offsets=[0, 5]), "from 0 to T = 6"),
        (lambda a, g: lengths.realised(a, 2, offsets=[0, 4, 3, 6]), "must not descend"),
        (lambda a, g: lengths.realised(a, 2, offsets=[0.0, 6.0]), "offsets must be integers"),
        (lambda a, g: lengths.censored(a, g, 2, [1, 2, 3, 4, 5]), r"ends must be integers \(6,\)"),
        (lambda a, g: lengths.censored(a, g, 2, [0, 2, 3, 4, 5, 6]), "ends.* must lie"),
        (lambda a, g: lengths.censored(a, g, 2, [7] * 6), "ends.* must lie"),
        (lambda a, g: lengths.censored(a, None, 2, [6] * 6), "estimator C needs alpha and gamma"),
        (lambda a, g: lengths.censored(a, g, 2, [6] * 6, estimator="D"), "estimator must be one of"),
    ],
)
def test_what_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call(*arrays(2, 6, 3, 2))


def test_censored_estimates_stop_at_the_chunk():
    alpha, gamma = arrays(3, 9, 4, 2)
    ends, k = np.array([1, 4, 4, 4, 9, 9, 9, 9, 9]), 3
    for estimator in lengths.ESTIMATORS:
        values = lengths.censored(alpha, gamma, k, ends, estimator=estimator)
        for t, i in np.ndindex(values.shape):
            terms = min(k, ends[t] - t)
            assert values[t, i] == pytest.approx(naive(estimator, alpha, gamma, t, terms, i), rel=1e-14)
        # with nothing cut off it is the estimate itself
        np.testing.assert_array_equal(
            lengths.censored(alpha, gamma, k, np.full(9, 9), estimator=estimator)[:7], every(alpha, gamma, k)[estimator]
        )
    np.testing.assert_array_equal(
        lengths.censored(alpha, None, k, ends, estimator="B"), lengths.censored(alpha, gamma, k, ends, estimator="B")
    )
    np.testing.assert_array_equal(
        lengths.censored(None, gamma, k, ends, estimator="A"), lengths.censored(alpha, gamma, k, ends, estimator="A")
    )


def test_plain_and_compiled_give_the_same_bits():
    alpha, gamma = arrays(4, 8, 3, 4)
    drafts = np.array([3, 2, -1, 3, 1])
    for estimator in range(3):
        results = []
        for function in (lengths._compiled_lengths(), uncompiled(lengths._lengths)):
            out = np.empty((5, 4))
            function(alpha, gamma, drafts, estimator, out)
            results.append(out)
        np.testing.assert_array_equal(*results)
