"""Recorded lengths against rounds that really draft: on a greedy path they must be the same.

A live round sees the text up to its start, drafts the most likely tokens one by one, each read by the drafter before
the next, and has the target verify them. It knows nothing of the path. Rounds in which two largest logits, of drafter
or target, lie within 1e-3 of each other are counted, not compared: rounding decides there.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import hedgelab as hl
from hedgelab.trace import open_trace
from tests.sizes import thorough
from tests.strategies_recording import (
    WORDS,
    NaiveHead,
    naive_lookup,
    naive_of,
    tiny_checkpoint,
    tiny_head,
    tiny_prompts,
)
from tests.test_collect import config_of, rows_of, text_of
from traces.checkpoints import read_card
from traces.collect import collect
from traces.targets import load_target

GREEDY = {"temperature": 0.0}
K = 5
NEAR = 1e-3
REAL = "smollm2-135m"
POOL = Path(__file__).parent.parent / "traces" / "data" / "pool" / "heads"
TRAINED = [POOL / name for name in ("eagle-sql", "truncated-python")]  # one of each kind: a minute for the two
LOOKUP = {"name": "lookup", "kind": "lookup", "processing": GREEDY, "options": {"longest": 3, "shortest": 1}}


class LiveHead:
    """Drafts of a trained head for one text."""

    def __init__(self, head, text):
        self.head, self.text, self.known = head, text, head.read(text)

    def draft(self, begin, k):
        return self.head.draft_alone(self.text, begin, k, *self.known)


class LiveLookup:
    """Drafts of prompt lookup: nothing in them can tie."""

    def __init__(self, text):
        self.text = text

    def draft(self, begin, k):
        tokens = naive_lookup(self.text[: begin + 1], 3, 1, k)[0]
        return tokens, [np.inf] * len(tokens)


@torch.inference_mode()
def verified(target, seen, drafts, leads):
    """How many drafts behind the tokens seen the target accepts, and the smallest lead on the way there."""
    logits = target.model(torch.tensor([[*seen, *drafts]])).logits[0, len(seen) - 1 :, : target.vocabulary].double()
    accepted, smallest = 0, np.inf
    for draft, lead, row in zip(drafts, leads, logits, strict=False):
        first, second = torch.topk(row, 2).values.tolist()
        smallest = min(smallest, lead, first - second)
        if draft != int(row.argmax()):
            break
        accepted += 1
    return accepted, smallest


def recorded(trace, row, end, i):
    """Accepted drafts of a round that begins at this row, by the trace's alpha."""
    accepted = 0
    while accepted < trace.k and row + accepted < end and trace.alpha[row + accepted, accepted, i] == 1:
        accepted += 1
    return accepted


