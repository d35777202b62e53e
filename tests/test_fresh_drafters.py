"""Drafters that are made fresh for other texts, and rows that are read at once, against one text read row by row."""

import copy
import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.sizes import few
from tests.strategies_recording import WORDS, tiny_checkpoint, tiny_head
from tests.test_collect import config_of
from tests.test_drafters import texts_of
from tests.test_live_drafting import Text
from traces.collect import build_drafters
from traces.drafters import KINDS
from traces.drafters.base import DrafterError, FlatDrafter, Logits, Prefix, Reading, Trees, fresh_set
from traces.drafters.causal import Causal
from traces.drafters.exit import EarlyExit, Options
from traces.targets import load_target

K = 3
GREEDY, SOFT = {"temperature": 0.0}, {"temperature": 0.9}
LISTED = [
    {"name": "lookup", "kind": "lookup", "processing": GREEDY, "options": {"longest": 3, "shortest": 1}},
    {"name": "ngram", "kind": "ngram", "options": {"texts": "texts.safetensors"}},
    {"name": "rest", "kind": "retrieval", "processing": GREEDY, "options": {"texts": "texts.safetensors", "nodes": 5}},
    {"name": "chain", "kind": "retrieval-chain", "options": {"texts": "texts.safetensors"}},
    {"name": "exit", "kind": "exit", "options": {"layer": 2}},
    {"name": "small", "kind": "causal", "options": {"model": "small"}},
    {"name": "cut", "kind": "truncated", "options": {"checkpoint": "cut"}},
    {"name": "deep", "kind": "head", "options": {"checkpoint": "deep"}},
    {"name": "ahead", "kind": "medusa", "options": {"checkpoint": "ahead"}},
    {"name": "grown", "kind": "dynamic-tree", "processing": GREEDY,
     "options": {"checkpoint": "deep", "width": 2, "nodes": 5}},
    {"name": "spread", "kind": "dynamic-tree", "processing": GREEDY,
     "options": {"checkpoint": "ahead", "width": 2, "nodes": 5}},
    {"name": "tree", "kind": "tree", "processing": GREEDY, "options": {"over": "deep", "nodes": 5}},
    {"name": "drafts", "kind": "several", "options": {"over": "small", "drafts": 2}},
]  # fmt: skip
FLAT = ["ngram", "chain", "exit", "small", "cut"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fresh")
    target = load_target(str(tiny_checkpoint(folder / "target")))
    tiny_checkpoint(folder / "small", seed=3, layers=2)
    ids = list(range(2, WORDS, 2))
    tiny_head(folder / "deep", target, "eagle", (0, 2, 3), ids)
    tiny_head(folder / "cut", target, "truncated", (2,), ids)
    tiny_head(folder / "ahead", target, "medusa", (1, 3), ids, depth=2)
    rng = np.random.default_rng(4)
    samples = [(rng.integers(2, 9, 4).tolist(), rng.integers(2, 9, 30).tolist(), 0) for _ in range(4)]
    texts_of(samples, WORDS, "f" * 64, target.tokenizer_sha256).save(folder / "texts.safetensors")
    return folder


@pytest.fixture(scope="module")
def target(home):
    return load_target(str(home / "target"))


@pytest.fixture(scope="module")
def pool(home, target):
    return build_drafters(config_of(home, SOFT, SOFT, drafters=LISTED, k=K), target)


def parts(found):
    """The numbers of what a call returned."""
    if isinstance(found, Logits):
        return [found.values]
    return [found.tokens, found.parent] if isinstance(found, Trees) else [found.tokens, found.match]


def test_all_kinds_are_here():
    assert {entry["kind"] for entry in LISTED} == set(KINDS)


text = st.lists(st.integers(2, 9), min_size=5, max_size=9)


@torch.inference_mode()
@settings(max_examples=few(8, 3))
@given(st.lists(text, min_size=2, max_size=3), st.integers(1, 3), st.data())
def test_texts_drafted_for_in_turn_get_what_each_gets_alone(target, pool, written, width, data):
    """Bits; row by row, the texts in any order, by drafters made fresh of ones that have read something else."""
    texts = [Text(target, tokens, width) for tokens in written]
    alone = [drafter for drafter in pool if not isinstance(drafter, Reading)]  # readings are driven with those
    expected = [[[parts(found) for _, found in each.calls(drafter)] for drafter in alone] for each in texts]
    running = [
        [(drafter.name, each.calls(drafter), iter(rows)) for drafter, rows in zip(own, values, strict=True)]
        for each, own, values in zip(texts, [fresh_set(alone) for _ in texts], expected, strict=True)
    ]
    for turn in data.draw(st.permutations([s for s, each in enumerate(texts) for _ in each.prefixes])):
        for name, calls, rows in running[turn]:
            for got, value in zip(parts(next(calls)[1]), next(rows), strict=True):
                torch.testing.assert_close(got, value, rtol=0, atol=0, equal_nan=True, msg=name)


def held(thing, seen=None, depth=0):
    """Modules, and tensors of more than a few numbers, that an object holds at any depth."""
    seen = {} if seen is None else seen
    if isinstance(thing, nn.Module | Tensor | np.ndarray):
        if isinstance(thing, nn.Module) or np.prod(thing.shape) > 16:
            seen[id(thing)] = thing
    elif depth < 5:
        inner = list(vars(thing).values()) if hasattr(thing, "__dict__") else thing
        for value in inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list | tuple) else ():
            held(value, seen, depth + 1)
    return seen


