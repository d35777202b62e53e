"""What the bench measures: of every kind, on a tiny target; and that the page shows what was measured."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import hedgelab as hl
from experiments import round_costs
from experiments.bench_costs import built, config_of, learner_costs, markdown, measure
from experiments.round_costs import layers_needed, seconds_of, texts_of, widths
from hedgelab.cost import Costs
from hedgelab.storage.manifest import Processing
from tests.strategies_recording import WORDS, tiny_checkpoint, tiny_head, tiny_prompts
from traces.collect import collect
from traces.config import parse_config
from traces.drafters import KINDS
from traces.targets import load_target
from traces.texts import Texts

K, PREFIX = 3, 10
IDS = list(range(2, WORDS, 2))
DRAFTERS = [
    {"name": "lookup", "kind": "lookup"},
    {"name": "ngram", "kind": "ngram", "options": {"texts": "texts.safetensors"}},
    {"name": "exit", "kind": "exit", "options": {"layer": 2}},
    {"name": "causal", "kind": "causal", "options": {"model": "small"}},
    {"name": "eagle", "kind": "head", "options": {"checkpoint": "eagle"}},
    {"name": "truncated", "kind": "truncated", "options": {"checkpoint": "truncated"}},
    {"name": "tree", "kind": "tree", "options": {"over": "eagle", "nodes": 6}},
    {
        "name": "tree-exit",
        "kind": "tree",
        "options": {"over": "exit", "paths": [[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0]]},
    },
    {"name": "gone", "kind": "head", "options": {"checkpoint": "nowhere"}},
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    target = load_target(str(tiny_checkpoint(folder / "target")))
    tiny_checkpoint(folder / "small", seed=3, layers=2)
    tiny_head(folder / "eagle", target, "eagle", (1, 2), IDS, depth=K)
    tiny_head(folder / "truncated", target, "truncated", (1,), IDS)
    tiny_prompts(folder / "prompts.jsonl", 4)
    lookup = [{"name": "lookup", "kind": "lookup"}]
    train = {**document(), "drafters": lookup, "prompts": {"file": str(folder / "prompts.jsonl")}, "max_new_tokens": 20}
    collect(parse_config({**train, "batch": 4}, folder), {}, folder / "train")
    Texts.load(folder / "train").save(folder / "texts.safetensors")
    return folder


def document():
    return {"name": "x", "target": "target", "drafters": DRAFTERS, "processing": {"temperature": 0.8}, "k": K}


@pytest.fixture(scope="module")
def costs(home):
    rng, said = np.random.default_rng(0), []
    paths = rng.integers(2, WORDS, (2, PREFIX + 20)).tolist()
    found = measure(
        parse_config(document(), home), paths, prefix=PREFIX, repeats=2, provisional="a test", say=said.append
    )
    assert [words for words in said if words.startswith("left out: drafter 'gone'")]
    return found


def test_every_kind_has_a_cost(costs):
    assert Costs.from_json(costs.to_json()) == costs
    assert {entry["kind"] for entry in DRAFTERS} == {drafter.kind for drafter in costs.drafters.values()}
    assert set(costs.drafters) == {entry["name"] for entry in DRAFTERS} - {"gone"}
    for name, drafter in costs.drafters.items():
        assert drafter.draft is not None, name
        assert len(drafter.draft) == K
        assert 0 < drafter.draft[0].median <= drafter.draft[-1].median
        assert drafter.evaluate.tokens[0] == 1
        assert (drafter.nodes is None) == (drafter.rule != "tree")
        assert drafter.over == {"tree": "eagle", "tree-exit": "exit"}.get(name)
        assert (len(drafter.evaluate.tokens) > 1) == (drafter.depth == 1)
    assert costs.drafters["tree-exit"].nodes == (2.0, 5.0, 6.0)
    assert costs.repeats == 4
    assert costs.target.verify.tokens[:4] == (1, 2, 3, 4)
    assert costs.target.step.median > 0


def test_a_chain_pays_for_each_token_and_the_layers_it_stands_on(costs):
    for name in ("exit", "truncated", "causal", "ngram", "eagle"):
        draft = [each.median for each in costs.drafters[name].draft]
        np.testing.assert_allclose(draft, np.arange(1, K + 1) * draft[0])
    assert len({each.median for each in costs.drafters["lookup"].draft}) == 1  # copies all at once


def test_the_layers_that_a_law_needs(home):
    target = load_target(str(home / "target"))
    drafters = built(parse_config(document(), home), target, 1, lambda _: None)
    path = np.random.default_rng(1).integers(2, WORDS, PREFIX + 3).tolist()
    taps = {tap for drafter in drafters.values() for tap in drafter.taps}
    (text,) = texts_of(target, [path], PREFIX, 2, taps, Processing(1.0))
    # an eagle head reads what the target said one token earlier, so it waits for no layer
    expected = {"exit": 2, "truncated": 1, "eagle": 0, "causal": 0, "ngram": 0}
    with torch.inference_mode():
        assert {name: layers_needed(drafters[name], text) for name in expected} == expected


def test_levels_of_trees(home):
    drafters = built(parse_config(document(), home), load_target(str(home / "target")), K, lambda _: None)
    # laws behind the root, (0,) (1,), and (0, 0); tokens of each depth
    assert widths(drafters["tree-exit"], K) == ([1, 2, 1], [2, 3, 1])

    class Drafts:
        kind = "several"

        def __init__(self, form):
            self.form = form

        def describe(self):
            return type("Said", (), {"details": {"drafts": 3, "form": self.form}})

    assert widths(Drafts("sequences"), K) == ([1, 3, 3], [3, 3, 3])
    assert widths(Drafts("nodes"), K) == ([1, 3, 9], [3, 9, 27])
    assert (
        widths(type("Other", (), {"kind": "x", "describe": lambda self: type("S", (), {"details": {}})})(), K) is None
    )


def test_scoring_reads_the_texts_that_drafting_reads(home, monkeypatch):
    target = load_target(str(home / "target"))
    drafters = built(parse_config(document(), home), target, K, lambda _: None)
    path = np.random.default_rng(2).integers(2, WORDS, PREFIX + 9).tolist()
    (text,) = texts_of(target, [path], PREFIX, 8, {1, 2}, Processing(1.0))
    seen = []
    row = round_costs.Scorer.row

    def watched(self, prefix, law, token, place):
        seen.append((prefix.tokens.clone(), token.clone(), law.size))
        return row(self, prefix, law, token, place)

    monkeypatch.setattr(round_costs.Scorer, "row", watched)
    with torch.inference_mode():
        spent = round_costs.evaluate_seconds(drafters["exit"], target, [text], 3, K, 2)
    assert len(spent) == 2
    for step, (tokens, token, size) in enumerate(seen):
        assert tokens.tolist() == [path[: PREFIX + step + 1]] * 3
        assert token.tolist() == [path[PREFIX + step + 1]] * 3
        assert size == 3


@torch.inference_mode()
def test_passes_read_behind_the_text_and_leave_no_trace(home):
    target = load_target(str(home / "target"))
    text, drafts = [5, 9, 3, 7], [[8, 4, 6], [2, 2, 11, 3, 12]]
    passes = round_costs.Passes(target.model)
    passes.begin(torch.tensor([text]), 12)
    passes.step(torch.tensor([10]))
    for tokens in drafts:
        expected = target.model(torch.tensor([[*text, 10, *tokens]])).logits[0, 5:]
        torch.testing.assert_close(passes.over(torch.tensor([tokens]))[0], expected, atol=1e-4, rtol=1e-4)
    expected = target.model(torch.tensor([[*text, 10, 13]])).logits[:, -1]
    torch.testing.assert_close(passes.step(torch.tensor([13])), expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("n", [1, 2, 5, 6, 15, 21])
def test_the_interval_of_a_median(n):
    values = list(range(n))
    found = seconds_of(values[::-1])
    # the ranks whose interval covers the median of i.i.d. values at least 95% of the time, the shortest such
    covers = [sum(math.comb(n, below) for below in range(r, n - r + 1)) / 2**n for r in range(1, n // 2 + 1)]
    rank = max((r for r, share in enumerate(covers, 1) if share >= 0.95), default=1)
    assert (found.low, found.high) == (values[rank - 1], values[n - rank])
    assert found.median == (n - 1) / 2


def test_lists_of_more_drafters_come_behind_a_configurations_own(tmp_path):
    configs = Path(__file__).parents[1] / "traces" / "configs"
    own, more = (
        config_of(configs / "t06.yaml", tmp_path),
        config_of(configs / "t06.yaml", tmp_path, [configs / "more.yaml"]),
    )
    assert more.drafters[: len(own.drafters)] == own.drafters
    added = {drafter.name: drafter for drafter in more.drafters[len(own.drafters) :]}
    assert "eagle-matched" not in added  # is among the configuration's own
    assert added["eagle-matched-static"].processing.temperature == 0
    assert added["rest-all-chain"].processing == own.drafters[-1].processing


def test_learners_have_costs():
    found = learner_costs(5, 1)
    assert {"normalhedge", "fixed", "ucb1"} <= set(found)
    assert found["normalhedge"].observe.median > 0


def test_the_page_shows_the_costs_that_come_with_hedgelab():
    page = (Path(__file__).parents[1] / "traces" / "DRAFTERS.md").read_text()
    assert markdown(Costs.load(), hl.sample_trace("t06")) in page


def test_the_page_names_every_kind():
    page = (Path(__file__).parents[1] / "traces" / "DRAFTERS.md").read_text()
    assert not [kind for kind in KINDS if f"| `{kind}` |" not in page]
