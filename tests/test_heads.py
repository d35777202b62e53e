"""Trained heads: recorded laws against drafts that are really started, and what loading refuses."""

import copy
import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hedgelab.storage.manifest import Processing
from hedgelab.trace import open_trace
from tests.strategies_recording import (
    WORDS,
    NaiveHead,
    naive_alpha_gamma,
    naive_law,
    tiny_checkpoint,
    tiny_head,
    tiny_prompts,
)
from tests.test_collect import config_of, contents, recorded_of, rows_of, text_of
from traces import collect as collecting
from traces import scoring
from traces.acceptance import alpha_gamma
from traces.checkpoints import load_head, read_card
from traces.collect import collect
from traces.drafters.base import PAD, DrafterError, Prefix, pad_left
from traces.drafters.head import TrainedHead
from traces.drafters.truncated import Truncated
from traces.heads import Head, HeadError, Rounds
from traces.sampling import process
from traces.targets import load_target

K = 4
IDS = sorted({0, *range(3, WORDS, 2)})
MADE = {"deep": ("eagle", (0, 2, 3)), "one": ("eagle", (1,)), "cut": ("truncated", (2,))}
HEADS = [
    {"name": "deep", "kind": "head", "options": {"checkpoint": "deep"}},
    {"name": "cut", "kind": "truncated", "options": {"checkpoint": "cut"}},
    {"name": "lookup", "kind": "lookup", "processing": {"temperature": 0}, "options": {"longest": 3, "shortest": 1}},
    {"name": "one", "kind": "head", "options": {"checkpoint": "one"}},
]
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
    folder = tmp_path_factory.mktemp("heads")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    tiny_prompts(folder / "prompts.jsonl", 6)
    tiny_prompts(folder / "few.jsonl", 3, longest=12)
    target = load_target(str(folder / "target"))
    for name, (kind, taps) in MADE.items():
        tiny_head(folder / name, target, kind, taps, IDS)
    return folder


@pytest.fixture(scope="module")
def target(home):
    return load_target(str(home / "target"))


def law_of(logits, ids, how):
    wide = np.full(WORDS, -math.inf)
    wide[ids] = logits
    return naive_law(wide, **how)


def assert_agrees(trace, home, target, p_how, q_how, rows_at_least):
    """Hold every drafter, row and depth against rounds that are started one by one, within 1e-4.

    A certain draft is followed only while it is the text: behind that alpha is 0 and gamma NaN.
    """
    heads = {name: NaiveHead(home / name, target, *MADE[name]) for name in MADE}
    rows = near = compared = 0
    for s, begin, end in rows_of(trace):
        prompt, own = text_of(trace, s)
        text = [*prompt, *own]
        with torch.inference_mode():
            logits = target.model(torch.tensor([text])).logits[0, :, :WORDS].double().numpy()
        laws = [naive_law(row, **p_how) for row in logits]
        known = {name: head.read(text) for name, head in heads.items()}
        for row in range(begin, end):  # the round that begins at this row
            rows += 1
            first = len(prompt) + row - begin  # its prefix ends with this token
            for i, name in enumerate(trace.drafters):
                if name not in heads:
                    continue
                depth = min(trace.k if trace.manifest.drafters[i].depth > 1 else 1, end - row)
                drafted = heads[name].draft(text, first, depth, *known[name])
                followed = True
                for d, values in enumerate(drafted):
                    p, edge = laws[first + d]
                    q, its_edge = law_of(values, heads[name].ids, q_how)
                    x = text[first + d + 1]
                    alpha, gamma = naive_alpha_gamma(p, q, x)
                    if q_how["temperature"] == 0:
                        best = np.sort(values)[-2:]
                        its_edge = best[1] - best[0]
                        alpha, gamma = (alpha, gamma) if followed else (0.0, math.nan)
                        followed = followed and q[x] == 1
                    if min(edge, its_edge) < 2e-5:  # a cut may fall elsewhere where two values nearly tie
                        near += 1
                        break
                    got = float(trace.alpha[row + d, d, i]), float(trace.gamma[row + d, d, i])
                    np.testing.assert_allclose(got, (alpha, gamma), atol=1e-4, err_msg=f"{name} {row} {d}")
                    compared += 1
                    if d == 0:
                        at_one = np.exp(values - values.max()) / np.exp(values - values.max()).sum()
                        sure = max(at_one) if q_how["temperature"] == 0 else max(q)
                        assert float(trace.confidence[row, i]) == pytest.approx(sure, abs=1e-4)
    assert rows >= rows_at_least
    assert near <= compared / 30