def test_weights_and_indices_are_shared(home, target):
    pool = build_drafters(config_of(home, SOFT, SOFT, drafters=LISTED, k=K), target)
    for drafter, other in zip(pool, fresh_set(pool), strict=True):
        assert other is not drafter
        assert set(held(other)) == set(held(drafter)), drafter.name
        assert held(drafter) or drafter.kind in ("lookup", "tree", "several")
        assert other.describe() == drafter.describe()


def test_readings_read_the_fresh_drafters(pool):
    made = dict(zip((drafter.name for drafter in pool), fresh_set(pool[::-1])[::-1], strict=True))
    assert made["tree"].over is made["deep"]
    assert made["drafts"].over is made["small"]
    tree = next(drafter for drafter in pool if drafter.name == "tree")
    first, second = fresh_set([tree, tree])  # without what it reads
    assert first is second
    assert first.over is not tree.over
    assert tree.over in pool


# --- blocks --------------------------------------------------------------------------------------------------------


def blocks(drafter, each, cuts):
    """Laws (T, W) of all rows of a text, read in blocks that end at the cuts; the last row's too."""
    rows, found, begin = list(each.prefixes), [], 0
    for end in sorted({*cuts, len(rows)}):
        own = [each.prefixes[row] for row in rows[begin:end]]
        hidden = [torch.cat(states) for states in zip(*(prefix.hidden for prefix in own), strict=True)]
        if len(own) == 1 and end % 2:
            found.append(drafter.logits(own[0]).values)
        else:
            found.append(drafter.block(Prefix(own[-1].tokens, hidden), len(own)).values)
        begin = end
    return torch.cat(found)


@torch.inference_mode()
@pytest.mark.parametrize("name", FLAT)
@settings(max_examples=few(20, 4))
@given(text, st.integers(1, 3), st.data())
def test_a_block_is_its_rows(target, pool, name, written, width, data):
    """Any split of a text into blocks, single rows among them."""
    drafter = next(drafter for drafter in pool if drafter.name == name)
    each = Text(target, written, width)
    expected = torch.cat([found.values for _, found in each.calls(drafter)])
    cuts = data.draw(st.sets(st.integers(1, len(written) - width)))
    drafter.begin(each.tokens[:, :width], 40, each.states)
    found = blocks(drafter, each, cuts)
    torch.testing.assert_close(found.softmax(-1), expected.softmax(-1), rtol=0, atol=1e-5)


@torch.inference_mode()
def test_blocks_of_a_float64_model_are_their_rows(target, pool):
    """What float32 hides: within 1e-12."""
    wide = dataclasses.replace(target, model=copy.deepcopy(target.model).double())
    how = pool[0].processing
    each = Text(wide, [5, 6, 7, 8, 3, 4, 9, 2, 6], 2)
    for drafter in (EarlyExit("x", how, Options(1), wide), Causal("x", how, wide, wide)):
        expected = torch.cat([found.values for _, found in each.calls(drafter)])
        assert expected.dtype == torch.float64
        for cuts in ((), (3,), (1, 2, 6)):
            drafter.begin(each.tokens[:, :2], 40, each.states)
            torch.testing.assert_close(blocks(drafter, each, cuts), expected, rtol=0, atol=1e-12)


@torch.inference_mode()
def test_kinds_without_a_pass_of_their_own_read_row_by_row(target, pool):
    """Each row with the states at its own token."""
    drafter = next(drafter for drafter in pool if drafter.name == "exit")
    hidden = target.model(torch.tensor([[5, 6, 7, 8]]), output_hidden_states=True).hidden_states
    prefix = Prefix(torch.tensor([[5, 6, 7, 8]]), {layer: state[0, 1:] for layer, state in enumerate(hidden)})
    found = FlatDrafter.block(drafter, prefix, 3).values
    torch.testing.assert_close(found, drafter.block(prefix, 3).values, rtol=1e-5, atol=1e-5)


def test_blocks_are_of_one_text(pool):
    for drafter in pool:
        if drafter.name in FLAT:
            for tokens, count in (([[5, 6], [7, 8]], 1), ([[5, 6]], 0), ([[5, 6]], 3)):
                with pytest.raises(DrafterError, match=f"drafter '{drafter.name}': block of {count} tokens of"):
                    drafter.block(Prefix(torch.tensor(tokens)), count)
