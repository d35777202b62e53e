"""Dynamic trees over eagle heads: nodes off the path, and trees as recorded against a search by lists."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch

from hedgelab.storage.manifest import Processing
from hedgelab.trace import open_trace
from tests.strategies_recording import WORDS, NaiveHead, naive_law, naive_of, tiny_checkpoint, tiny_head, tiny_prompts
from tests.strategies_trees import naive_follow, naive_tree, softmax_of
from tests.test_collect import config_of, rows_of, text_of
from traces import collect as collecting
from traces.checkpoints import load_head
from traces.collect import collect
from traces.drafters.base import PAD, DrafterError, Prefix, pad_left
from traces.drafters.dynamic_tree import DynamicTree, Options
from traces.heads import HeadError, Rounds
from traces.targets import load_target

K = 4
IDS = sorted({0, *range(3, WORDS, 2)})
TAPS = (0, 2, 3)
COLD = Processing(0.0)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a tiny target, prompts, and heads that were never trained."""
    folder = tmp_path_factory.mktemp("dynamic")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    tiny_prompts(folder / "prompts.jsonl", 5)
    tiny_prompts(folder / "few.jsonl", 2)
    target = load_target(str(folder / "target"))
    tiny_head(folder / "deep", target, "eagle", TAPS, IDS)
    tiny_head(folder / "cut", target, "truncated", (2,), IDS)
    tiny_head(folder / "three", target, "medusa", (1, 3), IDS, depth=3, last_token=True)
    return folder


@pytest.fixture(scope="module")
def target(home):
    return load_target(str(home / "target"))


# --- nodes off the path --------------------------------------------------------------------------------------------


def driven(head, target, texts, width, rounds):
    """Read prompts (the first `width` columns), then yield the column of each further token with the outputs there."""
    tokens = pad_left(texts)
    real = tokens != PAD
    hidden = target.model(
        tokens.clamp(min=0), attention_mask=real.long(), position_ids=(real.cumsum(1) - 1).clamp(min=0),
        output_hidden_states=True,
    ).hidden_states  # fmt: skip
    states = [hidden[tap] for tap in head.taps]
    rounds.begin(tokens[:, :width], tokens.shape[1], [state[:, :width] for state in states], PAD)
    for t in range(width, tokens.shape[1]):
        read = t - 1 if head.kind == "eagle" else t
        yield t, rounds.step(tokens[:, t], [state[:, read] for state in states])


LEVELS = [  # (parents, tokens) of a tree for each of two texts; the same node may be asked for twice
    ([[0, 0, 0], [0, 0, 0]], [[3, 5, 7], [9, 3, 5]]),
    ([[2, 0, 2], [1, 1, 0]], [[3, 3, 9], [5, 5, 7]]),
    ([[0, 1], [2, 0]], [[11, 3], [9, 13]]),
]


@torch.inference_mode()
@pytest.mark.parametrize("k", [1, 3])
def test_nodes_see_the_text_their_ancestors_and_themselves(home, target, k):
    head, _ = load_head(home / "deep", target)
    naive = NaiveHead(home / "deep", target, "eagle", TAPS)
    texts = [[3, 9, 12, 5, 7, 20, 31, 8], [15, 7, 3, 3, 9, 6]]
    rounds = Rounds(head, k, nodes=8)
    known = [naive.read(text) for text in texts]
    for t, _ in driven(head, target, texts, 4, rounds):
        branches, above = rounds.branches(), [[()], [()]]
        for parents, tokens in LEVELS:
            outputs = branches.grow(torch.tensor(parents), torch.tensor(tokens))
            logits = head.logits(outputs).double().numpy()
            for i, text in enumerate(texts):
                last = t - (8 - len(text))
                above[i] = [(*above[i][p], v) for p, v in zip(parents[i], tokens[i], strict=True)]
                for place, path in enumerate(above[i]):
                    expected = naive.draft([*text[: last + 1], *path], last, len(path) + 1, *known[i])[-1]
                    np.testing.assert_allclose(logits[i, place], expected, rtol=1e-4, atol=1e-4)
        with pytest.raises(ValueError, match="a tree of 9 nodes in a room of 8"):
            branches.grow(torch.zeros(2, 1, dtype=torch.int64), torch.full((2, 1), 3))