@pytest.mark.parametrize(("p_how", "q_how"), SETTINGS)
def test_recorded_laws_are_those_of_drafts_really_started(home, tmp_path, target, p_how, q_how):
    config = config_of(home, p_how, q_how, drafters=HEADS, max_new_tokens=13, prompts={"file": "few.jsonl"}, batch=4)
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.check() == []
    assert_agrees(trace, home, target, p_how, q_how, 25)
    assert [d.depth for d in trace.manifest.drafters] == [K, 1, K, K]
    assert (trace.proposed[:, [0, 3]] == K).all()
    rule = "one_hot" if q_how["temperature"] == 0 else "chain"
    assert [d.rule for d in trace.manifest.drafters] == [rule, rule, "one_hot", rule]


def test_texts_that_end_early_and_rows_that_move(home, tmp_path, target):
    how = {"temperature": 1.6}  # EOS comes often
    config = config_of(home, how, how, drafters=HEADS[:2], max_new_tokens=26, batch=12)
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    lengths = np.diff(trace.offsets)
    assert len(set(trace.stop[lengths < 25])) > 0
    assert len(set(lengths.tolist())) > 4
    assert_agrees(trace, home, target, how, how, 60)


def test_eight_drafts_on_texts_of_different_lengths(home, tmp_path, target):
    how = {"temperature": 1.6}
    config = config_of(home, how, {"temperature": 1.0}, drafters=HEADS[:1], max_new_tokens=22, k=8, batch=8)
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    lengths = np.diff(trace.offsets)
    assert trace.manifest.drafters[0].depth == 8
    assert lengths.min() < 8 < lengths.max()
    assert len({len(trace.prompt_tokens(s)) for s in range(trace.sequences)}) > 2
    assert_agrees(trace, home, target, how, {"temperature": 1.0}, 60)


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_ids_outside_the_vocabulary_are_never_accepted(home, tmp_path, temperature):
    how = {"temperature": 1.0}
    collect(config_of(home, how, {"temperature": temperature}, drafters=HEADS, max_new_tokens=16), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    inside = np.isin(trace.token, IDS)
    assert 20 < inside.sum() < trace.rows - 20
    for i in (0, 1, 3):
        assert (trace.alpha[~inside, :, i] == 0).all()
        assert (trace.gamma[:, 0, i] < 1).all()  # p has mass outside
        assert (trace.alpha[inside, 0, i] > 0).sum() >= (1 if temperature == 0 else inside.sum())


def test_drafts_of_one_token(home, tmp_path, target):
    how = {"temperature": 0.9}
    config = config_of(home, how, how, drafters=HEADS, max_new_tokens=8, k=1, prompts={"file": "few.jsonl"})
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.alpha.shape[1] == 1
    assert {d.depth for d in trace.manifest.drafters} == {1}
    assert_agrees(trace, home, target, how, how, 12)


def test_texts_up_to_the_context(home, tmp_path, target):
    words = " ".join(f"w{2 + i % 40}" for i in range(80))
    lines = [
        {"id": name, "domain": "a", "entity": "", "messages": [{"role": "user", "content": text}]}
        for name, text in (("long", words), ("short", "w3 w4"))
    ]
    (home / "long.jsonl").write_text("\n".join(map(json.dumps, lines)))
    how = {"temperature": 0.5}
    config = config_of(home, how, how, drafters=HEADS[:2], prompts={"file": "long.jsonl"}, max_new_tokens=20, k=6)
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert "context" in set(trace.stop)
    assert_agrees(trace, home, target, how, how, 14)


def test_means_of_alpha_and_gamma_agree(home, tmp_path):
    """E(alpha | prefix) = gamma at every depth: within 4 standard errors, false alarms 6.3e-5 each, fixed seeds."""
    how = {"temperature": 1.0}
    config = config_of(
        home, how, {"temperature": 1.3}, drafters=HEADS, max_new_tokens=60,
        prompts={"file": "prompts.jsonl", "samples": 6}, batch=72,
    )  # fmt: skip
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.rows > 1500
    for i in (0, 1, 3):
        means = []
        for d in range(K if i != 1 else 1):
            alpha, gamma = (x[:, d, i].astype(np.float64) for x in (trace.alpha, trace.gamma))
            off = alpha - gamma
            error = off.std() / math.sqrt(len(off))
            assert abs(off.mean()) <= 4 * error + 1e-6, (trace.drafters[i], d)
            assert error > 0
            means.append(gamma.mean())
        assert len(set(means)) == len(means)  # depths are laws of their own


def test_nothing_is_drafted_by_rounds_before_the_first_row(home, tmp_path):
    how = {"temperature": 1.0}
    collect(config_of(home, how, how, drafters=HEADS, max_new_tokens=7), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    for _, begin, _ in rows_of(trace):
        for t in range(min(K - 1, 3)):
            assert (trace.alpha[begin + t, t + 1 :, 0] == 0).all()
            assert (trace.gamma[begin + t, t + 1 :, 0] == 0).all()


@pytest.mark.parametrize(("p_how", "q_how"), [SETTINGS[0], SETTINGS[2]])
def test_top_logits_hold_the_law_of_the_first_draft(home, p_how, q_how):
    recorded = recorded_of(config_of(home, p_how, q_how, drafters=HEADS, logits=9, max_new_tokens=10))
    p, q = np.exp(recorded["logit_p"].astype(np.float64)), np.exp(recorded["logit_q"].astype(np.float64))
    overlap = np.minimum(p[:, None], q).sum(-1)
    upper = overlap + np.minimum(recorded["tail_p"][:, None], recorded["tail_q"])
    gamma = {0: recorded["gamma_deep"][:, 0, 0], 1: recorded["gamma_flat"][:, 0], 3: recorded["gamma_deep"][:, 0, 2]}
    for i, values in gamma.items():
        assert (overlap[:, i] <= values + 1e-6).all()
        assert (values <= upper[:, i] + 1e-6).all()
        assert np.isfinite(values).all()


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

    monkeypatch.setattr(collecting.Batch, "row", stop)
    with pytest.raises(KeyboardInterrupt):
        collect(config, {}, tmp_path / "t")
    monkeypatch.undo()
    collect(config, {}, tmp_path / "t", resume=True)
    assert contents(tmp_path / "t") == contents(tmp_path / "whole")


def test_a_head_without_finite_logits_is_named(home, tmp_path, monkeypatch, target):
    how = {"temperature": 0.8}
    config = config_of(home, how, how, drafters=HEADS[:1], batch=6, max_new_tokens=8)
    made = collecting.build_drafters(config, target)
    logits = made[0].logits
    seen = [0]

    def spoil(prefix):
        found = logits(prefix)
        if seen[0] == 3:
            found.values[1, 2] = math.nan
        seen[0] += 1
        return found

    monkeypatch.setattr(made[0], "logits", spoil)
    monkeypatch.setattr(collecting, "build_drafters", lambda *args: made)
    summary = collect(config, {}, tmp_path / "t")
    assert [drop.reason for drop in summary.dropped] == ["logits of 'deep' hold NaN at row 3, depth 2"]


# --- the unroll ----------------------------------------------------------------------------------------------------


@torch.inference_mode()
@pytest.mark.parametrize("name", ["deep", "cut"])
def test_the_unroll_of_training_is_the_recorders(home, target, name):
    head, _ = load_head(home / name, target)
    k = K if name == "deep" else 1
    generator = torch.Generator().manual_seed(2)
    sizes = [(5, 9), (1, 8), (3, 4)]  # tokens of prompt and text
    width = 5
    tokens = torch.zeros(3, width + 9, dtype=torch.int64)
    real = torch.zeros(3, width + 9, dtype=torch.bool)
    for row, (prompt, own) in enumerate(sizes):
        place = slice(width - prompt, width + own)
        tokens[row, place] = torch.randint(2, WORDS, (prompt + own,), generator=generator)
        real[row, place] = True
    positions = (real.cumsum(1) - 1).clamp(min=0)
    hidden = target.model(
        tokens, attention_mask=real.long(), position_ids=positions, output_hidden_states=True
    ).hidden_states
    states = [hidden[tap] for tap in head.taps]
    unrolled = list(head.unroll(tokens, states, real, k, begin=width - 1))
    for state in states:  # what stands at padding must not matter
        state[~real] = math.nan
    again = list(head.unroll(tokens, states, real, k, begin=width - 1))
    rounds = Rounds(head, k)
    rounds.begin(torch.where(real, tokens, PAD)[:, :width], width + 9, [s[:, :width] for s in states], PAD)
    for t in range(width, width + 9):
        read = t - 1 if head.kind == "eagle" else t
        outputs = rounds.step(tokens[:, t], [state[:, read] for state in states])
        for a in range(min(k, t - width + 2)):
            if a == t - width + 1:
                continue  # began behind the prompt: the recorder's rounds do not
            for row in torch.nonzero(real[:, t])[:, 0].tolist():
                expected = unrolled[a][row, t - width + 1]
                torch.testing.assert_close(outputs[row, a], expected, rtol=1e-4, atol=1e-4)
                torch.testing.assert_close(again[a][row, t - width + 1], expected, rtol=0, atol=0)


def other_models():
    """Tiny models of other architectures: biases, query norms, attention windows."""
    import transformers as hf

    size = {
        "vocab_size": 56, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.25, "pad_token_id": 1,
    }  # fmt: skip
    return {
        "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**size, tie_word_embeddings=True)),
        "scaled": (
            hf.LlamaForCausalLM,
            hf.LlamaConfig(
                **size, attention_bias=True,
                rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 1000.0},
            ),
        ),
        "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**size)),
        "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config(**size, head_dim=8)),
        "mistral": (hf.MistralForCausalLM, hf.MistralConfig(**size)),
    }  # fmt: skip


@torch.inference_mode()
@pytest.mark.parametrize("name", ["llama", "scaled", "qwen2", "qwen3", "mistral"])
def test_an_untrained_truncated_head_before_the_last_layer_is_the_target(target, name):
    """Its layer is the target's last and `adapt` the identity: on every architecture its logits are the target's."""
    kind, config = other_models()[name]
    torch.manual_seed(5)
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # fresh biases and norms are 0 and 1, which would hide them
            parameter.add_(torch.randn_like(parameter) * 0.1)
    head = Head(dataclasses.replace(target, model=model), "truncated", (2,), torch.tensor(IDS))
    tokens = pad_left([[3, 4, 5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15]])
    real = tokens != PAD
    out = model(
        tokens.clamp(min=0), attention_mask=real.long(), position_ids=(real.cumsum(1) - 1).clamp(min=0),
        output_hidden_states=True,
    )  # fmt: skip
    state = out.hidden_states[2]
    (outputs,) = head.unroll(tokens.clamp(min=0), [state], real, 1)
    torch.testing.assert_close(head.logits(outputs)[real], out.logits[..., IDS][real], rtol=1e-4, atol=1e-4)
    rounds = Rounds(head, 1)
    rounds.begin(tokens[:, :5], 8, [state[:, :5]], PAD)
    for t in range(5, 8):
        found = head.logits(rounds.step(tokens[:, t], [state[:, t]])[:, 0])
        torch.testing.assert_close(found, out.logits[:, t, IDS], rtol=1e-4, atol=1e-4)


def test_only_the_trained_parts_are_trained_and_stored(home, target):
    head, card = load_head(home / "deep", target)
    stored = load_file(home / "deep" / "head.safetensors")
    assert {name.split(".")[1] for name in stored if name != "vocabulary"} == {"layer", "fuse", "join"}
    assert head.width == card.width == len(IDS)
    fresh = Head(target, "eagle", (1, 2), torch.tensor(IDS))
    states = [torch.randn(1, 6, 32) for _ in range(2)]
    outputs = list(fresh.unroll(torch.randint(2, 50, (1, 6)), states, torch.ones(1, 6, dtype=torch.bool), 3))
    fresh.logits(torch.cat(outputs)).sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in fresh.parameters())
    assert all(weight.grad is None for weight in target.model.parameters())


