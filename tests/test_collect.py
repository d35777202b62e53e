"""Recorded traces against slow twins, against the law, and against interruption."""

import dataclasses
import hashlib
import json
import math
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from hedgelab.coins import TARGET, uniforms
from hedgelab.trace import open_trace
from tests.strategies_recording import (
    WORDS,
    NaiveNGram,
    naive_alpha_gamma,
    naive_law,
    naive_lookup,
    tiny_checkpoint,
    tiny_prompts,
)
from traces import collect as collecting
from traces import scoring
from traces.collect import Clock, CollectError, collect, jobs_of, record
from traces.config import ConfigError, parse_config
from traces.sampling import Dense, OneHot
from traces.targets import load_target
from traces.texts import Texts

K = 4
SETTINGS = [  # (target's processing, drafters' processing)
    ({"temperature": 0.8}, {"temperature": 1.2}),
    ({"temperature": 1.0, "top_k": 12}, {"temperature": 0.7, "top_k": 5}),
    ({"temperature": 0.9, "top_p": 0.8}, {"temperature": 1.0, "top_p": 0.6}),
    ({"temperature": 0.7}, {"temperature": 0.0}),
    ({"temperature": 0.0}, {"temperature": 1.0}),
    ({"temperature": 0.0}, {"temperature": 0.0}),
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with two tiny models, prompts, and texts to count n-grams from."""
    folder = tmp_path_factory.mktemp("recording")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)  # D3: logits wider than the tokenizer
    tiny_checkpoint(folder / "small", seed=3, layers=2)
    tiny_prompts(folder / "prompts.jsonl", 6)
    tiny_prompts(folder / "few.jsonl", 2)
    training = config_of(folder, {"temperature": 1.0}, {"temperature": 0.0}, drafters=LOOKUP, k=1, max_new_tokens=40)
    collect(training, {}, folder / "train")
    Texts.load(folder / "train").save(folder / "texts.safetensors")
    return folder


LOOKUP = [
    {"name": "lookup", "kind": "lookup", "processing": {"temperature": 0}, "options": {"longest": 3, "shortest": 1}}
]
EVERY = [
    *LOOKUP,
    {"name": "ngram-a", "kind": "ngram", "options": {"texts": "texts.safetensors", "domains": ["a"], "order": 3}},
    {"name": "ngram", "kind": "ngram", "options": {"texts": "train"}},
    {"name": "exit", "kind": "exit", "options": {"layer": 2}},
    {"name": "small", "kind": "causal", "options": {"model": "small"}},
    {"name": "self", "kind": "causal", "options": {"model": "target"}},
]


def config_of(folder, target, drafter, **changes):
    document = {
        "name": "tiny", "target": str(folder / "target"), "prompts": {"file": "prompts.jsonl"}, "processing": target,
        "drafter_processing": drafter, "max_new_tokens": 24, "k": K, "batch": 5, "seed": 11, "drafters": EVERY,
        "loop": 0,
    }  # fmt: skip
    return parse_config({**document, **changes}, folder)


def rows_of(trace):
    """(sequence, first row, end) of each text."""
    return [(s, int(trace.offsets[s]), int(trace.offsets[s + 1])) for s in range(trace.sequences)]


def text_of(trace, s):
    """Prompt ids and generated ids of a text."""
    prompt = [int(v) for v in trace.prompt_tokens(s)]
    rows = trace.token[trace.offsets[s] : trace.offsets[s + 1]]
    return prompt, [int(trace.first_token[s]), *(int(v) for v in rows)]


# --- twins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "drafter"), SETTINGS)
def test_alpha_and_gamma_on_the_same_logits(home, tmp_path, monkeypatch, target, drafter):
    """Every drafter kind: full vocabulary, float64, from the very logits that the collector saw; within 1e-5."""
    logits_of, worst, kinds = {}, [0.0], set()
    process, flat, deep = scoring.process, scoring.alpha_gamma, scoring.deep_alpha_gamma

    def whole(law, row):
        values, how, ids = logits_of[id(law)]
        wide = np.full(WORDS, -math.inf)
        wide[slice(None) if ids is None else ids.numpy()] = values[row].double().numpy()
        return naive_law(wide, how.temperature, how.top_k, how.top_p)[0]

    def spy_process(logits, how, ids=None, index=None):
        law = process(logits, how, ids, index)
        logits_of[id(law)] = (logits.clone(), how, ids)
        kept.append(law)  # so that no id is used twice
        return law

    def spy_flat(p, q, token):
        got = flat(p, q, token)
        for row, x in enumerate(token.tolist()):
            expected = naive_alpha_gamma(whole(p, row), whole(q, row), x)
            worst.append(max(abs(float(value[row]) - want) for value, want in zip(got, expected, strict=True)))
        kinds.add(type(q))
        return got

    def spy_deep(p, drafts, alive, token):
        got = deep(p, drafts, alive, token)
        for row, x in enumerate(token.tolist()):
            law = whole(p, row)
            for d, y in enumerate(drafts[row].tolist()):
                gamma = 0.0 if y < 0 else law[y] if alive[row, d] else math.nan
                alpha = float(y == x and bool(alive[row, d]))
                assert float(got[0][row, d]) == alpha
                assert math.isnan(gamma) == math.isnan(float(got[1][row, d]))
                worst.append(0.0 if math.isnan(gamma) else abs(float(got[1][row, d]) - gamma))
        kinds.add("deep")
        return got

    kept: list = []
    monkeypatch.setattr(collecting, "process", spy_process)
    monkeypatch.setattr(scoring, "process", spy_process)
    monkeypatch.setattr(scoring, "alpha_gamma", spy_flat)
    monkeypatch.setattr(scoring, "deep_alpha_gamma", spy_deep)
    collect(config_of(home, target, drafter, max_new_tokens=12), {}, tmp_path / "t")
    assert max(worst) < 1e-5
    assert len(worst) > 500
    assert "deep" in kinds
    assert (OneHot if drafter["temperature"] == 0 else Dense) in kinds


def slow_run(trace, target, drafters, longest, shortest, p_how, q_how):
    """Yield (row, token, p, alpha and gamma of flat drafters, of lookup's depths, lookup's draft) of every row.

    One token at a time, batch 1, no cache, float64 laws. drafters : what each flat drafter is made of: a naive n-gram
    model, the number of layers before an exit, or another target.
    """
    width = target.vocabulary
    for s, begin, end in rows_of(trace):
        prompt, own = text_of(trace, s)
        drafts = {}
        for row in range(begin, end):
            t = row - begin
            text = [*prompt, *own[: t + 1]]
            ids = torch.tensor([text])
            with torch.inference_mode():
                out = target.model(ids, output_hidden_states=True)
                p, _ = naive_law(out.logits[0, -1, :width].double(), **p_how)
                pairs = []
                x = own[t + 1]
                for part in drafters:
                    values = np.full(width, -math.inf)
                    if isinstance(part, NaiveNGram):
                        law = part.law(text)
                        values[list(law)] = np.log(list(law.values()))
                    elif isinstance(part, int):
                        head = target.model.lm_head(target.model.model.norm(out.hidden_states[part][:, -1]))
                        values = head[0, :width].double().numpy()
                    else:
                        values = part.model(ids).logits[0, -1, :width].double().numpy()
                    pairs.append(naive_alpha_gamma(p, naive_law(values, **q_how)[0], x))
            drafts[t] = naive_lookup(text, longest, shortest, trace.k)[0]
            deep = []
            for d in range(trace.k):
                draft = drafts.get(t - d, [])
                if d >= len(draft):
                    deep.append((0.0, 0.0))
                elif draft[:d] != own[t - d + 1 : t + 1]:
                    deep.append((0.0, math.nan))
                else:
                    deep.append((float(draft[d] == x), p[draft[d]]))
            yield row, x, p, pairs, deep, drafts[t]


def assert_agrees(trace, slow, rows_at_least):
    """Hold a trace (lookup first, then flat drafters) against a slow run, within 1e-3."""
    near, rows = 0, 0
    for row, x, p, pairs, deep, draft in slow:
        rows += 1
        alpha, gamma = zip(*pairs, strict=True)
        close = np.allclose(trace.alpha[row, 0, 1:], alpha, atol=1e-3)
        close &= np.allclose(trace.gamma[row, 0, 1:], gamma, atol=1e-3)
        near += not close  # a cut (top-k, top-p, argmax) may fall elsewhere where two logits nearly tie
        np.testing.assert_array_equal(trace.alpha[row, :, 0], [pair[0] for pair in deep])
        if close:
            np.testing.assert_allclose(trace.gamma[row, :, 0], [pair[1] for pair in deep], atol=1e-3)
        assert trace.proposed[row, 0] == len(draft)
        assert float(trace.target_logprob[row]) == pytest.approx(math.log(p[x]), abs=1e-2)
        entropy = -sum(v * math.log(v) for v in p if v > 0)
        assert float(trace.target_entropy[row]) == pytest.approx(entropy, abs=1e-2)
    assert rows >= rows_at_least
    assert near <= rows / 50


@pytest.mark.parametrize(("target", "drafter"), [SETTINGS[0], SETTINGS[2], SETTINGS[4], SETTINGS[5]])
def test_an_independent_slow_run_agrees(home, tmp_path, target, drafter):
    config = config_of(home, target, drafter, max_new_tokens=16, prompts={"file": "few.jsonl"})
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    big, small = load_target(str(home / "target")), load_target(str(home / "small"))
    trained = open_trace(home / "train")
    texts = [(*text_of(trained, s), str(trained.domains[s])) for s in range(trained.sequences)]
    only_a = NaiveNGram([text[:2] for text in texts if text[2] == "a"], 3)
    every = NaiveNGram([text[:2] for text in texts], 4)
    slow = slow_run(trace, big, [only_a, every, 2, small, big], 3, 1, target, drafter)
    assert_agrees(trace, slow, 30)


@pytest.mark.parametrize(("target", "drafter"), [({"temperature": 0.6}, {"temperature": 0.6, "top_p": 0.9})])
def test_a_slow_run_of_the_packaged_target_agrees(tmp_path, target, drafter):
    """Every kind on the real target, few tokens; an exit stands for a second model of its size."""
    prompts = [("name three rivers in Europe", "a"), ("x = [1, 2, 3]; print(", "b")]
    messages = [{"id": d, "domain": d, "entity": "", "messages": [{"role": "user", "content": c}]} for c, d in prompts]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, messages)))
    real = load_target("smollm2-135m")
    words = [
        real.tokenizer(text)["input_ids"] for text in ("rivers in Europe are the Rhine, the Danube", "print([1, 2])")
    ]
    offsets = np.cumsum([0, *map(len, words)])
    Texts(
        np.concatenate(words).astype(np.int32), offsets, offsets[:-1] + 1, np.array([0, 1]), ("a", "b"),
        real.vocabulary, real.tokenizer_sha256, "t", "",
    ).save(tmp_path / "texts.safetensors")  # fmt: skip
    drafters = [
        {"name": "lookup", "kind": "lookup", "processing": {"temperature": 0}},
        {"name": "ngram", "kind": "ngram", "options": {"texts": "texts.safetensors", "order": 3}},
        {"name": "exit-15", "kind": "exit", "options": {"layer": 15}},
        {"name": "exit-26", "kind": "exit", "options": {"layer": 26}},
        {"name": "self", "kind": "causal", "options": {"model": "smollm2-135m"}},
    ]
    config = config_of(
        tmp_path, target, drafter, drafters=drafters, max_new_tokens=7, prompts={"file": "prompts.jsonl"}
    )
    config = dataclasses.replace(config, target="smollm2-135m")
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    naive = NaiveNGram([(ids[:1], ids[1:]) for ids in words], 3)
    assert_agrees(trace, slow_run(trace, real, [naive, 15, 26, real], 4, 2, target, drafter), 8)


def test_tokens_are_the_inverse_cdf_of_their_coins(home, tmp_path):
    config = config_of(home, {"temperature": 0.8}, {"temperature": 1.0}, drafters=LOOKUP)
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    model = load_target(str(home / "target")).model
    unlike = 0
    for s in range(3):
        prompt, own = text_of(trace, s)
        coins = uniforms(config.seed, TARGET, int(trace.sequence_id[s]), 0, len(own))
        for step, token in enumerate(own):
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *own[:step]]])).logits[0, -1, :WORDS].double()
            p, _ = naive_law(logits, 0.8)
            cdf = np.cumsum(p)
            expected = int(np.searchsorted(cdf, coins[step], side="right"))
            unlike += token != expected and abs(cdf - coins[step]).min() > 1e-4
    assert unlike == 0


def test_the_batch_does_not_change_the_texts(home, tmp_path):
    for name, batch in (("one", 1), ("many", 12)):
        config = config_of(home, {"temperature": 0.8}, {"temperature": 1.0}, drafters=LOOKUP, batch=batch)
        collect(config, {}, tmp_path / name)
    one, many = open_trace(tmp_path / "one"), open_trace(tmp_path / "many")
    np.testing.assert_array_equal(one.token, many.token)
    np.testing.assert_allclose(one.gamma, many.gamma, atol=1e-4)


# --- the law -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "drafter"), [SETTINGS[0], SETTINGS[1], SETTINGS[3]])
def test_means_of_alpha_and_gamma_agree(home, tmp_path, target, drafter):
    """E(alpha | prefix) = gamma on own-sample paths: within 4 standard errors for each drafter and depth.

    The rows' differences are martingale differences, so a false alarm has probability 6.3e-5 each, at most 0.002 for
    all; the seeds are fixed.
    """
    config = config_of(
        home, target, drafter, max_new_tokens=80, prompts={"file": "prompts.jsonl", "samples": 8}, batch=96
    )
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.rows > 2500
    differences = 0
    for i in range(len(trace.drafters)):
        depths = range(K) if i in trace.deep_columns else [0]
        for d in depths:
            alpha, gamma = (x[:, d, i].astype(np.float64) for x in (trace.alpha, trace.gamma))
            known = ~np.isnan(gamma)
            off = (alpha - gamma)[known]
            error = off.std() / math.sqrt(max(1, len(off)))
            assert abs(off.mean()) <= 4 * error + 1e-6, (trace.drafters[i], d)
            differences += error > 0
    assert differences >= len(trace.drafters) - 1


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_target_as_its_own_drafter_is_always_accepted(home, tmp_path, temperature):
    own = [{"name": "self", "kind": "causal", "options": {"model": "target"}}]
    how = {"temperature": temperature}
    collect(config_of(home, how, how, drafters=own), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.rows > 100
    assert (trace.alpha == 1).all()  # B6
    assert (trace.gamma == 1).all()


def test_temperatures_are_recorded_not_inferred(home, tmp_path):
    config = config_of(home, {"temperature": 0.6, "top_p": 0.9}, {"temperature": 1.0, "top_k": 7})
    collect(config, {"note": "verbatim"}, tmp_path / "t")
    manifest = open_trace(tmp_path / "t").manifest
    assert (manifest.target_processing.temperature, manifest.target_processing.top_p) == (0.6, 0.9)  # B3
    assert [d.processing.top_k for d in manifest.drafters[1:]] == [7] * 5
    assert [d.rule for d in manifest.drafters] == ["one_hot", "chain", "chain", "chain", "chain", "chain"]
    assert manifest.path == "own_sample"
    assert manifest.settings["config"] == {"note": "verbatim"}
    assert manifest.drafters[4].model is not None
    assert open_trace(tmp_path / "t").check() == []


# --- ends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [2, 3, 19])
def test_limits_are_exact(home, tmp_path, limit):
    config = config_of(home, {"temperature": 0.9}, {"temperature": 1.0}, drafters=LOOKUP, k=8, max_new_tokens=limit)
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    for s, begin, end in rows_of(trace):
        if trace.stop[s] == "length":
            assert 1 + end - begin == limit  # D2: the first token counts
        else:
            assert trace.stop[s] == "eos"
            assert 1 + end - begin <= limit
    assert "length" in set(trace.stop)


def test_texts_end_with_eos_inside(home, tmp_path):
    config = config_of(home, {"temperature": 1.5}, {"temperature": 1.0}, drafters=LOOKUP, max_new_tokens=90)
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    ended = [(begin, end) for s, begin, end in rows_of(trace) if trace.stop[s] == "eos"]
    assert ended
    for begin, end in ended:
        assert trace.token[end - 1] == 0  # D1: EOS is a row, and the last
        assert (trace.token[begin : end - 1] != 0).all()


def test_the_context_ends_texts_and_refuses_long_prompts(home, tmp_path):
    words = " ".join(f"w{2 + i % 40}" for i in range(95))
    lines = [
        {"id": name, "domain": "a", "entity": "", "messages": [{"role": "user", "content": text}]}
        for name, text in (("long", words), ("fits", words[: words.index("w20") + 70]), ("short", "w3 w4"))
    ]
    (home / "long.jsonl").write_text("\n".join(map(json.dumps, lines)))
    config = config_of(
        home, {"temperature": 0.3}, {"temperature": 1.0}, prompts={"file": "long.jsonl"}, max_new_tokens=95
    )
    summary = collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert [(drop.prompt_id, "context of 96" in drop.reason) for drop in summary.dropped] == [("long", True)]
    for s in range(trace.sequences):
        prompt, own = text_of(trace, s)
        assert len(prompt) + len(own) <= 96
        if trace.stop[s] == "context":
            assert len(prompt) + len(own) == 96
    assert "context" in set(trace.stop)


def naive_cut(text, n):
    """Tokens kept: up to the end of the first n-gram that repeats, so that no token beyond it was looked at."""
    for end in range(n + 1, len(text) + 1):
        gram = text[end - n : end]
        if any(text[i : i + n] == gram for i in range(end - n)):
            return end
    return None


def test_texts_end_with_the_first_ngram_they_repeat(home, tmp_path):
    how = {"temperature": 0.15}
    whole = config_of(home, how, how, drafters=LOOKUP, max_new_tokens=80)
    collect(whole, {}, tmp_path / "whole")
    summary = collect(dataclasses.replace(whole, loop=5), {}, tmp_path / "cut")
    full, cut = open_trace(tmp_path / "whole"), open_trace(tmp_path / "cut")
    texts = {int(cut.sequence_id[s]): (text_of(cut, s)[1], str(cut.stop[s])) for s in range(cut.sequences)}
    cuts = 0
    for s in range(full.sequences):
        text = text_of(full, s)[1]
        kept = naive_cut(text, 5)
        if kept is None:
            assert texts[int(full.sequence_id[s])] == (text, full.stop[s])
        else:
            assert texts[int(full.sequence_id[s])] == (text[:kept], "loop")
            cuts += 1
    assert cuts == summary.cuts > 2
    assert sum(shard.cuts for shard in cut.manifest.shards) == cuts


# --- logits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "drafter"), SETTINGS)
def test_top_logits_bracket_gamma(home, tmp_path, target, drafter):
    config = config_of(home, target, drafter, logits=9, max_new_tokens=12)
    recorded = recorded_of(config)
    gamma = np.full((len(recorded["token"]), len(EVERY)), np.nan)
    gamma[:, 1:] = recorded["gamma_flat"]
    gamma[:, 0] = recorded["gamma_deep"][:, 0, 0]
    p, q = np.exp(recorded["logit_p"].astype(np.float64)), np.exp(recorded["logit_q"].astype(np.float64))
    overlap = np.minimum(p[:, None], q).sum(-1)
    upper = overlap + np.minimum(recorded["tail_p"][:, None], recorded["tail_q"])
    proposed = recorded["proposed"][:, 0] > 0
    assert np.isnan(q[~proposed, 0]).all()  # nothing proposed: no law
    gamma[~proposed, 0] = np.nan
    known = ~np.isnan(gamma)
    slack = 1e-6  # float32 logarithms of numbers down to 1e-20
    assert known.sum() > 200
    assert (overlap[known] <= gamma[known] + slack).all()
    assert (gamma[known] <= upper[known] + slack).all()
    assert (upper - overlap)[known].max() < 1


def recorded_of(config, clock=None):
    """One shard's arrays, with no file in between."""
    target = load_target(config.target)
    jobs, domains = jobs_of(config, target)
    return record(jobs, domains, target, collecting.build_drafters(config, target), config, clock or Clock()).arrays


# --- bad logits ----------------------------------------------------------------------------------------------------


def poison(model, call, row, value):
    """Make one row of the logits of the model's `call`-th pass not finite."""
    seen = [0]

    def spoil(module, inputs, output):
        if seen[0] == call:
            output.logits[row] = value
        seen[0] += 1

    return model.register_forward_hook(spoil)


@pytest.mark.parametrize(
    ("call", "value", "words"),
    [
        (0, math.nan, "NaN at the first token"),
        (3, math.inf, "+inf at row 2"),
        (4, -math.inf, "no finite value at row 3"),
    ],
)
def test_a_record_without_finite_logits_is_dropped_and_named(home, tmp_path, monkeypatch, call, value, words):
    config = config_of(home, {"temperature": 0.8}, {"temperature": 1.0}, batch=6)
    clean = collect(config, {}, tmp_path / "clean")
    loaded = load_target(config.target)
    monkeypatch.setattr(collecting, "load_target", lambda *args: loaded)
    hook = poison(loaded.model, call, 1, value)
    summary = collect(config, {}, tmp_path / "t")
    hook.remove()
    trace = open_trace(tmp_path / "t")
    second = str(open_trace(tmp_path / "clean").prompt_ids[1])  # the text in row 1 of the first batch
    assert [drop.prompt_id for drop in summary.dropped] == [second]
    assert f"logits of 'target' hold {words}" in summary.dropped[0].reason
    assert trace.manifest.shards[0].dropped == tuple(summary.dropped)
    assert summary.sequences == clean.sequences - 1
    assert second not in set(trace.prompt_ids)
    whole = open_trace(tmp_path / "clean")
    others = [s for s in range(whole.sequences) if whole.prompt_ids[s] != second]
    np.testing.assert_array_equal(trace.token, whole.select(others).token)  # its neighbours are what they were


def test_a_drafter_without_finite_logits_is_named(home, tmp_path, monkeypatch):
    config = config_of(home, {"temperature": 0.8}, {"temperature": 1.0}, batch=6, drafters=EVERY[3:5])
    made = collecting.build_drafters(config, load_target(config.target))
    poison(made[1]._drafter.model, 3, 0, math.nan)
    monkeypatch.setattr(collecting, "build_drafters", lambda *args: made)
    summary = collect(config, {}, tmp_path / "t")
    assert [drop.reason for drop in summary.dropped] == ["logits of 'small' hold NaN at row 2"]


def test_float16_overflow_is_an_error_not_a_number(home, tmp_path):
    tiny_checkpoint(tmp_path / "hot", sharp=1e5)
    config = config_of(home, {"temperature": 0.8}, {"temperature": 1.0}, drafters=LOOKUP)
    config = dataclasses.replace(config, target=str(tmp_path / "hot"))
    with pytest.raises(
        CollectError, match=r"every record was dropped \(12 of 12\)[\s\S]*logits of 'hot' hold"
    ) as caught:
        collect(config, {}, tmp_path / "t", dtype="float16")
    assert "inf" in str(caught.value) or "NaN" in str(caught.value)  # C2
    assert not open_trace(tmp_path / "t").manifest.complete


# --- interruption --------------------------------------------------------------------------------------------------


def contents(folder):
    """Names and hashes of a trace's files; measured.json and the lock may differ between runs."""
    files = sorted(file for file in Path(folder).iterdir() if file.name not in ("measured.json", ".lock"))
    return [(file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files]


def test_killed_anywhere_and_resumed_equals_uninterrupted(home, tmp_path):
    """SIGKILL while generating, before and after each file is written and renamed; then resume, byte for byte."""
    script = textwrap.dedent(
        """
        import os, signal, sys
        from pathlib import Path
        import hedgelab.storage.recording, hedgelab.storage.shards, traces.collect as collecting
        import torch
        from tests.test_collect import config_of, EVERY
        torch.set_num_threads(1)
        home, out = Path(sys.argv[1]), Path(sys.argv[2])
        config = config_of(home, {"temperature": 0.8}, {"temperature": 1.0}, max_new_tokens=10)
        real_replace, real_row = os.replace, collecting.Batch.row
        def run(moment, resume):
            pid = os.fork()
            if pid:
                return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            left = [moment]
            def die():
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            def replace(a, b):
                die(); real_replace(a, b); die()
            def row(self, t):
                if t == 4: die()
                real_row(self, t)
            if moment:
                os.replace, collecting.Batch.row = replace, row
            try:
                collecting.collect(config, {}, out, resume=resume)
            except BaseException:
                import traceback; traceback.print_exc(); os._exit(1)
            os._exit(0)
        kills, moment = 0, 1
        while True:
            code = run(moment, resume=out.exists())
            if code == 0:
                break
            assert code == -signal.SIGKILL, code
            kills += 1
            moment = moment % 7 + 1
            assert kills < 60
        print(kills)
        """
    )
    config = config_of(home, {"temperature": 0.8}, {"temperature": 1.0}, max_new_tokens=10)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        collect(config, {}, tmp_path / "whole")
    finally:
        torch.set_num_threads(threads)
    root = Path(__file__).parent.parent
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", script, str(home), str(tmp_path / "killed")],
        capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 5
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert open_trace(tmp_path / "killed").check() == []


def test_resuming_with_another_configuration_is_refused(home, tmp_path):
    config = config_of(home, {"temperature": 0.8}, {"temperature": 1.0}, drafters=LOOKUP, max_new_tokens=6)
    collect(config, {"seed": 11}, tmp_path / "t")
    with pytest.raises(ValueError, match="seed"):
        collect(dataclasses.replace(config, seed=12), {"seed": 12}, tmp_path / "t", resume=True)
    again = collect(config, {"seed": 11}, tmp_path / "t", resume=True)  # nothing left to do
    assert again.rows == open_trace(tmp_path / "t").rows


# --- configurations ------------------------------------------------------------------------------------------------


def test_every_problem_of_a_configuration_is_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_config(
            {
                "name": "x y",
                "processing": {"temperature": 1e-9},
                "prompts": {"split": "test", "domains": ["cooking"]},
                "drafters": [
                    {"name": "a", "kind": "oracle"},
                    {"name": "b", "kind": "exit", "options": {"layers": 3}},
                    {"name": "b", "kind": "lookup", "options": {"longest": 99}},
                ],
                "encodings": {"alpha": "bits", "gamma_flat": "zip"},
                "spead": 1,
            }
        )
    for words in (
        "config.name", "config.spead: unknown", "config.processing.temperature", "config.prompts.split",
        "config.prompts.domains: 'cooking'", "config.drafters[0].kind", "config.drafters[1].options.layer: missing",
        "config.drafters[1].options.layers: unknown", "config.drafters[2].name: 'b' is used twice",
        "config.drafters[2].options.longest", "config.encodings.alpha: unknown",
        "config.encodings.gamma_flat: is 'zip'",
    ):  # fmt: skip
        assert words in str(caught.value)


@pytest.mark.parametrize("name", ["greedy", "t06", "t10", "logits", "switching", "reworded", "spanish", "ready"])
def test_shipped_configurations_are_valid(name):
    from traces.config import load_config

    config, _ = load_config(Path(__file__).parent.parent / "traces" / "configs" / f"{name}.yaml")
    assert config.name == name
