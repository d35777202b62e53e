"""Training of heads on a tiny target: it learns, it measures what is recorded, and interruption changes no byte."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from typer.testing import CliRunner

from hedgelab.storage.manifest import Processing
from hedgelab.trace import open_trace
from tests.strategies_recording import WORDS, naive_law, naive_of, tiny_checkpoint, tiny_prompts
from tests.test_collect import LOOKUP, config_of, rows_of
from traces import train as training
from traces.__main__ import app
from traces.checkpoints import load_head, read_card
from traces.collect import collect
from traces.config import ConfigError, load_train_config, parse_train_config
from traces.heads import Head, HeadError
from traces.sampling import process
from traces.targets import load_target
from traces.texts import Texts
from traces.train import train

TEMPERATURE = 0.7
DOCUMENT = {
    "name": "tiny", "kind": "eagle", "taps": [1, 2, 3], "texts": ["texts.safetensors"], "temperature": TEMPERATURE,
    "target": "target", "heldout": 0.2, "width": 40, "depth": 3, "batch": 5, "learning_rate": 0.003, "warmup": 5,
    "steps": 60, "save_every": 7, "seed": 4,
}  # fmt: skip
TRUNCATED = {**DOCUMENT, "kind": "truncated", "taps": [1], "depth": 1}
MEDUSA = {**DOCUMENT, "kind": "medusa", "taps": [1, 3]}
DOCUMENTS = {"eagle": DOCUMENT, "truncated": TRUNCATED, "medusa": MEDUSA}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A tiny target and texts that it wrote."""
    folder = tmp_path_factory.mktemp("training")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    tiny_prompts(folder / "prompts.jsonl", 12)
    how = {"temperature": TEMPERATURE}
    config = config_of(folder, how, {"temperature": 0.0}, drafters=LOOKUP, k=1, max_new_tokens=30, batch=24)
    collect(config, {}, folder / "train")
    Texts.load(folder / "train").save(folder / "texts.safetensors")
    return folder


@pytest.fixture(scope="module")
def target(home):
    return load_target(str(home / "target"))