# --- placement -----------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")  # weights do not matter here
@pytest.mark.parametrize("name", ["deep", "cut"])
def test_nothing_stays_on_the_cpu(home, target, name):
    """On the meta device an operation that mixes devices raises, and so does one that reads values.

    From the checkpoint to alpha and gamma; what follows, `record` copies to the CPU.
    """
    away = copy.deepcopy(target.model).to("meta")
    there = dataclasses.replace(target, model=away, device=torch.device("meta"))
    k, how = K if name == "deep" else 1, Processing(0.8)
    drafter = TrainedHead(name, how, K, home / name, there) if k > 1 else Truncated(name, how, home / name, there)
    head, taps = drafter._head, drafter.taps
    assert {tensor.device.type for tensor in (*head.parameters(), *head.buffers())} == {"meta"}
    tokens = pad_left([[3, 4, 5], [6]])  # the collector's texts stay on the CPU
    drafter.begin(tokens, 9, {tap: torch.zeros(2, 3, 32, device="meta") for tap in taps})
    for _ in range(3):
        tokens = torch.cat([tokens, torch.tensor([[7], [8]])[: len(tokens)]], 1)
        hidden = [torch.zeros(len(tokens), 32, device="meta") for _ in range(4)]
        found = drafter.logits(Prefix(tokens, hidden, hidden))
        assert (found.values.device.type, found.values.dtype) == ("meta", torch.float32)
        p = process(torch.zeros(2, WORDS, dtype=torch.bfloat16, device="meta"), how)
        q = process(found.values.view(2 * k, -1), how, found.ids, found.index)
        for score in alpha_gamma(p, q, torch.zeros(2, dtype=torch.int64, device="meta")):
            assert (score.device.type, score.dtype, score.shape) == ("meta", torch.float32, (2 * k,))
    drafter.keep(torch.tensor([1]))
    assert len(drafter.logits(Prefix(tokens[1:], *([[h[1:] for h in hidden]] * 2))).values) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_heads_on_a_narrow_target_compute_in_float32(home, tmp_path, monkeypatch, dtype):
    how, laws = {"temperature": 0.8}, set()

    def spy(logits, *rest):
        law = process(logits, *rest)
        laws.add((logits.dtype, law.probs.dtype))
        return law

    monkeypatch.setattr(collecting, "process", spy)
    monkeypatch.setattr(scoring, "process", spy)
    collect(config_of(home, how, how, drafters=HEADS, max_new_tokens=6), {}, tmp_path / "t", dtype=dtype)
    # the target's logits are narrow, the heads' are not, and no law is
    assert laws == {(getattr(torch, dtype), torch.float32), (torch.float32, torch.float32)}
    trace = open_trace(tmp_path / "t")
    assert np.isfinite(trace.gamma[:, 0]).all()
    head, _ = load_head(home / "deep", load_target(str(home / "target"), dtype=dtype))
    assert {weight.dtype for weight in (*head.parameters(), head.rows)} == {torch.float32}


