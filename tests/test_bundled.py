"""The bundled real traces: whole, as large as promised, and consistent with what alpha and gamma mean."""

from pathlib import Path

import numpy as np
import pytest

import hedgelab as hl
from hedgelab.storage.checking import check_trace
from traces.card import card
from traces.drafters import KINDS

DATA = Path(hl.__file__).parent / "data"
NAMES = ("t06", "greedy", "t10", "logits")


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_wrong_with_it(name):
    assert check_trace(DATA / name) == []
    trace = hl.sample_trace(name)
    assert trace.manifest.complete
    assert trace.manifest.licenses
    assert len(set(trace.drafters)) == len(trace.drafters) >= 10


def test_size():
    assert sum(file.stat().st_size for file in DATA.rglob("*") if file.is_file()) < 20e6


@pytest.mark.parametrize(("name", "prompts"), [("t06", 20), ("greedy", 20), ("t10", 10)])
def test_as_large_as_promised(name, prompts):
    trace = hl.sample_trace(name)
    domains, counts = np.unique(trace.domains, return_counts=True)
    assert len(domains) == 7
    assert counts.min() == counts.max() == prompts
    assert len(np.unique(trace.prompt_ids)) == trace.sequences  # one text a prompt
    lengths = np.diff(trace.offsets)
    # at least 128 tokens, unless the text ended or began to loop
    assert (lengths[trace.stop == "length"] >= 128).all()
    assert set(trace.stop) <= {"length", "eos", "loop"}
    assert sum(shard.cuts for shard in trace.manifest.shards) == (trace.stop == "loop").sum()


def test_training_and_held_out_prompts_are_apart():
    held_out = set(hl.sample_trace("t06").prompt_ids)
    assert held_out == set(hl.sample_trace("greedy").prompt_ids)
    assert not any("train" in name for name in held_out)


def test_what_the_manifest_says():
    t06, greedy, t10 = (hl.sample_trace(name).manifest for name in ("t06", "greedy", "t10"))
    assert (t06.path, greedy.path) == ("own_sample", "greedy")
    assert t06.target.sha256.startswith("b179c952")
    assert t06.target.sha256.endswith("10db53")
    assert [trace.target_processing.temperature for trace in (t06, greedy, t10)] == [0.6, 0.0, 1.0]
    # case B3: the drafters' own temperatures are recorded, not inferred
    drawn = {d.name for d in t06.drafters if not KINDS[d.kind].drafter.certain}
    assert drawn >= {"ngram-all", "eagle-matched", "medusa-all", "eagle-matched-4-nodes", "rest-all-chain"}
    assert {d.processing.temperature for d in t06.drafters if d.name in drawn} == {0.6}
    assert {d.processing.temperature for d in t06.drafters if d.name not in drawn} == {0.0}
    assert {d.processing.temperature for d in greedy.drafters} == {0.0}
    for manifest in (t06, greedy, t10):  # every kind but a second language model, which the packages do not hold
        assert {d.kind for d in manifest.drafters} == set(KINDS) - {"causal"}
    assert [d.name for d in t06.drafters] == [d.name for d in greedy.drafters] == [d.name for d in t10.drafters]
    assert len(t06.drafters) >= 18
    specialists = [tuple(d.details["domains"]) for d in t06.drafters if len(d.details.get("domains", ())) == 1]
    assert all(specialists.count((domain,)) >= 2 for domain in t06.domains)
    assert sum(len(d.details.get("domains", ())) == 7 for d in t06.drafters) >= 2  # generalists


def reached(trace, depth, i):
    """Rows that a round of this drafter can meet at `depth`: it began within the text.

    Of certain drafts, and of sequences drawn ahead, all before were accepted, too: behind a rejection they have no law.
    """
    alpha, drafter = trace.alpha[:, :, i], trace.manifest.drafters[i]
    first = np.repeat(trace.offsets[:-1], np.diff(trace.offsets))
    rows = np.flatnonzero(np.arange(trace.rows) - first >= depth)
    ahead = drafter.rule in ("one_hot", "tree") or drafter.details.get("form") == "sequences"
    for back in range(1, depth + 1) if ahead else ():
        rows = rows[alpha[rows - back, depth - back] > 0]
    return rows


@pytest.mark.parametrize("name", ["t06", "t10", "logits"])
def test_alpha_has_mean_gamma(name):
    # E_p alpha = gamma at every row and depth: within 4 standard errors, clustered by text. False alarm (of the
    # recording: this test is deterministic) 6.3e-5 a cell where sums over texts are normal, 7e-4 at most where they are
    # symmetric (Efron 1969: P(|S| > x V) <= 2 exp(-x^2 / 2)): 3% by the first for 531 cells, one a drafter and depth
    trace = hl.sample_trace(name)
    text = np.repeat(np.arange(trace.sequences), np.diff(trace.offsets))
    compared, drafted = set(), set()
    for i in range(len(trace.drafters)):
        depths = range(trace.k) if i in trace.deep_columns else range(1)
        for d in depths:
            rows = reached(trace, d, i) if d else np.arange(trace.rows)
            gamma = trace.gamma[rows, d, i]
            difference = trace.alpha[rows, d, i].astype(float) - gamma
            assert np.isfinite(difference).all()
            error = np.linalg.norm(np.bincount(text[rows], difference))
            if ((gamma > 0) & (gamma < 1)).any():
                drafted.add((i, d))
            if error > 0:
                compared.add((i, d))
                assert abs(difference.sum()) < 4 * error, (trace.drafters[i], d)
    assert compared == drafted
    trees = {i for i, drafter in enumerate(trace.manifest.drafters) if drafter.rule == "tree"}
    assert compared >= {
        (i, d) for i in trees for d in range(2)
    }  # the static ones and the small traces end behind these
    deep = [i for i in trace.deep_columns if i not in trees]
    others = sum(i not in trees for i, _ in compared)
    assert others >= len(trace.drafters) - len(trees) + len(deep) * (trace.k - 1) * 0.8  # deep ones may die early


def test_greedy_acceptance_is_yes_or_no():
    trace = hl.sample_trace("greedy")
    assert set(np.unique(trace.alpha)) == {0.0, 1.0}
    known = ~np.isnan(trace.gamma)
    assert (trace.alpha[known] == trace.gamma[known]).all()


def test_gamma_from_truncated_logits_is_an_interval_that_holds_it():
    trace = hl.sample_trace("logits")
    assert trace.manifest.logits == 64
    rows = trace.column("logit_row")
    log_p, log_q = trace.column("logit_p"), trace.column("logit_q")
    tail_p, tail_q = trace.column("tail_p"), trace.column("tail_q")
    assert len(rows) > 100
    for i, drafter in enumerate(trace.manifest.drafters):
        if drafter.rule != "chain":
            continue
        low, high = hl.acceptance.gamma_interval(log_p, log_q[:, i], tail_p, tail_q[:, i])
        exact = trace.gamma[rows, 0, i]
        assert (low - 7.7e-6 <= exact).all(), drafter.name  # gamma is stored in fixed16
        assert (exact <= high + 7.7e-6).all(), drafter.name
        assert (high - low).mean() < 0.25  # and it is of use
    one_hot = [i for i, drafter in enumerate(trace.manifest.drafters) if drafter.rule == "one_hot"]
    assert one_hot


def test_card_says_what_the_traces_hold():
    text = (DATA / "TRACES.md").read_text()
    for name in NAMES:
        trace = hl.sample_trace(name)
        assert card(trace) in text  # every number of the tables
    for word in ("python -m traces collect", "Apache-2.0", "MIT", "cut at a loop", "dropped"):
        assert word in text