@pytest.fixture(scope="module")
def trained(home):
    """Every kind, trained without interruption."""
    made = {}
    for name, document in DOCUMENTS.items():
        losses = []
        card = train(
            parse_train_config(document, home), document, home / name,
            progress=lambda step, total, loss, losses=losses: losses.append(loss),
        )  # fmt: skip
        made[name] = (card, losses)
    return made


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_the_loss_falls_and_acceptance_rises(home, tmp_path, trained, target, kind):
    document = DOCUMENTS[kind]
    card, losses = trained[kind]
    assert len(losses) == card.steps == 60
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1
    still = {**document, "learning_rate": 0.0, "steps": 1}
    untrained = train(parse_train_config(still, home), still, tmp_path / "still")
    assert len(card.acceptance) == document["depth"]
    for after, before in zip(card.acceptance, untrained.acceptance, strict=True):
        assert after > before + 0.02
    assert card.heldout_texts > 0
    assert {file.name for file in (home / kind).iterdir()} == {"head.safetensors", "card.json", "curve.png"}
    assert (home / kind / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_card_counts_what_was_trained_on(home, trained):
    card, _ = trained["eagle"]
    assert read_card(home / "eagle") == card
    texts = Texts.load(home / "texts.safetensors")
    own = int(texts.own().sum())
    assert card.training_tokens + card.heldout_tokens == own
    assert card.training_texts + card.heldout_texts == len(texts.begin)
    assert card.heldout_texts >= 6  # a fifth of 12 prompts, rounded up, in each of two domains
    epochs = card.tokens_seen / card.training_tokens
    batches = -(-card.training_texts // DOCUMENT["batch"])
    assert epochs == pytest.approx(60 / batches, rel=0.1)
    assert card.texts_sha256 == (texts.sha256,)
    assert card.domains == ("a", "b")
    assert card.measured["cpu_seconds"] > 0


@pytest.mark.parametrize("kind", ["eagle", "medusa"])
def test_recorded_acceptance_is_the_cards(home, tmp_path, trained, kind):
    """The held-out acceptance of the unroll equals a naive run over the held-out texts, at every depth."""
    card, _ = trained[kind]
    config = parse_train_config(DOCUMENTS[kind], home)
    _, heldout = training.split(training.samples_of([Texts.load(home / "texts.safetensors")]), config)
    target = load_target(str(home / "target"))
    head = naive_of(home / kind, target)
    found: list[list[float]] = [[] for _ in range(3)]
    for sample in heldout:
        text = sample.ids.tolist()
        states, keys = head.read(text)
        with torch.inference_mode():
            logits = target.model(torch.tensor([text])).logits[0, :, :WORDS].double().numpy()
        for begin in range(sample.prompt, len(text) - 1):
            for d, values in enumerate(head.draft(text, begin, min(3, len(text) - 1 - begin), states, keys)):
                p, _ = naive_law(logits[begin + d], TEMPERATURE)
                q = np.zeros(WORDS)
                q[head.ids] = naive_law(values, TEMPERATURE)[0]
                found[d].append(np.minimum(p, q).sum())
    np.testing.assert_allclose(card.acceptance, [np.mean(values) for values in found], atol=1e-4)


def test_a_trained_head_drafts_better_in_a_trace(home, tmp_path, trained, target):
    """The collector on fresh texts: gamma of the trained head above that of the same head before training."""
    still = {**DOCUMENT, "learning_rate": 0.0, "steps": 1}
    train(parse_train_config(still, home), still, home / "still")
    drafters = [
        {"name": "trained", "kind": "head", "options": {"checkpoint": "eagle"}},
        {"name": "still", "kind": "head", "options": {"checkpoint": "still"}},
        {"name": "truncated", "kind": "truncated", "options": {"checkpoint": "truncated"}},
        {"name": "medusa", "kind": "medusa", "options": {"checkpoint": "medusa"}},
    ]
    how = {"temperature": TEMPERATURE}
    collect(config_of(home, how, how, drafters=drafters, k=3, seed=99, max_new_tokens=30), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.check() == []
    for d in range(3):
        begun = np.concatenate([np.arange(begin + d, end) for _, begin, end in rows_of(trace)])
        gamma = trace.gamma[begun, d].mean(0)
        assert gamma[0] > gamma[1] + 0.02
    about = trace.manifest.drafters[0].details
    assert about["training_tokens"] == trained["eagle"][0].training_tokens
    assert about["weights_sha256"] == trained["eagle"][0].weights_sha256


# --- interruption --------------------------------------------------------------------------------------------------


def everything(folder):
    """The bytes of a checkpoint, and its card without what was measured."""
    card = json.loads((folder / "card.json").read_text())
    del card["measured"], card["sha256"]
    return (folder / "head.safetensors").read_bytes(), (folder / "curve.png").read_bytes(), card


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_interrupted_and_resumed_equals_uninterrupted(home, tmp_path, trained, monkeypatch, kind):
    document = DOCUMENTS[kind]
    config = parse_train_config(document, home)
    advance = training._Trainer.advance
    left = [0]

    def stop(self):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return advance(self)

    monkeypatch.setattr(training._Trainer, "advance", stop)
    for moment in (3, 9, 1, 26):  # before the first state, between states, at once, near the end
        left[0] = moment
        with pytest.raises(KeyboardInterrupt):
            train(config, document, tmp_path / "t", resume=(tmp_path / "t").exists())
        assert not (tmp_path / "t" / "card.json").exists()
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="--resume goes on"):
        train(config, document, tmp_path / "t")
    card = train(config, document, tmp_path / "t", resume=True)
    assert everything(tmp_path / "t") == everything(home / kind)
    assert card.steps == 60
    again = train(config, document, tmp_path / "t", resume=True)  # nothing left to do
    assert again == card
    with pytest.raises(ConfigError, match="finished head"):
        train(config, document, tmp_path / "t")


def test_states_that_do_not_fit_in_memory_are_computed_again(home, tmp_path, trained):
    document = {**DOCUMENT, "memory": 0.0001}
    train(parse_train_config(document, home), document, tmp_path / "t")
    assert everything(tmp_path / "t")[:2] == everything(home / "eagle")[:2]


def test_another_training_does_not_resume(home, tmp_path, monkeypatch):
    config = parse_train_config(DOCUMENT, home)
    monkeypatch.setattr(training._Trainer, "acceptance", lambda self, batches: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # crashed behind the last step
        train(dataclasses.replace(config, steps=8), DOCUMENT, tmp_path / "t")
    with pytest.raises(ConfigError, match="another configuration"):
        train(dataclasses.replace(config, steps=8, seed=5), DOCUMENT, tmp_path / "t", resume=True)
    (tmp_path / "t" / "state.safetensors").write_bytes(b"x" * 99)
    with pytest.raises(ConfigError, match="cannot be read as a training's state"):
        train(config, DOCUMENT, tmp_path / "t", resume=True)


def test_a_budget_in_seconds_becomes_steps_after_the_warm_up(home, tmp_path, monkeypatch):
    clock = [0.0]

    def tick():
        clock[0] += 0.25  # each step reads the clock three times: half a second for the target, half for itself
        return clock[0]

    monkeypatch.setattr(training.time, "process_time", tick)
    document = {**DOCUMENT, "steps": None, "cpu_seconds": 5.0}
    seen = []
    card = train(
        parse_train_config(document, home), document, tmp_path / "t",
        progress=lambda step, total, loss: seen.append(total),
    )  # fmt: skip
    assert card.steps == 20
    assert seen == [None] * 4 + [20] * 16
    assert card.measured["cpu_seconds"] == 5.0


def test_what_is_not_finite_is_an_error_not_a_weight(home, tmp_path, monkeypatch):
    config = parse_train_config(DOCUMENT, home)
    logits, calls = Head.logits, [0]

    def diverge(self, outputs):
        calls[0] += 1
        return logits(self, outputs) * (math.inf if calls[0] == 5 else 1)

    with monkeypatch.context() as patch:
        patch.setattr(Head, "logits", diverge)
        with pytest.raises(HeadError, match=r"step 1: .* try a smaller learning_rate"):
            train(config, {}, tmp_path / "a")
    broken = load_target(str(home / "target"))
    broken.model.model.layers[1].mlp.down_proj.weight[0, 0] = torch.nan
    monkeypatch.setattr(training, "load_target", lambda *args: broken)
    with pytest.raises(HeadError, match="'target': its hidden states or logits hold NaN"):
        train(config, {}, tmp_path / "b")


# --- data ----------------------------------------------------------------------------------------------------------


def test_prompts_are_split_not_texts(home):
    texts = Texts.load(home / "texts.safetensors")
    samples = training.samples_of([texts, texts])
    config = parse_train_config(DOCUMENT, home)
    train_on, heldout = training.split(samples, config)
    prompts = [{tuple(s.ids[: s.prompt]) for s in part} for part in (train_on, heldout)]
    assert not prompts[0] & prompts[1]
    assert len(train_on) + len(heldout) == len(samples)
    only, out = training.split(samples, dataclasses.replace(config, domains=("b",)))
    assert {s.domain for s in (*only, *out)} == {"b"}
    assert {s.ids.tobytes() for s in out} <= {s.ids.tobytes() for s in heldout}  # all heads leave out the same
    half, same = training.split(samples, dataclasses.replace(config, share=0.5))
    assert {s.ids.tobytes() for s in half} < {s.ids.tobytes() for s in train_on}
    assert len(same) == len(heldout)
    with pytest.raises(ConfigError, match="no texts of c; there are: a, b"):
        training.split(samples, dataclasses.replace(config, domains=("c",)))


def test_the_vocabulary_is_what_occurs_most(home, target):
    texts = Texts.load(home / "texts.safetensors")
    ids = training.vocabulary_of([texts], 10, target).tolist()
    counts = np.bincount(texts.token[texts.own()], minlength=WORDS)
    assert ids == sorted(ids)
    assert min(counts[ids]) >= max(np.delete(counts, ids))
    assert len(training.vocabulary_of([texts], WORDS, target)) == len(set(texts.token.tolist()))


def test_soft_targets_are_the_processed_law(home, target):
    """p at the head's ids equals the collector's law on the same prefix, and is normalised over all ids."""
    texts = Texts.load(home / "texts.safetensors")
    config = parse_train_config(DOCUMENT, home)
    samples = training.samples_of([texts])
    batch = training.batches_of(samples, 4)[1]
    ids = training.vocabulary_of([texts], 20, target)
    trainer = training._Trainer(config, target, Head(target, "eagle", (1,), ids), [batch])
    law = trainer._law(trainer._read(batch))
    for row in range(len(batch.tokens)):
        real = batch.tokens[row, batch.real[row]]
        with torch.inference_mode():
            logits = target.known(target.model(real[None]).logits[0])
        p = process(logits, Processing(TEMPERATURE)).probs[:, ids]
        own = int(batch.real[row, batch.width - 1 :].sum())
        torch.testing.assert_close(law[row, :own], p[-own:], rtol=1e-4, atol=1e-5)


# --- configurations ------------------------------------------------------------------------------------------------


def test_every_problem_of_a_training_configuration_is_reported():
    with pytest.raises(ConfigError) as caught:
        parse_train_config(
            {"name": "x y", "kind": "hydra", "taps": [], "texts": [], "temperature": 0, "share": 0, "stepps": 3,
             "steps": 10, "cpu_seconds": 5.0, "depth": 0}
        )  # fmt: skip
    for words in (
        "config.name", "config.kind: is 'hydra'; allowed: one of eagle, truncated, medusa", "config.taps: is empty",
        "config.texts: is empty", "config.temperature", "config.share: is 0", "config.stepps: unknown",
        "one of steps, passes and cpu_seconds says how long to train; 2 given", "config.depth",
    ):  # fmt: skip
        assert words in str(caught.value)


def test_texts_of_another_tokenizer_are_refused(home, tmp_path):
    tiny_checkpoint(tmp_path / "swapped", swap=True)
    document = {**DOCUMENT, "target": str(tmp_path / "swapped")}
    with pytest.raises(HeadError, match="'target' with another tokenizer than that of the target 'swapped'"):
        train(parse_train_config(document, home), document, tmp_path / "t")


def test_the_command(home, tmp_path):
    document = {**TRUNCATED, "target": str(home / "target"), "texts": [str(home / "train")], "steps": 12}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(document))
    command = ["train", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "head")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "12 steps" in done.output
    assert "acceptance by depth on" in done.output
    head, card = load_head(tmp_path / "head", load_target(str(home / "target")))
    assert head.kind == card.kind == "truncated"
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert "holds a finished head" in done.output


def test_an_interrupted_command_says_how_to_go_on(home, tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**TRUNCATED, "target": str(home / "target")}))

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train", interrupt)
    done = CliRunner().invoke(app, ["train", str(tmp_path / "config.yaml"), "--out", str(tmp_path / "head")])
    assert done.exit_code == 130
    assert "--resume" in done.output