@torch.inference_mode()
def test_trees_change_nothing_of_the_rounds(home, target):
    head, _ = load_head(home / "deep", target)
    texts = [[3, 9, 12, 5, 7, 20, 31, 8], [15, 7, 3, 3, 9, 6]]
    plain = [outputs for _, outputs in driven(head, target, texts, 3, Rounds(head, 3))]
    rounds = Rounds(head, 3, nodes=8)
    for (_, outputs), expected in zip(driven(head, target, texts, 3, rounds), plain, strict=True):
        torch.testing.assert_close(outputs, expected, rtol=1e-5, atol=1e-5)
        branches = rounds.branches()
        for parents, tokens in LEVELS:
            branches.grow(torch.tensor(parents), torch.tensor(tokens))


@torch.inference_mode()
def test_truncated_heads_grow_no_trees_alone(home, target):
    head, _ = load_head(home / "cut", target)
    rounds = Rounds(head, 1, nodes=8)
    _ = list(driven(head, target, [[3, 9, 12]], 2, rounds))
    with pytest.raises(HeadError, match="a truncated head's branches need the target's own layers at their nodes"):
        rounds.branches().grow(torch.tensor([[0]]), torch.tensor([[5]]))


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")  # weights do not matter here
def test_nodes_stay_where_the_target_is(home, target):
    """On the meta device an operation that mixes devices raises, and so does one that reads values."""
    away = copy.deepcopy(target.model).to("meta")
    head, _ = load_head(home / "deep", dataclasses.replace(target, model=away, device=torch.device("meta")))
    rounds = Rounds(head, 1, nodes=6)
    rounds.begin(pad_left([[3, 4, 5], [6]]), 9, [torch.zeros(2, 3, 32, device="meta")] * 3, PAD)
    rounds.step(torch.tensor([7, 8]), [torch.zeros(2, 32, device="meta")] * 3)
    branches = rounds.branches()
    for _ in range(2):
        outputs = branches.grow(torch.zeros(2, 3, dtype=torch.int64), torch.full((2, 3), 5))
        assert (outputs.device.type, outputs.shape) == ("meta", (2, 3, 32))


# --- as recorded ---------------------------------------------------------------------------------------------------

SHAPES = [
    {"width": 3, "nodes": 10},
    {"width": 2, "nodes": 64},  # more than there are
    {"width": 40, "nodes": 30, "depth": 2},  # wider than the head's vocabulary
    {"width": 1, "nodes": 3},  # a chain, shorter than the drafts
    {"width": 3, "nodes": 10, "checkpoint": "three"},  # heads that do not see each other, fewer than drafts
]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("p_how", [{"temperature": 0.9}, {"temperature": 0.0}])
@torch.inference_mode()
def test_recorded_trees_are_those_of_a_search_by_lists(home, tmp_path, target, shape, p_how):
    """Every node that is expanded by a head in float64, alone; texts end at different rows."""
    drafters = [{"name": "x", "kind": "dynamic-tree", "options": {"checkpoint": "deep", **shape}}]
    depth = shape.get("depth", 3 if "checkpoint" in shape else K)
    config = config_of(
        home, p_how, {"temperature": 1.2}, drafters=drafters, max_new_tokens=8, batch=3, prompts={"file": "few.jsonl"}
    )
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.check() == []
    about = trace.manifest.drafters[0]
    assert (about.rule, about.depth, about.processing.temperature) == ("tree", K, 0.0)
    naive = naive_of(home / shape.get("checkpoint", "deep"), target)
    compared = near = accepted = 0
    for s, begin, end in rows_of(trace):
        prompt, own = text_of(trace, s)
        text = [*prompt, *own]
        logits = target.model(torch.tensor([text])).logits[0, :, :WORDS].double().numpy()
        laws = [None, *(naive_law(row, **p_how)[0] for row in logits)]  # laws[t] is of text[t]
        known = naive.read(text)
        for row in range(begin, end):
            first = len(prompt) + row - begin

            def law_of(path, first=first, text=text, known=known):
                drafted = [*text[: first + 1], *(naive.ids[column] for column in path)]
                return np.log(softmax_of(naive.draft(drafted, first, len(path) + 1, *known)[-1]))

            found, margin = naive_tree(law_of, shape["width"], shape["nodes"], depth)
            if margin < 1e-4:
                near += 1
                continue
            paths = [tuple(int(naive.ids[column]) for column in path) for path in found]
            deepest = max(map(len, paths))
            assert trace.proposed[row, 0] == deepest
            followed = naive_follow(paths, deepest, first + 1, min(K, end - row), text, laws)
            for d, (alpha, gamma) in enumerate(followed):
                assert trace.alpha[row + d, d, 0] == alpha, (row, d)
                np.testing.assert_allclose(trace.gamma[row + d, d, 0], gamma, atol=1e-5)
                compared += 1
                accepted += alpha
            assert float(trace.confidence[row, 0]) == pytest.approx(math.exp(max(law_of(()))), abs=1e-4)
    assert compared > 50
    assert near < compared / 20
    assert accepted > 0 or shape["width"] == 1