# --- what is refused -----------------------------------------------------------------------------------------------


def test_heads_for_another_target_or_tokenizer_are_refused(home, tmp_path, target):
    other = load_target(str(tiny_checkpoint(tmp_path / "other", seed=9, rows=WORDS + 6)))
    swapped = load_target(str(tiny_checkpoint(tmp_path / "swapped", swap=True)))
    for wrong, what in ((other, "sha256"), (swapped, "tokenizer")):
        with pytest.raises(DrafterError, match=what) as caught:
            TrainedHead("x", Processing(1.0), K, home / "deep", wrong)
        for words in ("drafter 'x'", "'target'", repr(wrong.info.name)):
            assert words in str(caught.value)
    with pytest.raises(DrafterError, match="kind truncated; allowed here: eagle"):
        TrainedHead("x", Processing(1.0), K, home / "cut", target)
    with pytest.raises(DrafterError, match="kind eagle; allowed here: truncated"):
        Truncated("x", Processing(1.0), home / "deep", target)


def damaged(home, tmp_path, change):
    folder = tmp_path / "head"
    shutil.copytree(home / "deep", folder)
    tensors = load_file(folder / "head.safetensors")
    save_file(change(tensors), folder / "head.safetensors")
    return folder


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: {n: v for n, v in t.items() if n != "vocabulary"}, "no vocabulary map"),
        (lambda t: {**t, "vocabulary": t["vocabulary"] + 1}, "not the one that the head was trained with"),
        (lambda t: {**t, "vocabulary": t["vocabulary"][:-1].clone()}, "not the one that the head was trained with"),
        (lambda t: {**t, "weights.fuse.weight": t["weights.fuse.weight"] + 1}, "its card says"),
    ],
)
def test_a_missing_or_wrong_map_is_an_error(home, tmp_path, target, change, words):
    """D4: with a wrong map every draft would be a wrong token, and nothing else would tell."""
    with pytest.raises(HeadError, match=words):
        load_head(damaged(home, tmp_path, change), target)


