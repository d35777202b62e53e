"""alpha and gamma by definition: enumeration, the named rules, and the interval from truncated records."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgelab import acceptance

P, Q = [0.6, 0.2, 0.1, 0.1], [0.7, 0.2, 0.05, 0.05]


def laws(size=5):
    """A random law over `size` tokens, often with zeros or a single token."""
    weight = st.one_of(st.just(0.0), st.floats(1e-6, 1.0))
    return (
        st.lists(weight, min_size=size, max_size=size).filter(lambda w: sum(w) > 0).map(lambda w: np.array(w) / sum(w))
    )


def test_three_rules_have_three_values():
    # case B4
    assert acceptance.chain(P, Q, 0)[1] == pytest.approx(0.9)
    assert acceptance.one_hot(P, int(np.argmax(Q)), 0)[1] == pytest.approx(0.6)
    assert acceptance.independent(P, Q, 0)[1] == pytest.approx(0.47)


@given(laws(), laws())
def test_gamma_is_the_mean_of_alpha(p, q):
    path = np.flatnonzero(p > 0)
    for rule in (acceptance.chain, acceptance.independent):
        alpha, gamma = rule(np.tile(p, (len(path), 1)), q, path)
        assert (p[path] * alpha).sum() == pytest.approx(gamma[0], abs=1e-12)
    for draft in range(5):
        alpha, gamma = acceptance.one_hot(np.tile(p, (len(path), 1)), draft, path)
        assert (p[path] * alpha).sum() == pytest.approx(gamma[0], abs=1e-12)


@given(laws(), laws())
def test_chain_by_enumerating_the_rejection_sampler(p, q):
    # joint law of (output, accepted): draft y ~ q, accept with min(1, p/q), else resample from (p - q)+
    joint = np.zeros((5, 2))
    residual = np.maximum(p - q, 0)
    for y, accepted in itertools.product(range(5), (0, 1)):
        if q[y] == 0:
            continue
        keep = min(1.0, p[y] / q[y])
        if accepted:
            joint[y, 1] += q[y] * keep
        elif keep < 1:
            joint[:, 0] += q[y] * (1 - keep) * residual / residual.sum()
    np.testing.assert_allclose(joint.sum(axis=1), p, atol=1e-12)  # lossless
    gamma = acceptance.chain(p, q, int(p.argmax()))[1]
    assert joint[:, 1].sum() == pytest.approx(gamma, abs=1e-12)
    for x in np.flatnonzero(p > 1e-9):
        # given the output, it was an accepted draft with probability alpha
        assert acceptance.chain(p, q, x)[0] == pytest.approx(joint[x, 1] / p[x], abs=1e-6)


def test_equal_laws_and_one_hot_laws():
    # case C3: p = q leaves no residual; one-hot q; q(x) = 0
    assert [float(x) for x in acceptance.chain(P, P, 1)] == [1.0, pytest.approx(1.0)]
    assert [float(x) for x in acceptance.chain([0, 1.0], [0, 1.0], 1)] == [1.0, 1.0]
    assert [float(x) for x in acceptance.chain([0.25, 0.75], [1.0, 0], 1)] == [0.0, 0.25]


@given(laws(12), laws(12), st.integers(1, 12))
def test_interval_contains_gamma(p, q, m):
    top = np.argsort(-p, kind="stable")[:m]
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p[top]).astype(np.float32), np.log(q[top]).astype(np.float32)
    tail_p, tail_q = (np.float32(max(0.0, 1 - law[top].sum())) for law in (p, q))
    low, high = acceptance.gamma_interval(log_p, log_q, tail_p, tail_q)
    gamma = min(1.0, np.minimum(p, q).sum())
    assert low <= gamma <= high
    assert high - low <= min(tail_p, tail_q) + 5e-6


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.5, 0.6], [0.5, 0.5], 0), "p.* sums to 1.1"),
        (([0.5, 0.5], [0.5, np.nan], 0), "q holds entries that are no probabilities"),
        (([0.5, 0.5], [-0.5, 1.5], 0), "q holds"),
        (([0.5, 0.5], [0.2, 0.2, 0.6], 0), "different vocabularies: p 2, q 3"),
        (([0.5, 0.5], [0.5, 0.5], 2), r"token must lie in \[0, 1\]"),
        (([0.5, 0.5], [0.5, 0.5], 0.5), "integers"),
        (([1.0, 0.0], [0.5, 0.5], 1), "probability 0 under p"),
        ((1.0, [0.5, 0.5], 1), "shape"),
    ],
)
def test_bad_laws(arguments, words):
    with pytest.raises(ValueError, match=words):
        acceptance.chain(*arguments)