def assert_lengths_are_live(trace, target, heads):
    """Hold every drafter's accepted length at every row against a live round, and the engine's rounds against walks.

    heads : name -> NaiveHead of all drafters but lookup. Returns the lengths seen, drafter -> set; at most one round in
    fifty may be too near to call.
    """
    seen = {name: set() for name in trace.drafters}
    near = rounds = 0
    for i, name in enumerate(trace.drafters):
        run = hl.replay(trace, hl.learner("fixed", drafter=i), k=trace.k)
        committed = np.split(run.committed, np.cumsum(run.sequence_rounds)[:-1])
        for s, begin, end in rows_of(trace):
            prompt, own = text_of(trace, s)
            text = [*prompt, *own]
            live = LiveHead(heads[name], text) if name in heads else LiveLookup(text)
            lengths = {}
            for row in range(begin, end):
                first = len(prompt) + row - begin  # the last token that the round has read
                drafts, leads = live.draft(first, min(trace.k, end - row))
                accepted, lead = verified(target, text[: first + 1], drafts, leads)
                rounds += 1
                if lead < NEAR:
                    near += 1
                    continue
                assert accepted == recorded(trace, row, end, i), (name, s, row)
                lengths[row] = accepted
                seen[name].add(accepted)
            walk, row = [], begin
            while row in lengths:
                walk.append(min(lengths[row] + 1, end - row))
                row += walk[-1]
            if row == end:  # no round on the way was too near
                assert walk == committed[s].tolist(), (name, s)
    assert near <= rounds / 50, f"{near} of {rounds} rounds are too near to call"
    return seen


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A tiny target, prompts, and untrained heads over the few ids that its greedy texts are made of.

    With few ids even they are right now and then.
    """
    folder = tmp_path_factory.mktemp("live")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    tiny_prompts(folder / "prompts.jsonl", 8)
    collect(config_of(folder, GREEDY, GREEDY, drafters=[LOOKUP], max_new_tokens=16), {}, folder / "first")
    ids, counts = np.unique(open_trace(folder / "first").token, return_counts=True)
    common = np.sort(ids[np.argsort(-counts, kind="stable")[:3]])
    target = load_target(str(folder / "target"))
    tiny_head(folder / "deep", target, "eagle", (0, 2, 3), common)
    tiny_head(folder / "cut", target, "truncated", (2,), ids)
    return folder


@pytest.mark.parametrize("k", [1, K])
def test_greedy_lengths_are_those_of_live_drafting(home, tmp_path, k):
    target = load_target(str(home / "target"))
    drafters = [
        {"name": "deep", "kind": "head", "options": {"checkpoint": str(home / "deep")}},
        LOOKUP,
        {"name": "cut", "kind": "truncated", "options": {"checkpoint": str(home / "cut")}},
    ]
    collect(config_of(home, GREEDY, GREEDY, drafters=drafters, max_new_tokens=16, k=k), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert len({len(trace.prompt_tokens(s)) for s in range(trace.sequences)}) > 2
    heads = {
        "deep": NaiveHead(home / "deep", target, "eagle", (0, 2, 3)),
        "cut": NaiveHead(home / "cut", target, "truncated", (2,)),
    }
    seen = assert_lengths_are_live(trace, target, heads)
    assert all(len(lengths) > 1 for lengths in seen.values()), seen
    assert k == 1 or max(seen["deep"]) > 1 < max(seen["cut"]), seen


def test_a_wrong_length_is_found(home, tmp_path):
    """The comparison fails when one acceptance is recorded wrongly."""
    target = load_target(str(home / "target"))
    drafters = [{"name": "deep", "kind": "head", "options": {"checkpoint": str(home / "deep")}}]
    config = config_of(home, GREEDY, GREEDY, drafters=drafters, max_new_tokens=8, k=K)
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    alpha = trace.alpha.copy()
    alpha[3, 0, 0] = 1 - alpha[3, 0, 0]
    trace.alpha = alpha  # a cached property
    with pytest.raises(AssertionError, match="deep"):
        assert_lengths_are_live(trace, target, {"deep": NaiveHead(home / "deep", target, "eagle", (0, 2, 3))})


@pytest.mark.parametrize(
    "folder", thorough([None, *TRAINED], [None, TRAINED[0]]), ids=lambda folder: folder.name if folder else "lookup"
)
def test_lengths_on_the_real_target(tmp_path, folder):
    """Prompt lookup, and the trained head of a folder, on two short texts."""
    assert_real_lengths_are_live(tmp_path, folder)


def assert_real_lengths_are_live(tmp_path, folder):
    """Two greedy texts of different lengths, with prompt lookup and, if given, the checkpoint of `folder`."""
    prompts = [("name three rivers in Europe", "a"), ("print the squares of 1 to 5: 1, 4, 9,", "b")]
    messages = [{"id": d, "domain": d, "entity": "", "messages": [{"role": "user", "content": c}]} for c, d in prompts]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, messages)))
    drafters, heads = [LOOKUP], {}
    target = load_target(REAL)
    if folder:
        card = read_card(folder)
        kind = {"eagle": "head", "truncated": "truncated", "medusa": "medusa"}[card.kind]
        drafters.append({"name": "trained", "kind": kind, "options": {"checkpoint": str(folder.resolve())}})
        heads["trained"] = naive_of(folder, target)
    config = config_of(tmp_path, GREEDY, GREEDY, drafters=drafters, max_new_tokens=9, k=K)
    collect(dataclasses.replace(config, target=REAL), {}, tmp_path / "t")
    assert_lengths_are_live(open_trace(tmp_path / "t"), target, heads)