def test_maps_and_taps_must_fit_the_target(target):
    for ids, words in (
        ([3, 3], "do not ascend"), ([5, 4], "do not ascend"), ([3, WORDS], "does not know"), ([], "no list"),
    ):  # fmt: skip
        with pytest.raises(HeadError, match=words):
            Head(target, "eagle", (1,), torch.tensor(ids, dtype=torch.int64))
    for kind, taps, words in (
        ("eagle", (), "allowed"), ("eagle", (4,), "has 3 layers"), ("eagle", (1, 1), "different ones"),
        ("truncated", (1, 2), "continues one"), ("truncated", (3,), "0 to 2"),
        ("hydra", (1,), "allowed: eagle or truncated or medusa"), ("medusa", (), "allowed"),
        ("medusa", (1, 4), "allowed for medusa: different ones, 0 to 3"),
    ):  # fmt: skip
        with pytest.raises(HeadError, match=words):
            Head(target, kind, taps, torch.tensor([3, 4]))


def test_other_architectures_are_refused_by_name(target):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=1, n_positions=16))
    with pytest.raises(HeadError, match="Llama-like"):
        Head(dataclasses.replace(target, model=model), "eagle", (1,), torch.tensor([3]))


def test_cards_say_what_is_wrong_with_them(home, tmp_path):
    with pytest.raises(HeadError, match="holds no trained head"):
        read_card(tmp_path)
    text = (home / "deep" / "card.json").read_text()
    (tmp_path / "card.json").write_text(text.replace('"eagle"', '"eaglet"'))
    with pytest.raises(HeadError, match=r"do not match its own sha256[\s\S]*kind: is 'eaglet'"):
        read_card(tmp_path)
