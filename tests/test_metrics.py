"""What numbers mean: public reports of misread metrics, each with its right value (cases A1-A12)."""

import numpy as np
import pytest

import hedgelab as hl
from hedgelab.metrics import METRICS, RoundLog, accepted_prefix
from tests.sizes import large


def value(name, log):
    return METRICS[name].of(log)


def test_a1_eos_inside_the_drafts():
    log = RoundLog.of_rounds(proposed=[5], accepted=[3], committed=[3], raw_accepted=[5])
    assert value("committed_tokens", log) == 3
    assert value("accepted_drafts", log) == 3
    assert value("raw_accepted_drafts", log) == 5
    assert np.isnan(value("mat_full_rounds", log))


def test_a2_mean_committed_is_one_plus_accepted_per_round():
    log = RoundLog.of_rounds(proposed=[4] * 4, accepted=[0, 4, 2, 3], committed=[1, 5, 3, 3])
    uncut = RoundLog.of_rounds(proposed=[4] * 3, accepted=[0, 4, 2])
    assert value("mat_full_rounds", log) == value("mat", uncut) == 1 + value("accepted_drafts_per_round", uncut) == 3.0
    assert value("mat", log) == 3.0


def test_a3_nothing_accepted_is_rate_zero():
    log = RoundLog.of_rounds(proposed=[4], accepted=[0])
    assert value("draft_acceptance_rate", log) == 0.0
    assert value("mat", log) == 1.0


@pytest.mark.parametrize(
    ("histogram", "rounds", "accepted", "proposed", "rate", "mat"),
    [
        ([11, 14, 11, 4, 0, 3], 43, 63, 215, 0.29302, 2.46512),  # A4
        ([39, 1, 0, 3], 43, 10, 129, 0.07752, 1.23256),  # A5
    ],
)
def test_a4_a5_histograms(histogram, rounds, accepted, proposed, rate, mat):
    log = RoundLog.of_histogram(histogram)
    assert value("rounds", log) == rounds
    assert value("accepted_drafts", log) == accepted
    assert value("proposed_drafts", log) == proposed
    assert value("draft_acceptance_rate", log) == pytest.approx(rate, abs=5e-6)
    assert value("mat", log) == pytest.approx(mat, abs=5e-6)


def test_a6_matches_after_a_rejection_do_not_count():
    assert accepted_prefix([1, 0, 1, 0]) == 1
    assert accepted_prefix([]) == 0
    assert accepted_prefix([1, 1]) == 2
    # and so in the engine: rows accept, reject, accept
    alpha = np.array([[1.0], [0.0], [1.0], [0.0]])
    trace = hl.Trace.from_arrays(
        token=np.zeros(4, int), alpha=alpha, gamma=alpha, offsets=[0, 4], domains=["x"], drafters=["a"], k=4
    )
    assert hl.replay(trace, "fixed").accepted.tolist() == [1, 1]


@large
def test_a7_constant_acceptance():
    rows = 300_000
    alpha = np.full((rows, 1), 0.8)
    trace = hl.Trace.from_arrays(
        token=np.zeros(rows, int), alpha=alpha, gamma=alpha, offsets=[0, rows], domains=["x"], drafters=["a"], k=8
    )
    log = RoundLog.of_replay(hl.replay(trace, "fixed"))
    # 69,000 rounds, standard deviation of a round below 3: 5 standard errors (one false alarm in 1.7e6)
    assert value("accepted_drafts_per_round", log) == pytest.approx(3.329, abs=0.05)
    assert value("draft_acceptance_rate", log) == pytest.approx(0.416, abs=0.007)
    assert value("acceptance_by_position_conditional", log) == pytest.approx([0.8] * 8, abs=0.02)
    assert hl.feedback.losses(trace, k=8, estimator="B")[0, 0] == pytest.approx(1 - (1 + 3.329) / 9, abs=1e-4)


def test_a8_a9_proposed_is_what_was_verified():
    # three rounds of draft lengths 4, 2, 0: a lookup without a match proposes nothing
    log = RoundLog.of_rounds(proposed=[4, 2, 0], accepted=[2, 1, 0])
    assert value("proposed_drafts", log) == 6
    assert value("draft_acceptance_rate", log) == 0.5
    # by position: the third draft existed in one round, and that round reached it
    assert value("acceptance_by_position_conditional", log) == [1.0, 0.5, 0.0, pytest.approx(float("nan"), nan_ok=True)]


def test_a9_in_the_engine():
    alpha = np.zeros((3, 4, 1))
    alpha[0, 0] = alpha[1, 1] = 1.0
    trace = hl.Trace.from_arrays(
        token=np.zeros(3, int),
        alpha=alpha,
        gamma=np.zeros((3, 4, 1)),
        offsets=[0, 3],
        domains=["x"],
        drafters=["lookup"],
        k=4,
        proposed=[[2], [4], [0]],
    )
    run = hl.replay(trace, "fixed")
    assert run.accepted.tolist() == [2]
    assert run.proposed.tolist() == [2]
    assert hl.replay(trace, "fixed", k=1).proposed.tolist() == [1, 0]


def test_a10_two_columns():
    log = RoundLog.of_histogram([2, 1, 1])
    assert value("acceptance_by_position_unconditional", log) == [0.5, 0.25]
    assert value("acceptance_by_position_conditional", log) == [0.5, 0.5]


def test_a11_two_aggregations():
    log = RoundLog.of_rounds(proposed=[9] * 70, accepted=[1] * 50 + [4] * 20, request=[0] * 50 + [1] * 20)
    assert value("mat", log) == pytest.approx(2.857, abs=5e-4)
    assert value("mat_mean_of_requests", log) == 3.5


def test_a12_product_of_means_is_another_number():
    log = RoundLog.of_histogram([5, 0, 5])
    assert value("accepted_drafts_per_round", log) == 1.0
    assert value("accepted_drafts_per_round_if_independent", log) == 0.75
    assert "approximation" in METRICS["accepted_drafts_per_round_if_independent"].aggregation


def test_every_metric_names_formula_and_aggregation():
    for name, metric in METRICS.items():
        assert metric.formula
        assert metric.aggregation, name
        assert "committed" in metric.formula or "tokens" in metric.formula or "committed" not in name


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"proposed": [2], "accepted": [3]}, r"round 0: accepted must lie in \[0, proposed\]"),
        ({"proposed": [3, 3], "accepted": [1, -1]}, "round 1: accepted"),
        ({"proposed": [3], "accepted": [1], "committed": [3]}, "round 0: committed"),
        ({"proposed": [3], "accepted": [0], "committed": [0]}, "round 0: committed"),
        ({"proposed": [3], "accepted": [1], "raw_accepted": [4]}, "raw_accepted"),
        ({"proposed": [3, 3], "accepted": [1]}, "one length"),
        ({"proposed": [], "accepted": []}, "at least 1"),
    ],
)
def test_counts_that_cannot_be(counts, words):
    with pytest.raises(ValueError, match=words):
        RoundLog.of_rounds(**counts)
