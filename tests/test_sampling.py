"""Laws, draws, alpha and gamma against definitions written out in float64."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hedgelab.storage.manifest import Processing
from tests.strategies_recording import logit_rows, naive_alpha_gamma, naive_law, processings
from traces.acceptance import alpha_gamma, deep_alpha_gamma
from traces.sampling import (
    Dense,
    OneHot,
    Reduced,
    draw,
    entropy,
    faults,
    process,
    top2_margin,
    top_probability,
)

INF = math.inf
LAST = 1 - 2**-53  # the largest uniform


def dense(law, width):
    """Any law as float64 rows over the whole vocabulary."""
    if isinstance(law, Dense):
        return law.probs.double().numpy()
    if isinstance(law, Reduced):
        out = np.zeros((len(law.probs), width))
        out[:, law.ids.numpy()] = law.probs.double().numpy()
        return out
    return np.eye(width)[law.token.numpy()]


@given(logit_rows(), processings)
@example([[0.0] * 7], (1.0, 0, 0.5))
@example([[1.0, 1.0, 1.0, 1.0, -INF, -INF, -INF]], (0.6, 3, 0.8))
def test_laws_equal_the_definition(rows, how):
    naive = [naive_law(row, *how) for row in rows]
    # sums in another order may decide an exact boundary differently; those have their own tests below
    assume(all(margin > 1e-9 for _, margin in naive))
    law = dense(process(torch.tensor(rows), Processing(*how)), len(rows[0]))
    for got, (expected, _) in zip(law, naive, strict=True):
        np.testing.assert_array_equal(got > 0, expected.astype(np.float32) > 0)
        np.testing.assert_allclose(got, expected, atol=1e-6)


def test_wide_nucleus_needs_a_full_sort():
    logits = torch.zeros(2, 5000)
    logits[1, 4999] = 3.0
    law = process(logits, Processing(1.0, 0, 0.5))
    assert int((law.probs[0] > 0).sum()) == 2500
    assert bool((law.probs[0, :2500] > 0).all())  # equal probabilities: the lowest ids
    assert law.probs[1, 4999] > 0


def test_nucleus_at_an_exact_boundary_and_near_one():
    law = process(torch.zeros(1, 4), Processing(1.0, 0, 0.5))
    assert law.probs.tolist() == [[0.5, 0.5, 0.0, 0.0]]
    law = process(torch.randn(3, 200, generator=torch.Generator().manual_seed(1)), Processing(1.0, 0, 1 - 1e-16))
    assert bool((law.probs > 0).all())


def test_ties_take_the_first():
    logits = torch.tensor([[2.0, 5.0, 5.0, 5.0, 1.0]])
    assert process(logits, Processing(0.0)).token.tolist() == [1]  # C5
    assert dense(process(logits, Processing(1.0, 2)), 5).tolist() == [[0, 0.5, 0.5, 0, 0]]
    assert top2_margin(logits).tolist() == [0.0]


def test_order_is_decided_before_the_division():
    # two logits an ulp apart become equal when divided; the larger one must still win
    below = np.float32(1.8) + np.arange(20, dtype=np.float32) * np.float32(2**-23)
    tied = below[:-1][below[:-1] / np.float32(1.7) == below[1:] / np.float32(1.7)][0]
    law = process(torch.tensor([[tied, np.nextafter(tied, np.float32(2))]]), Processing(1.7, 1))
    assert law.probs.tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_laws_are_float32_whatever_the_model(dtype):
    logits = torch.randn(2, 300, generator=torch.Generator().manual_seed(2)).to(dtype)
    for how in (Processing(0.6), Processing(0.6, 20, 0.9)):
        low, high = process(logits, how), process(logits.float(), how)
        assert low.probs.dtype == torch.float32
        assert torch.equal(low.probs, high.probs)  # C1


@given(logit_rows(width=5, rows=4), st.lists(st.sampled_from([0.0, 1e-12, 0.3, 0.7, LAST]), min_size=4, max_size=4))
def test_draws_follow_the_cdf_and_never_take_the_impossible(rows, coins):
    law = process(torch.tensor(rows), Processing(1.0))
    coins = torch.tensor(coins[: len(rows)], dtype=torch.float64)
    for row, token, u in zip(law.probs.double(), draw(law, coins).tolist(), coins.tolist(), strict=True):
        assert row[token] > 0
        mass = float(row.sum())
        assert float(row[:token].sum()) <= u * mass + 1e-12
        assert float(row[: token + 1].sum()) >= u * mass - 1e-12


@pytest.mark.parametrize("width", [1, 255, 256, 257, 1000])
def test_blocked_draws_equal_one_long_cdf(width):
    rng = np.random.default_rng(width)
    logits = torch.from_numpy(rng.normal(0, 4, (64, width)).astype(np.float32))
    logits[:, rng.random(width) < 0.3] = -INF
    logits[:, rng.integers(width)] = 0.0
    law = process(logits, Processing(0.8))
    coins = rng.random(64)
    coins[:2] = 0.0, LAST
    cdf = np.cumsum(law.probs.double().numpy(), axis=1)
    expected = [int(np.searchsorted(row, u * row[-1], side="right")) for row, u in zip(cdf, coins, strict=True)]
    last = [int(np.flatnonzero(row)[-1]) for row in law.probs.numpy()]
    got = draw(law, torch.from_numpy(coins)).tolist()
    assert got == [min(pair) for pair in zip(expected, last, strict=True)]


def test_draws_have_the_right_frequencies():
    # chi-square with 4 degrees of freedom; exceeds 27.9 with probability 1.3e-5, and the seed is fixed
    law = process(torch.tensor([[0.0, 1.0, -INF, 2.0, 0.5, -1.0]]).repeat(20000, 1), Processing(1.0))
    got = draw(law, torch.from_numpy(np.random.default_rng(3).random(20000)))
    seen = np.bincount(got.numpy(), minlength=6)
    expected = law.probs[0].double().numpy() * 20000
    assert seen[2] == 0
    possible = expected > 0
    assert ((seen - expected)[possible] ** 2 / expected[possible]).sum() < 27.9


def test_reduced_laws_draw_ids_not_columns():
    ids = torch.tensor([3, 8])
    index = torch.full((10,), -1)
    index[ids] = torch.arange(2)
    law = process(torch.tensor([[0.0, 5.0]]), Processing(1.0), ids, index)
    assert draw(law, torch.tensor([0.5], dtype=torch.float64)).tolist() == [8]
    assert law.at(torch.tensor([4])).tolist() == [0.0]
    assert process(torch.tensor([[0.0, 5.0]]), Processing(0.0), ids, index).token.tolist() == [8]
    with pytest.raises(ValueError, match="map"):
        process(torch.tensor([[0.0, 5.0]]), Processing(1.0), ids)


def test_faults_name_rows_without_a_law():
    rows = torch.tensor([[0.0, -INF], [math.nan, 0.0], [INF, 0.0], [-INF, -INF], [-INF, math.nan]])
    assert faults(rows) == {1: "NaN", 2: "+inf", 3: "no finite value", 4: "NaN"}
    assert faults(torch.tensor([[7e4]]).half()) == {0: "+inf"}  # C2: beyond float16
    assert faults(rows[:1]) == {}


def test_statistics():
    rows = torch.tensor([[0.0, 2.0, -INF, 1.0], [0.0, 0.0, 0.0, 0.0]])
    law = process(rows, Processing(0.5))
    p = dense(law, 4)
    expected = [-sum(x * math.log(x) for x in row if x > 0) for row in p]
    np.testing.assert_allclose(entropy(law).numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(top_probability(rows, law).numpy(), p.max(1), atol=1e-7)
    assert top2_margin(rows).tolist() == [1.0, 0.0]
    assert top2_margin(torch.tensor([[1.0, -INF]])).tolist() == [INF]
    greedy = process(rows, Processing(0.0))
    assert entropy(greedy).tolist() == [0.0, 0.0]
    # how sure the logits were, not the one-hot law's 1
    np.testing.assert_allclose(top_probability(rows, greedy).numpy(), [0.665241, 0.25], atol=1e-6)


@given(logit_rows(6, 1), logit_rows(6, 1), processings, processings, st.floats(0, LAST))
def test_alpha_and_gamma_equal_the_definition(p_rows, q_rows, p_how, q_how, u):
    p = process(torch.tensor(p_rows), Processing(*p_how))
    q = process(torch.tensor(q_rows), Processing(*q_how))
    token = draw(p, torch.tensor([u], dtype=torch.float64))
    alpha, gamma = alpha_gamma(p, q, token)
    expected = naive_alpha_gamma(dense(p, 6)[0], dense(q, 6)[0], int(token))
    np.testing.assert_allclose([float(alpha), float(gamma)], expected, atol=1e-5)
    assert 0 <= float(alpha) <= 1
    assert 0 <= float(gamma) <= 1


@given(logit_rows(6, 1), processings, st.floats(0, LAST))
def test_a_law_against_itself_is_always_accepted(rows, how, u):
    p, q = (process(torch.tensor(rows), Processing(*how)) for _ in range(2))
    token = draw(p, torch.tensor([u], dtype=torch.float64))
    assert [float(x) for x in alpha_gamma(p, q, token)] == [1.0, 1.0]  # B6, C3


@given(logit_rows(6, 1), logit_rows(3, 1), processings, st.floats(0, LAST))
def test_reduced_vocabularies_have_probability_zero_outside(p_rows, q_rows, how, u):
    ids = torch.tensor([0, 2, 5])
    index = torch.tensor([0, -1, 1, -1, -1, 2])
    p = process(torch.tensor(p_rows), Processing(1.0))
    q = process(torch.tensor(q_rows), Processing(*how), ids, index)
    token = draw(p, torch.tensor([u], dtype=torch.float64))
    expected = naive_alpha_gamma(dense(p, 6)[0], dense(q, 6)[0], int(token))
    np.testing.assert_allclose([float(x) for x in alpha_gamma(p, q, token)], expected, atol=1e-5)


def test_named_values():
    logits = torch.tensor([[0.6, 0.2, 0.1, 0.1]]).log()
    p = process(logits, Processing(1.0))
    sampled = process(torch.tensor([[0.7, 0.2, 0.05, 0.05]]).log(), Processing(1.0))
    argmax = process(torch.tensor([[0.7, 0.2, 0.05, 0.05]]).log(), Processing(0.0))
    token = torch.tensor([0])
    assert float(alpha_gamma(p, sampled, token)[1]) == pytest.approx(0.9)  # B4
    assert float(alpha_gamma(p, argmax, token)[1]) == pytest.approx(0.6)  # B2, B4
    # B1: q cut to its two likeliest ids is another q than the raw one
    cut = process(torch.tensor([[0.7, 0.2, 0.05, 0.05]]).log(), Processing(1.0, 2))
    assert float(alpha_gamma(p, cut, token)[1]) == pytest.approx(0.8)
    assert float(alpha_gamma(p, cut, torch.tensor([2]))[0]) == 0.0  # q(x) = 0
    nothing = OneHot(torch.tensor([-1]))
    assert [float(x) for x in alpha_gamma(p, nothing, token)] == [0.0, 0.0]
    certain = process(logits, Processing(0.0))
    assert [float(x) for x in alpha_gamma(certain, sampled, token)] == [pytest.approx(0.7)] * 2
    assert [float(x) for x in alpha_gamma(certain, nothing, token)] == [0.0, 0.0]


def test_deep_drafts():
    p = process(torch.tensor([[0.6, 0.2, 0.1, 0.1]]).log(), Processing(1.0))
    drafts = torch.tensor([[1, 0, 0, -1]])
    alive = torch.tensor([[True, True, False, True]])
    alpha, gamma = deep_alpha_gamma(p, drafts, alive, torch.tensor([0]))
    assert alpha.tolist() == [[0, 1, 0, 0]]
    np.testing.assert_allclose(gamma.numpy(), [[0.2, 0.6, math.nan, 0]], atol=1e-6)
    greedy = process(torch.tensor([[0.6, 0.2, 0.1, 0.1]]).log(), Processing(0.0))
    alpha, gamma = deep_alpha_gamma(greedy, drafts, alive, torch.tensor([0]))
    assert alpha.tolist() == [[0, 1, 0, 0]]
    np.testing.assert_array_equal(gamma.numpy(), [[0, 1, math.nan, 0]])
