"""The committed pool: small, whole, that of the bundled traces, and recorded exactly on the real target."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import hedgelab as hl
from hedgelab.trace import open_trace
from tests.strategies_recording import naive_alpha_gamma, naive_law, naive_of
from tests.test_collect import config_of, rows_of, text_of
from traces.checkpoints import load_head, read_card
from traces.collect import collect, jobs_of
from traces.config import load_config, read_yaml
from traces.drafters import KINDS
from traces.prompts import DOMAINS, built_in
from traces.targets import load_target
from traces.texts import Texts

ROOT = Path(__file__).parent.parent
POOL = ROOT / "traces" / "data" / "pool"
HEADS = sorted((POOL / "heads").iterdir())  # the bundled traces were recorded with these
REAL = "smollm2-135m"
TRAINED = {"eagle": "head", "truncated": "truncated", "medusa": "medusa"}  # a head's kind -> its drafter's
HOW = {"temperature": 0.6}


@pytest.fixture(scope="module")
def target():
    return load_target(REAL)


def test_size_and_contents():
    assert sum(file.stat().st_size for file in POOL.rglob("*") if file.is_file()) <= 40e6
    cards = [read_card(folder) for folder in HEADS]
    assert [card.name for card in cards] == [folder.name for folder in HEADS]
    assert {card.kind for card in cards} == set(TRAINED)
    assert any(len(card.domains) == len(DOMAINS) for card in cards)
    assert len({card.domains for card in cards if len(card.domains) == 1}) >= 3
    for card in cards:
        assert card.stored == "int8"
        assert len(card.acceptance) == card.depth
        assert card.tokens_seen >= 2 * card.training_tokens * 0.99
        assert card.measured["cpu_seconds"] > 0


def test_the_texts_hold_every_domain_and_no_heldout_prompt(target):
    texts = Texts.load(POOL / "texts.safetensors")
    assert texts.domains == DOMAINS
    prompts = {texts.token[a:b].tobytes() for a, b in zip(texts.offsets[:-1], texts.begin, strict=True)}
    for domain in DOMAINS:
        own = int(texts.select((domain,)).own().sum())
        assert own > 20_000, domain
        for prompt in built_in(domain, "heldout"):
            assert np.array(target.encode_chat(prompt.chat()), np.int32).tobytes() not in prompts
        known = [np.array(target.encode_chat(p.chat()), np.int32).tobytes() for p in built_in(domain, "train")[:20]]
        assert set(known) <= prompts


@pytest.mark.parametrize("name", ["t06", "greedy", "t10", "logits"])
def test_the_bundled_traces_were_recorded_with_it(name):
    manifest = hl.sample_trace(name).manifest
    by_name = {drafter.name: drafter for drafter in manifest.drafters}
    for folder in HEADS:
        card = read_card(folder)
        assert by_name[card.name].details["weights_sha256"] == card.weights_sha256
    texts = hashlib.sha256((POOL / "texts.safetensors").read_bytes()).hexdigest()
    counted, trained = ("ngram", "retrieval", "retrieval-chain"), (*TRAINED.values(), "dynamic-tree")
    assert {d.details["texts_sha256"] for d in manifest.drafters if d.kind in counted} == {texts}
    assert {tuple(d.details["texts_sha256"]) for d in manifest.drafters if d.kind in trained} == {(texts,)}
    for drafter in manifest.drafters:  # a dynamic tree over a head that is here as a chain as well
        if drafter.kind == "dynamic-tree":
            chain = by_name[drafter.name.removesuffix("-tree")]
            assert drafter.details["weights_sha256"] == chain.details["weights_sha256"]
        assert drafter.details.get("over", "lookup") in by_name


@pytest.mark.parametrize("folder", HEADS, ids=lambda folder: folder.name)
def test_every_head_fits_the_target(target, folder):
    head, card = load_head(folder, target)
    assert head.kind == card.kind
    assert bool(torch.isfinite(torch.cat([w.flatten() for w in head.state_dict().values()])).all())


def test_a_recording_with_it_is_exact(tmp_path, target):
    """Every kind on the real target: what is recorded for a head is what rounds give that are started one by one."""
    prompts = [("Name three rivers in Europe.", "a"), ("Write a SQL query that counts the rows of loans.", "b")]
    messages = [{"id": d, "domain": d, "entity": "", "messages": [{"role": "user", "content": c}]} for c, d in prompts]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, messages)))
    config, _ = load_config(ROOT / "traces" / "configs" / "ready.yaml")
    more = read_yaml(ROOT / "traces" / "configs" / "ready-more.yaml", list)
    others = config_of(tmp_path, HOW, HOW, drafters=more, k=6).drafters
    known = {entry.name for entry in config.drafters}
    drafters = [*config.drafters, *(entry for entry in others if entry.name not in known)]
    folder_of = {folder.name: folder for folder in HEADS}
    assert {entry.kind for entry in drafters} == set(KINDS) - {"causal"}
    assert {Path(entry.options["checkpoint"]).name for entry in drafters if "checkpoint" in entry.options} == {
        folder.name for folder in HEADS
    }
    small = replace(config_of(tmp_path, HOW, HOW, drafters=[], max_new_tokens=10, k=6), target=REAL)
    absolute = [
        replace(
            entry,
            options={
                name: str((ROOT / "traces" / "configs" / value).resolve()) if name in ("checkpoint", "texts") else value
                for name, value in entry.options.items()
            },
        )
        for entry in drafters
    ]
    collect(replace(small, drafters=tuple(absolute)), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    compared = 0
    for s, begin, end in rows_of(trace):
        prompt, own = text_of(trace, s)
        text = [*prompt, *own]
        with torch.inference_mode():
            logits = target.model(torch.tensor([text])).logits[0].double().numpy()
        for i, name in enumerate(trace.drafters):
            if trace.manifest.drafters[i].kind not in TRAINED.values():
                continue
            card = read_card(folder_of[name])
            naive = naive_of(folder_of[name], target)
            known = naive.read(text)
            for row in range(begin, end, 4):
                first = len(prompt) + row - begin
                depth = min(1 if card.kind == "truncated" else trace.k, end - row)
                for d, values in enumerate(naive.draft(text, first, depth, *known)):
                    p = naive_law(logits[first + d], **HOW)[0]
                    q = np.zeros(len(p))
                    q[naive.ids] = naive_law(values, **HOW)[0]
                    expected = naive_alpha_gamma(p, q, text[first + d + 1])
                    got = trace.alpha[row + d, d, i], trace.gamma[row + d, d, i]
                    np.testing.assert_allclose(got, expected, atol=1e-3, err_msg=f"{name} {row} {d}")
                    compared += 1
    assert compared > 60


def test_configurations_draw_from_it(target):
    config, _ = load_config(ROOT / "traces" / "configs" / "ready.yaml")
    jobs, domains = jobs_of(config, target)
    assert domains == DOMAINS
    assert len(jobs) == 7 * 24
