"""Medusa heads: recorded scores against rounds that are really started, the unroll against the recorder, refusals."""

import copy
import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgelab.storage.manifest import Processing
from hedgelab.trace import open_trace
from tests.sizes import few
from tests.strategies_recording import (
    WORDS,
    NaiveMedusa,
    naive_alpha_gamma,
    naive_law,
    naive_of,
    tiny_checkpoint,
    tiny_head,
    tiny_prompts,
)
from tests.test_collect import config_of, contents, rows_of, text_of
from tests.test_live_drafts import assert_lengths_are_live
from traces import collect as collecting
from traces.checkpoints import load_head
from traces.collect import collect
from traces.config import ConfigError, parse_train_config
from traces.drafters.base import PAD, DrafterError, Prefix, pad_left
from traces.drafters.medusa import Medusa
from traces.heads import Head
from traces.targets import load_target

K = 4
IDS = sorted({0, *range(3, WORDS, 2)})
LAST = 3  # layers of the tiny target: this state has passed the final norm
MADE = {  # taps, whether they see the last token, number of heads
    "published": ((LAST,), False, 4),
    "inner": ((1,), False, 3),
    "fused": ((0, LAST, 2), True, 6),
    "short": ((2, LAST), True, 2),
}
HEADS = [{"name": name, "kind": "medusa", "options": {"checkpoint": name}} for name in MADE]
SETTINGS = [
    ({"temperature": 0.8}, {"temperature": 1.2}),
    ({"temperature": 1.3, "top_p": 0.9}, {"temperature": 0.9, "top_k": 9}),
    ({"temperature": 0.9}, {"temperature": 0.0}),
    ({"temperature": 0.0}, {"temperature": 0.8}),
    ({"temperature": 0.0}, {"temperature": 0.0}),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a tiny target, prompts of several lengths, and heads that were never trained."""
    folder = tmp_path_factory.mktemp("medusa")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    tiny_prompts(folder / "few.jsonl", 3, longest=12)
    tiny_prompts(folder / "prompts.jsonl", 6)
    target = load_target(str(folder / "target"))
    for name, (taps, last_token, depth) in MADE.items():
        tiny_head(folder / name, target, "medusa", taps, IDS, depth=depth, last_token=last_token)
    return folder


@pytest.fixture(scope="module")
def target(home):
    return load_target(str(home / "target"))


def assert_agrees(trace, home, target, p_how, q_how, rows_at_least):
    """Hold every drafter, row and depth against rounds that are started one by one, within 1e-5.

    alpha and gamma of row t and depth d are those of the round that began at t - d. A certain draft is followed only
    while it is the text: behind that alpha is 0 and gamma NaN. Behind the last head nothing is drafted: both 0.
    """
    twins = {name: naive_of(home / name, target) for name in MADE}
    rows = near = compared = 0
    for s, begin, end in rows_of(trace):
        prompt, own = text_of(trace, s)
        text = [*prompt, *own]
        with torch.inference_mode():
            logits = target.model(torch.tensor([text])).logits[0, :, :WORDS].double().numpy()
        laws = [naive_law(row, **p_how) for row in logits]
        for i, name in enumerate(trace.drafters):
            known = twins[name].read(text)
            for row in range(begin, end):
                rows += 1
                first = len(prompt) + row - begin  # the round's prefix ends with this token
                drafted = twins[name].draft(text, first, min(trace.k, end - row), *known)
                followed = True
                for d in range(min(trace.k, end - row)):
                    got = float(trace.alpha[row + d, d, i]), float(trace.gamma[row + d, d, i])
                    if d >= MADE[name][2]:
                        assert got == (0.0, 0.0), (name, row, d)
                        continue
                    wide = np.full(WORDS, -math.inf)
                    wide[IDS] = drafted[d]
                    (p, edge), (q, its_edge) = laws[first + d], naive_law(wide, **q_how)
                    x = text[first + d + 1]
                    alpha, gamma = naive_alpha_gamma(p, q, x)
                    if q_how["temperature"] == 0:
                        best = np.sort(drafted[d])[-2:]
                        its_edge = best[1] - best[0]
                        alpha, gamma = (alpha, gamma) if followed else (0.0, math.nan)
                        followed = followed and q[x] == 1
                    if min(edge, its_edge) < 2e-5:  # a cut may fall elsewhere where two values nearly tie
                        near += 1
                        break
                    np.testing.assert_allclose(got, (alpha, gamma), atol=1e-5, err_msg=f"{name} {row} {d}")
                    compared += 1
    assert rows >= rows_at_least
    assert near <= compared / 30


@pytest.mark.parametrize(("p_how", "q_how"), SETTINGS)
def test_recorded_scores_are_those_of_drafts_really_started(home, tmp_path, target, p_how, q_how):
    config = config_of(home, p_how, q_how, drafters=HEADS, max_new_tokens=13, prompts={"file": "few.jsonl"}, batch=4)
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.check() == []
    assert_agrees(trace, home, target, p_how, q_how, 100)
    assert [d.depth for d in trace.manifest.drafters] == [K] * len(MADE)
    assert (trace.proposed == [min(K, depth) for _, _, depth in MADE.values()]).all()
    assert {d.rule for d in trace.manifest.drafters} == {"one_hot" if q_how["temperature"] == 0 else "chain"}
    assert [(d.details["heads"], d.details["last_token"]) for d in trace.manifest.drafters] == [
        (depth, last_token) for _, last_token, depth in MADE.values()
    ]


@pytest.mark.parametrize("k", [1, 8])
def test_texts_that_end_early_with_more_and_fewer_heads_than_depths(home, tmp_path, target, k):
    how = {"temperature": 1.6}  # EOS comes often, so that rows move
    collect(config_of(home, how, how, drafters=HEADS, max_new_tokens=26, batch=12, k=k), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    lengths = np.diff(trace.offsets)
    assert len(set(lengths.tolist())) > 4
    assert lengths.min() < 8 < lengths.max()
    assert_agrees(trace, home, target, how, how, 240)


def test_nothing_is_drafted_by_rounds_before_the_first_row(home, tmp_path):
    how = {"temperature": 1.0}
    collect(config_of(home, how, how, drafters=HEADS, max_new_tokens=7), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    for _, begin, end in rows_of(trace):
        for t in range(min(K - 1, end - begin)):
            assert (trace.alpha[begin + t, t + 1 :] == 0).all()
            assert (trace.gamma[begin + t, t + 1 :] == 0).all()
            assert (trace.gamma[begin + t, : t + 1, 2] > 0).all()


def test_greedy_lengths_are_those_of_live_drafting(tmp_path, target, home):
    """A chain of each head's most likely token, as long as the target agrees; with few ids they often do."""
    greedy = {"temperature": 0.0}
    config = config_of(home, greedy, greedy, drafters=HEADS[:1], max_new_tokens=16)
    collect(config, {}, tmp_path / "first")
    ids, counts = np.unique(open_trace(tmp_path / "first").token, return_counts=True)
    common = np.sort(ids[np.argsort(-counts, kind="stable")[:3]])
    drafters, twins = [], {}
    for name, (taps, last_token, depth) in MADE.items():
        folder = tiny_head(tmp_path / name, target, "medusa", taps, common, depth=depth, last_token=last_token)
        drafters.append({"name": name, "kind": "medusa", "options": {"checkpoint": str(folder)}})
        twins[name] = NaiveMedusa(folder, target, taps, last_token)
    collect(config_of(home, greedy, greedy, drafters=drafters, max_new_tokens=16), {}, tmp_path / "t")
    seen = assert_lengths_are_live(open_trace(tmp_path / "t"), target, twins)
    assert all(len(lengths) > 1 for lengths in seen.values()), seen
    assert max(max(lengths) for lengths in seen.values()) > 1


def test_means_of_alpha_and_gamma_agree(home, tmp_path):
    """E(alpha | prefix) = gamma at every depth: within 4 standard errors, false alarms 6.3e-5 each, a fixed seed."""
    how = {"temperature": 1.0}
    prompts = {"file": "prompts.jsonl", "samples": 4}
    config = config_of(
        home, how, {"temperature": 1.3}, drafters=HEADS, max_new_tokens=60, prompts=prompts, batch=48
    )  # fmt: skip
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.rows > 1000
    for i, (name, (_, _, depth)) in enumerate(MADE.items()):
        for d in range(min(K, depth)):
            begun = np.concatenate([np.arange(begin + d, end) for _, begin, end in rows_of(trace)])
            off = (trace.alpha[begun, d, i] - trace.gamma[begun, d, i]).astype(np.float64)
            error = off.std() / math.sqrt(len(off))
            assert error > 0
            assert abs(off.mean()) <= 4 * error + 1e-6, (name, d)


def test_resuming_ends_with_the_same_bytes(home, tmp_path, monkeypatch):
    how = {"temperature": 0.8}
    config = config_of(home, how, how, drafters=HEADS, max_new_tokens=9)
    collect(config, {}, tmp_path / "whole")
    row, calls = collecting.Batch.row, [0]

    def stop(self, t):
        calls[0] += 1
        if calls[0] == 12:  # within the second of three shards
            raise KeyboardInterrupt
        row(self, t)

    with monkeypatch.context() as patch:
        patch.setattr(collecting.Batch, "row", stop)
        with pytest.raises(KeyboardInterrupt):
            collect(config, {}, tmp_path / "t")
    collect(config, {}, tmp_path / "t", resume=True)
    assert contents(tmp_path / "t") == contents(tmp_path / "whole")


# --- the unroll ----------------------------------------------------------------------------------------------------


@torch.inference_mode()
@settings(max_examples=few(20, 5))
@given(
    name=st.sampled_from(sorted(MADE)),
    sizes=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=4),
    begin=st.integers(0, 1),
    seed=st.integers(0, 99),
)
def test_the_unroll_of_training_is_the_recorders(home, target, name, sizes, begin, seed):
    """sizes : tokens of prompt and text. Whatever stands at padding; within 1e-5."""
    head, card = load_head(home / name, target)
    generator = torch.Generator().manual_seed(seed)
    width, longest = max(prompt for prompt, _ in sizes), max(own for _, own in sizes)
    tokens = torch.zeros(len(sizes), width + longest, dtype=torch.int64)
    real = torch.zeros(tokens.shape, dtype=torch.bool)
    for row, (prompt, own) in enumerate(sizes):
        place = slice(width - prompt, width + own)
        tokens[row, place] = torch.randint(2, WORDS, (prompt + own,), generator=generator)
        real[row, place] = True
    states = [torch.randn(*tokens.shape, 32, generator=generator) for _ in head.taps]
    for state in states:
        state[~real] = math.nan
    begin = width - begin
    unrolled = list(head.unroll(tokens, states, real, card.depth, begin))
    drafter = Medusa(name, Processing(0.8), 8, home / name, target)
    prompts = torch.where(real, tokens, PAD)[:, :width]
    drafter.begin(prompts, width + longest, dict(zip(head.taps, (s[:, :width] for s in states), strict=True)))
    checked = 0
    for t in range(width, width + longest):
        hidden = [torch.full((len(sizes), 32), math.nan)] * (LAST + 1)
        for tap, state in zip(head.taps, states, strict=True):
            hidden[tap] = state[:, t - 1]
        found = drafter.logits(Prefix(tokens[:, : t + 1], before=hidden)).values
        assert found.shape == (len(sizes), card.depth, len(IDS))
        for d in range(min(card.depth, t - width + 1)):
            trained = head.logits(unrolled[d][:, t - begin])
            torch.testing.assert_close(found[real[:, t], d], trained[real[:, t]], rtol=1e-5, atol=1e-5)
            checked += int(real[:, t].sum())
    assert checked >= sum(own for _, own in sizes)
    assert {out.shape for out in unrolled} == {(len(sizes), width + longest - begin, 32)}