@pytest.mark.parametrize("name", ["head", "truncated", "medusa"])
def test_shipped_configurations_are_valid(name):
    config, _ = load_train_config(Path(__file__).parent.parent / "traces" / "configs" / f"train-{name}.yaml")
    assert config.name == name


def test_damaged_states_and_heads_are_not_taken_for_good_ones(home, tmp_path, monkeypatch, trained):
    config = parse_train_config(DOCUMENT, home)
    with monkeypatch.context() as patch:
        patch.setattr(training._Trainer, "acceptance", lambda self, batches: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(dataclasses.replace(config, steps=8), DOCUMENT, tmp_path / "t")
    state = tmp_path / "t" / "state.safetensors"
    whole = state.read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) * 3 // 4] ^= 1
    state.write_bytes(bytes(damaged))
    with pytest.raises(ConfigError, match="is damaged; remove it"):
        train(dataclasses.replace(config, steps=8), DOCUMENT, tmp_path / "t", resume=True)
    shutil.copytree(home / "eagle", tmp_path / "done")
    train(config, DOCUMENT, tmp_path / "done", resume=True)
    train(dataclasses.replace(config, memory=0.001), DOCUMENT, tmp_path / "done", resume=True)  # decides nothing
    with pytest.raises(ConfigError, match="another configuration"):
        train(config, DOCUMENT, tmp_path / "done", resume=True, dtype="bfloat16")
    (tmp_path / "done" / "head.safetensors").unlink()
    with pytest.raises(HeadError, match="cannot be read"):
        train(config, DOCUMENT, tmp_path / "done", resume=True)


def test_two_trainings_in_one_folder(home, tmp_path, monkeypatch):
    config = parse_train_config(DOCUMENT, home)

    def second(self):
        with pytest.raises(ConfigError, match="another process trains here"):
            train(config, DOCUMENT, tmp_path / "t")
        raise KeyboardInterrupt

    monkeypatch.setattr(training._Trainer, "advance", second)
    with pytest.raises(KeyboardInterrupt):
        train(config, DOCUMENT, tmp_path / "t")
    assert list((tmp_path / "t").iterdir()) == []  # the lock is gone
