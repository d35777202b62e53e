"""Hidden states kept while texts are written, and trainings that learn from them."""

import dataclasses

import numpy as np
import pytest
import torch

from tests.strategies_recording import WORDS, tiny_checkpoint, tiny_prompts
from tests.test_collect import LOOKUP, config_of
from traces.collect import collect
from traces.config import parse_train_config
from traces.states import KeepStates, States, StatesError, text_hash
from traces.targets import load_target
from traces.texts import Texts
from traces.train import samples_of, train

HOW = {"temperature": 0.7}
TAPS = (1, 2)
DOCUMENT = {
    "name": "tiny", "kind": "eagle", "taps": [2, 1, 3], "texts": ["train"], "temperature": 0.7, "target": "target",
    "heldout": 0.2, "width": 40, "depth": 3, "batch": 5, "steps": 25, "states": ["states"], "seed": 4,
}  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A tiny target, texts that it wrote in several shards, and the states kept meanwhile."""
    folder = tmp_path_factory.mktemp("states")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    tiny_prompts(folder / "prompts.jsonl", 12)
    config = config_of(folder, HOW, {"temperature": 0.0}, drafters=LOOKUP, k=1, max_new_tokens=30, batch=9)
    collect(config, {}, folder / "train", states=KeepStates(folder / "states", TAPS, 0.7))
    return folder


@pytest.fixture(scope="module")
def target(home):
    return load_target(str(home / "target"))


@torch.inference_mode()
def test_they_are_those_of_a_pass_over_the_whole_text(home, target):
    kept = States([home / "states"], target, TAPS, 0.7)
    assert kept.taps == [1, 2, 3]
    samples = samples_of([Texts.load(home / "train")])
    assert len(samples) > 20
    assert len({sample.prompt for sample in samples}) > 3
    for sample in samples:
        states, total = kept.read(sample.ids)
        out = target.model(torch.tensor(sample.ids[None, :-1]), output_hidden_states=True)
        for tap, state in zip(kept.taps, states, strict=True):
            torch.testing.assert_close(state, out.hidden_states[tap][0], atol=2e-5, rtol=2e-5)
        logits = target.known(out.logits[0])[sample.prompt - 1 :]
        torch.testing.assert_close(total, (logits / 0.7).logsumexp(-1), atol=2e-5, rtol=2e-5)
        assert sample.ids in kept


def test_keeping_them_changes_no_byte_of_the_trace(home, tmp_path):
    config = config_of(home, HOW, {"temperature": 0.0}, drafters=LOOKUP, k=1, max_new_tokens=30, batch=9)
    collect(config, {}, tmp_path / "plain")
    for file in (home / "train").glob("*.safetensors"):
        assert (tmp_path / "plain" / file.name).read_bytes() == file.read_bytes()


def test_a_training_on_them_is_the_training_without(home, tmp_path):
    """Rounding apart: the first losses agree closely, and the head learns as well."""
    losses = {}
    for name, document in (("kept", DOCUMENT), ("computed", {**DOCUMENT, "states": []})):
        found = losses[name] = []
        card = train(
            parse_train_config(document, home), document, tmp_path / name,
            progress=lambda step, total, loss, found=found: found.append(loss),
        )  # fmt: skip
        found.append(card.acceptance[0])
    np.testing.assert_allclose(losses["kept"][:5], losses["computed"][:5], rtol=1e-4)
    np.testing.assert_allclose(losses["kept"], losses["computed"], rtol=0.05)


def test_a_text_that_is_dropped_leaves_none(home, tmp_path, monkeypatch, target):
    """A fault in one text of a batch: the others' states stay in their places."""
    from traces import collect as collecting

    real = collecting.faults

    def faults(logits):
        return {1: "NaN"} if len(logits) == 9 else real(logits)

    monkeypatch.setattr(collecting, "faults", faults)
    config = config_of(home, HOW, {"temperature": 0.0}, drafters=LOOKUP, k=1, max_new_tokens=30, batch=9)
    summary = collect(config, {}, tmp_path / "train", states=KeepStates(tmp_path / "states", TAPS, 0.7))
    assert summary.dropped
    kept = States([tmp_path / "states"], target, TAPS, 0.7)
    whole = States([home / "states"], target, TAPS, 0.7)
    for sample in samples_of([Texts.load(tmp_path / "train")]):
        for a, b in zip(kept.read(sample.ids)[0], whole.read(sample.ids)[0], strict=True):
            torch.testing.assert_close(a, b, atol=2e-5, rtol=2e-5)
    with pytest.raises(StatesError, match="no states of a training text were kept there"):
        kept.read(np.array([1, 2, 3]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": 0.8}, "temperature of the kept states is 0.7, here it is 0.8"),
        ({"taps": (0, 1)}, r"no states of layers \[0\] were kept"),
        ({"folders": ["nowhere"]}, "nowhere: holds no kept states"),
        ({"sha256": "f" * 64}, "target_sha256"),
    ],
)
def test_states_that_do_not_fit_are_refused(home, target, change, words):
    other = dataclasses.replace(
        target, info=dataclasses.replace(target.info, sha256=change.get("sha256", target.info.sha256))
    )
    folders = [home / name for name in change.get("folders", ["states"])]
    with pytest.raises(StatesError, match=words):
        States(folders, other, change.get("taps", TAPS), change.get("temperature", 0.7))


def test_damaged_files_are_named(home, tmp_path, target):
    (tmp_path / "states-00000.safetensors").write_bytes(b"nothing")
    with pytest.raises(StatesError, match=r"states-00000\.safetensors: cannot be read"):
        States([tmp_path], target, TAPS, 0.7)


def test_states_of_other_texts_are_noticed(home, tmp_path):
    """Files whose states stand in other places: one look at the target tells."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    (tmp_path / "states").mkdir()
    for file in (home / "states").glob("*"):
        with safe_open(file, framework="pt") as store:
            tensors = {name: store.get_tensor(name) for name in store.keys()}  # noqa: SIM118 - no mapping
            metadata = store.metadata()
        tensors = {name: value.roll(1, 0) if name.startswith("state.") else value for name, value in tensors.items()}
        save_file(
            {name: value.contiguous() for name, value in tensors.items()}, tmp_path / "states" / file.name, metadata
        )
    document = {**DOCUMENT, "target": str(home / "target"), "texts": [str(home / "train")]}
    with pytest.raises(StatesError, match="differ by"):
        train(parse_train_config(document, tmp_path), document, tmp_path / "head")


def test_the_hash_is_of_the_ids():
    assert text_hash(np.array([1, 2], np.int32)) == text_hash(np.array([1, 2])) != text_hash(np.array([2, 1]))