def test_texts_that_end_leave_the_others_as_they_are(home, tmp_path):
    """EOS comes often, so rows move; alone, each text gives the same."""
    how = {"temperature": 2.5}
    drafters = [{"name": "x", "kind": "dynamic-tree", "options": {"checkpoint": "deep", "width": 3, "nodes": 9}}]
    for batch in (1, 10):
        config = config_of(home, how, how, drafters=drafters, max_new_tokens=20, batch=batch)
        collect(config, {}, tmp_path / str(batch))
    alone, together = open_trace(tmp_path / "1"), open_trace(tmp_path / "10")
    assert len(set(np.diff(together.offsets).tolist())) > 4
    np.testing.assert_array_equal(alone.token, together.token)
    np.testing.assert_allclose(alone.confidence, together.confidence, atol=1e-5)
    assert (alone.alpha != together.alpha).mean() < 1e-3  # where two nodes tie within rounding
    assert 0.02 < together.alpha[:, 0].mean() < 0.98


def test_a_head_without_a_law_is_named(home, tmp_path, monkeypatch, target):
    how = {"temperature": 0.8}
    drafters = [{"name": "x", "kind": "dynamic-tree", "options": {"checkpoint": "deep", "width": 2, "nodes": 6}}]
    config = config_of(home, how, how, drafters=drafters, batch=6, max_new_tokens=8)
    made = collecting.build_drafters(config, target)
    logits, seen = made[0]._head.logits, [0]

    def spoil(outputs):
        found = logits(outputs)
        if seen[0] == 3 * K + 1:  # the second level of row 3
            found[1, 0, 2] = math.nan
        seen[0] += 1
        return found

    monkeypatch.setattr(made[0]._head, "logits", spoil)
    monkeypatch.setattr(collecting, "build_drafters", lambda *args: made)
    summary = collect(config, {}, tmp_path / "t")
    assert [drop.reason for drop in summary.dropped] == ["logits of 'x' hold NaN at row 3"]


def test_what_is_refused(home, target):
    def made(checkpoint="deep", how=COLD, **options):
        return DynamicTree("x", how, K, home / checkpoint, Options(checkpoint, **options), target)

    with pytest.raises(DrafterError, match="kind truncated; allowed here: eagle or medusa: behind a node off the path"):
        made("cut")
    with pytest.raises(DrafterError, match="drafter 'x': its drafts are certain; allowed temperature: 0"):
        made(how=Processing(0.7))
    with pytest.raises(DrafterError, match="depth is 5; drafts have 4, allowed: at most that"):
        made(depth=5)
    assert made(depth=2).k == 2
    with pytest.raises(DrafterError, match="drafter 'x'"):
        made("nowhere")
    # the texts of a batch stay what the collector says they are
    drafter = made()
    drafter.begin(pad_left([[3, 4, 5]]), 9, {tap: torch.zeros(1, 3, 32) for tap in TAPS})
    trees = drafter.trees(Prefix(torch.tensor([[3, 4, 5, 7]]), before=[torch.zeros(1, 32)] * 4))
    assert set(trees.tokens.flatten().tolist()) <= set(IDS)