@torch.inference_mode()
@pytest.mark.parametrize("name", ["published", "fused"])
def test_heads_before_training_give_the_targets_own_next_token(target, name):
    """Cai et al. start there: on the last state every head is the target's output rows."""
    taps = (LAST,) if name == "published" else (0, 2, LAST)
    head = Head(target, "medusa", taps, torch.tensor(IDS), depth=3, last_token=name == "fused")
    tokens = torch.randint(2, WORDS, (2, 9), generator=torch.Generator().manual_seed(1))
    out = target.model(tokens, output_hidden_states=True)
    states = [out.hidden_states[tap] for tap in taps]
    for d, outputs in enumerate(head.unroll(tokens, states, torch.ones(2, 9, dtype=torch.bool), 3)):
        expected = out.logits[
            :, : 9 - d - 1, IDS
        ]  # a round that begins behind x_t reads what the target knew at x_{t-1}
        torch.testing.assert_close(head.logits(outputs)[:, d + 1 :], expected, rtol=1e-5, atol=1e-5)


def test_every_part_is_trained_and_nothing_of_the_target(target):
    head = Head(target, "medusa", (1, LAST), torch.tensor(IDS), depth=3)
    assert {name.split(".")[0] for name in head.state_dict()} == {"fuse", "join", "blocks"}
    states = [torch.randn(1, 6, 32, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    tokens = torch.randint(2, WORDS, (1, 6), generator=torch.Generator().manual_seed(2))
    outputs = list(head.unroll(tokens, states, torch.ones(1, 6, dtype=torch.bool), 3))
    head.logits(torch.cat(outputs)).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in head.parameters())
    assert all(weight.grad is None for weight in target.model.parameters())
    published = Head(target, "medusa", (LAST,), torch.tensor(IDS), depth=2, last_token=False)
    assert {name.split(".")[0] for name in published.state_dict()} == {"blocks"}


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")  # weights do not matter here
def test_nothing_stays_on_the_cpu(home, target):
    """On the meta device an operation that mixes devices raises, and so does one that reads values."""
    away = dataclasses.replace(target, model=copy.deepcopy(target.model).to("meta"), device=torch.device("meta"))
    drafter = Medusa("fused", Processing(0.8), K, home / "fused", away)
    head, taps = drafter._head, drafter.taps
    assert {tensor.device.type for tensor in (*head.parameters(), *head.buffers())} == {"meta"}
    tokens = pad_left([[3, 4, 5], [6]])  # the collector's texts stay on the CPU
    drafter.begin(tokens, 9, {tap: torch.zeros(2, 3, 32, device="meta") for tap in taps})
    hidden = [torch.zeros(2, 32, device="meta") for _ in range(LAST + 1)]
    found = drafter.logits(Prefix(tokens, before=hidden))
    assert (found.values.device.type, found.values.dtype, found.values.shape[:2]) == ("meta", torch.float32, (2, K))
    drafter.keep(torch.tensor([1]))
    assert len(drafter.logits(Prefix(tokens[1:], before=[state[1:] for state in hidden])).values) == 1


# --- what is refused -----------------------------------------------------------------------------------------------


def test_other_kinds_and_settings_are_refused(home, tmp_path, target):
    tiny_head(tmp_path / "eagle", target, "eagle", (1,), IDS)
    with pytest.raises(DrafterError, match=r"drafter 'x': .* kind eagle; allowed here: medusa"):
        Medusa("x", Processing(1.0), K, tmp_path / "eagle", target)
    document = {"name": "x", "texts": ["t"], "temperature": 1.0, "steps": 1, "taps": [1], "last_token": False}
    assert not parse_train_config({**document, "kind": "medusa", "depth": 16}).last_token
    with pytest.raises(ConfigError, match=r"config.last_token: is false; only medusa heads can do without"):
        parse_train_config({**document, "kind": "eagle"})
