"""alpha and gamma by definition: enumeration, the named rules, and the intervals from truncated records."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hedgelab as hl
from hedgelab import acceptance
from hedgelab._jit import uncompiled
from hedgelab.recursive_rejection import without_replacement
from hedgelab.token_worlds import sampler_law

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


def alpha_gamma(rule, p, q, drafts, replacement):
    """alpha at every token on a path from p, and gamma, by the rule's formula."""
    path = np.flatnonzero(p > 0)
    if rule == "one_hot":
        return path, *acceptance.one_hot(p, int(q.argmax()), path)
    if rule == "recursive":
        return path, *acceptance.recursive(p, q, path, drafts, replacement)
    return path, *getattr(acceptance, rule)(p, q, path)


@pytest.mark.parametrize("rule", ["chain", "one_hot", "tree", "independent", "recursive", "recursive distinct"])
@given(p=laws(4), q=laws(4), drafts=st.integers(1, 4))
@settings(max_examples=20)
@example(p=np.array(P), q=np.array(P), drafts=3)
@example(p=np.array([1.0, 0, 0, 0]), q=np.array([0, 1.0, 0, 0]), drafts=4)
@example(p=np.array([0.0, 0.3, 0.3, 0.4]), q=np.array([1 - 2e-9, 1e-9, 1e-9, 0]), drafts=4)
def test_rules_against_the_enumerated_sampler(rule, p, q, drafts):
    """Output ~ p; given the output, it was an accepted draft with probability alpha; gamma is the mean of alpha."""
    replacement = rule != "recursive distinct"
    rule = rule.split()[0]
    if rule == "one_hot":
        q = np.eye(4)[q.argmax()]
    if rule == "tree":
        q = q > 0.2
    joint = sampler_law(rule, p, q, drafts=drafts, replacement=replacement)
    np.testing.assert_allclose(joint.sum(axis=1), p, atol=1e-12)
    path, alpha, gamma = alpha_gamma(rule, p, q, drafts, replacement)
    np.testing.assert_allclose(p[path] * alpha, joint[path, 1], atol=1e-12)
    np.testing.assert_allclose(gamma, joint[:, 1].sum(), atol=1e-12)
    assert (p[path] * alpha).sum() == pytest.approx(np.ravel(gamma)[0], abs=1e-12)
    assert ((alpha >= 0) & (alpha <= 1)).all()


@given(laws(), laws(), st.integers(1, 6))
@settings(max_examples=50)
def test_recursive_rejection_by_its_residuals(p, q, drafts):
    # the textbook form: alpha(x) = sum_j prod_{l<j} (1 - gamma_l) min(p_j(x), q(x)) / p(x)
    residual, reach, accepted = p, 1.0, np.zeros(5)
    for _ in range(drafts):
        accepted += reach * np.minimum(residual, q)
        rest = np.maximum(residual - q, 0)
        reach *= 1 - np.minimum(residual, q).sum()
        if rest.sum() < 1e-13:
            break
        residual = rest / rest.sum()
    path = np.flatnonzero(p > 0)
    alpha, gamma = acceptance.recursive(p, q, path, drafts)
    np.testing.assert_allclose(p[path] * alpha, accepted[path], atol=1e-12)
    assert gamma == pytest.approx(accepted.sum(), abs=1e-12)


@given(laws(), laws())
@settings(max_examples=40)
def test_more_drafts_and_distinct_drafts_are_accepted_more(p, q):
    path = np.flatnonzero(p > 0)
    before = acceptance.chain(p, q, path)
    for drafts in (1, 2, 3):
        repeated = acceptance.recursive(p, q, path, drafts)
        distinct = acceptance.recursive(p, q, path, drafts, replacement=False)
        for now, more, less in zip(repeated, distinct, before, strict=True):
            assert (less <= now + 1e-12).all()
            assert (now <= more + 1e-12).all()
            if drafts == 1:
                np.testing.assert_allclose(now, less, atol=1e-12)
                np.testing.assert_allclose(more, less, atol=1e-12)
        before = repeated


def accepted_in_fractions(p, q, drafts, replacement):
    """P(output = x, accepted) as fractions, by enumeration of the sampler."""
    accepted = [Fraction(0)] * len(p)

    def look_at(p, q, left, chance):
        if left == 0 or not any(q):
            return
        residual = [max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True)]
        for draft in range(len(p)):
            if q[draft] == 0:
                continue
            keep = min(Fraction(1), p[draft] / q[draft])
            accepted[draft] += chance * q[draft] * keep
            if keep < 1:
                rest = [0 if v == draft and not replacement else q[v] for v in range(len(q))]
                rest = [value / sum(rest) for value in rest] if any(rest) else rest
                look_at([v / sum(residual) for v in residual], rest, left - 1, chance * q[draft] * (1 - keep))

    look_at(p, q, drafts, Fraction(1))
    return accepted


@pytest.mark.parametrize("seed", range(8))
def test_recursive_rejection_in_exact_arithmetic(seed):
    """Laws that nearly agree, tiny entries: residuals are then differences of almost equal numbers."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(4, 0.3))
    q = np.abs(p * (1 + 10.0 ** -rng.integers(1, 10) * rng.normal(size=4))) + 10.0 ** -rng.integers(2, 13, 4)
    path = np.flatnonzero(p > 0)
    of_p, of_q = ([Fraction(v) / sum(map(Fraction, law)) for v in law] for law in (p, q))
    for replacement in (True, False):
        accepted = accepted_in_fractions(of_p, of_q, 3, replacement)
        alpha, gamma = acceptance.recursive(p, q / q.sum(), path, 3, replacement)
        np.testing.assert_allclose(gamma, float(sum(accepted)), atol=4e-15)
        np.testing.assert_allclose(alpha, [float(accepted[x] / of_p[x]) for x in path], atol=4e-15)


def test_residual_depends_on_the_order_of_the_rejected_drafts():
    # so states can't be shared by set: after (0, 1) another law is left than after (1, 0), third draft on
    p, q = np.array([0, 0, 0.15, 0.15, 0.7]), np.array([0.7, 0.15, 0.05, 0, 0.1])
    left = []
    for order in ((0, 1), (1, 0)):
        residual, without = p, q.copy()
        for token in (*order, None):
            law = without / without.sum()
            residual = np.maximum(residual - law, 0)
            residual /= residual.sum()
            if token is not None:
                without[token] = 0
        left.append(residual)
    assert abs(left[0] - left[1]).max() > 0.1


def test_exhausted_drafter_goes_on_with_fewer_drafts():
    p = np.array([0.2, 0.3, 0.5])
    for q in ([1.0, 0, 0], [0.9, 0.1, 0]):
        n = np.count_nonzero(q)
        enough = acceptance.recursive(p, q, [0, 1, 2], n, replacement=False)
        for drafts in (n + 1, 3, 1000):
            for value, same in zip(
                acceptance.recursive(p, q, [0, 1, 2], drafts, replacement=False), enough, strict=True
            ):
                np.testing.assert_array_equal(value, same)
        # rows of a batch may be exhausted at different drafts
        both = acceptance.recursive(p, np.array([q, [0.1, 0.2, 0.7]]), 2, 3, replacement=False)
        assert both[1][0] == pytest.approx(enough[1][0], abs=1e-15)
        assert both[1][1] == pytest.approx(1.0)  # every token was drafted, one of them is accepted
    # i.i.d. drafts never run out, but the same token drafted again is of no use
    assert acceptance.recursive(p, [1.0, 0, 0], 0, 50)[1] == pytest.approx(0.2)


def test_every_token_drafted_is_not_always_accepted():
    # without replacement over the whole support of q, gamma is 1 only where q covers p
    alpha, gamma = acceptance.recursive([0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0, 1, 2], 2, replacement=False)
    assert gamma[0] == pytest.approx(0.75)
    np.testing.assert_allclose(alpha, [1, 1, 0], atol=1e-15)


def test_recursive_rejection_broadcasts_and_scales():
    rng = np.random.default_rng(3)
    p, q = rng.dirichlet(np.ones(6), (3, 1)), rng.dirichlet(np.ones(6), 4)
    token = np.arange(6)[:, None, None]
    for replacement in (True, False):
        alpha, gamma = acceptance.recursive(p, q, token, 3, replacement)
        assert alpha.shape == (6, 3, 4)
        assert np.broadcast_shapes(gamma.shape, alpha.shape) == alpha.shape
        one = acceptance.recursive(p[1, 0], q[2], 5, 3, replacement)
        assert alpha[5, 1, 2] == one[0]
        assert np.broadcast_to(gamma, alpha.shape)[5, 1, 2] == one[1]
    # i.i.d. drafts have no limit of size; float32 laws that miss 1 by their rounding are taken as scaled
    p, q = (rng.dirichlet(np.full(50_000, 0.01), 2).astype(np.float32) for _ in range(2))
    alpha, gamma = acceptance.recursive(p, q, p.argmax(axis=-1), 8)
    assert ((gamma > acceptance.chain(p, q, p.argmax(axis=-1))[1]) & (gamma <= 1)).all()
    # the largest vocabulary without replacement
    p, q = rng.dirichlet(np.ones(64)), rng.dirichlet(np.ones(64))
    alpha, gamma = acceptance.recursive(p, q, np.arange(64), 2, replacement=False)
    assert (p * alpha).sum() == pytest.approx(gamma[0], abs=1e-12)


def test_search_over_rejected_drafts_plain_and_compiled_give_the_same_bits():
    rng = np.random.default_rng(4)
    p, q, token = rng.dirichlet(np.ones(5), 6), rng.dirichlet(np.ones(5), 6), rng.integers(0, 5, 6)
    results = []
    for function in (without_replacement, uncompiled(without_replacement)):
        alpha, gamma = np.empty((2, 6))
        function(p, q, token, 4, alpha, gamma)
        results.append([alpha.tolist(), gamma.tolist()])
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("size", "drafts", "words"),
    [
        (65, 2, "at most 64, got 65"),
        (64, 6, "6 drafts without replacement from 64 tokens need"),
        (3, 0, "drafts must be"),
    ],
)
def test_limits_without_replacement(size, drafts, words):
    law = np.full(size, 1 / size)
    with pytest.raises(ValueError, match=words):
        acceptance.recursive(law, law, 0, drafts, replacement=False)


def test_tree_takes_a_mask():
    assert [float(v) for v in acceptance.tree(P, np.zeros(4, bool), 0)] == [0.0, 0.0]  # a leaf
    assert [float(v) for v in acceptance.tree(P, np.ones(4, bool), 0)] == [1.0, pytest.approx(1.0)]
    for children in ([0, 1], [True, False], True):
        with pytest.raises(ValueError, match="children must be bool"):
            acceptance.tree(P, children, 0)


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


@given(laws(12), laws(12), st.integers(1, 12), st.integers(0, 11))
@settings(max_examples=50)
def test_intervals_hold_alpha_and_gamma(p, q, m, draft):
    top = np.argsort(-p, kind="stable")[:m]
    with np.errstate(divide="ignore"):
        log_p, log_q = np.log(p[top]).astype(np.float32), np.log(q[top]).astype(np.float32)
    tail_p, tail_q = (np.float32(max(0.0, 1 - law[top].sum())) for law in (p, q))
    path = np.flatnonzero(p > 0)
    held = np.isin(path, top)

    exact = acceptance.chain(p, q, path)
    blind = acceptance.chain_interval(top, log_p, log_q, tail_p, tail_q, path)
    told = acceptance.chain_interval(top, log_p, log_q, tail_p, tail_q, path, np.log(p[path]).astype(np.float32))
    for alpha, gamma in (blind, told):
        assert ((alpha[0] <= exact[0]) & (exact[0] <= alpha[1])).all()
        assert gamma[0] <= exact[1].max()
        assert exact[1].min() <= gamma[1]
        assert (alpha[1] - alpha[0] < 2e-5)[held].all()
    assert ((blind[0][0] == 0) & (blind[0][1] == 1))[~held].all()
    assert (told[0][1] <= np.minimum(1, (tail_q + 3e-6) / p[path]) + 1e-4)[~held].all()

    exact = acceptance.one_hot(p, draft, path)
    alpha, gamma = acceptance.one_hot_interval(top, log_p, tail_p, draft, path)
    assert (alpha[0] == exact[0]).all()
    assert (alpha[1] == exact[0]).all()
    assert gamma[0] <= exact[1] <= gamma[1]
    assert gamma[1] - gamma[0] < (5e-6 if draft in top else min(tail_p, p[top].min()) + 5e-6)

    children = np.isin(np.arange(12), top[::2])
    exact = acceptance.tree(p, children, path)
    alpha, gamma = acceptance.tree_interval(top, log_p, np.isin(top, top[::2]), path)
    assert (alpha[0] == exact[0]).all()
    assert (alpha[1] == exact[0]).all()
    assert gamma[0] <= exact[1] <= gamma[1] <= gamma[0] + 5e-6


def test_intervals_hold_what_was_recorded_on_the_full_vocabulary():
    trace = hl.sample_trace("logits")
    rows = trace.column("logit_row")
    ids, log_p, log_q = (trace.column(f"logit_{name}") for name in ("id", "p", "q"))
    tail_p, tail_q = trace.column("tail_p"), trace.column("tail_q")
    token, token_logprob = trace.token[rows], trace.target_logprob[rows]
    outside = ~(ids == token[:, None]).any(axis=1)
    for i, drafter in enumerate(trace.manifest.drafters):
        known = np.isfinite(tail_q[:, i])  # a drafter that proposes nothing has no q, and a tree is of tokens
        assert known.any() == (drafter.rule != "tree")
        alpha, gamma = acceptance.chain_interval(
            ids[known],
            log_p[known],
            log_q[known, i],
            tail_p[known],
            tail_q[known, i],
            token[known],
            token_logprob[known],
        )
        for (low, high), values in ((alpha, trace.alpha), (gamma, trace.gamma)):
            exact = values[rows[known], 0, i]
            stored = 7.7e-6  # the rounding of fixed16
            assert (low - stored <= exact).all(), drafter.name  # several drafts are accepted at least as often as one
            assert drafter.rule == "recursive" or (exact <= high + stored).all(), drafter.name
        assert (alpha[1] - alpha[0] < 1e-4)[~outside[known]].all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ids": [0.5, 1.5]}, "ids must be integers"),
        ({"log_p": [0.0]}, "log_p must have shape"),
        ({"log_q": [np.nan, 0.0]}, "log_q holds entries"),
        ({"log_p": [0.5, 0.0]}, "log_p holds entries"),
        ({"tail_q": 1.5}, "tail_q holds entries"),
        ({"token": 0.5}, "token must be integers"),
        ({"token_logprob": -np.inf}, "token_logprob holds entries"),
    ],
)
def test_bad_records(change, words):
    record = {"ids": [0, 1], "log_p": np.log([0.5, 0.3]), "log_q": np.log([0.5, 0.3]), "tail_p": 0.2, "tail_q": 0.2}
    with pytest.raises(ValueError, match=words):
        acceptance.chain_interval(**{**record, "token": 0, "token_logprob": -1.0, **change})


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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([5.0], [5.0], 0.1, 0.1), "log_p holds entries that are no log-probabilities"),
        ((np.log([0.9, 0.9]), np.log([0.5, 0.5]), 0.0, 0.0), "log_p holds"),
        ((np.log([0.5]), [np.nan], 0.5, 0.5), "log_q holds"),
        ((np.log([0.5]), np.log([0.5]), 7, 0.5), "tail_p holds"),
        ((np.log([0.5]), np.log([0.5]), 0.5, -3), "tail_q holds"),
        ((np.log([0.5]), np.log([0.25, 0.25]), 0.5, 0.5), "log_q must have shape"),
    ],
)
def test_truncated_records_are_checked(arguments, words):
    with pytest.raises(ValueError, match=words):
        acceptance.gamma_interval(*arguments)


def test_truncated_records_name_each_token_once():
    with pytest.raises(ValueError, match="ids must name every token once"):
        acceptance.chain_interval([3, 3], np.log([0.5, 0.3]), np.log([0.5, 0.3]), 0.2, 0.2, 3)
