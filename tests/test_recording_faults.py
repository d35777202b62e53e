"""Faults met in the field by those who record: damaged models, mixed recordings, odd files."""

import errno
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from hedgelab.trace import TraceError, open_trace
from tests.strategies_recording import tiny_checkpoint, tiny_prompts
from tests.test_collect import LOOKUP, config_of
from traces.collect import collect
from traces.config import ConfigError, parse_config
from traces.drafters.base import DrafterError
from traces.prompts import PromptError, read
from traces.targets import TargetError, load_target
from traces.texts import Texts, TextsError

WARM = {"temperature": 0.8}
DOCUMENT = {
    "name": "x",
    "target": "target",
    "prompts": {"file": "prompts.jsonl"},
    "processing": WARM,
    "drafters": LOOKUP,
    "k": 2,
    "max_new_tokens": 6,
}


@pytest.fixture
def home(tmp_path):
    tiny_checkpoint(tmp_path / "target")
    tiny_prompts(tmp_path / "prompts.jsonl", 4)
    return tmp_path


def test_missing_weights_are_never_filled_in(home):
    weights = home / "target" / "model.safetensors"
    tensors = load_file(weights)
    name = next(key for key in tensors if key.endswith("mlp.down_proj.weight"))
    save_file({key: value for key, value in tensors.items() if key != name}, weights, metadata={"format": "pt"})
    with pytest.raises(TargetError, match=f"missing keys: {name}"):
        load_target(str(home / "target"))
    save_file({**tensors, "one.more": torch.zeros(1)}, weights, metadata={"format": "pt"})
    with pytest.raises(TargetError, match=r"unexpected keys: one\.more"):
        load_target(str(home / "target"))
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(TargetError, match="cannot be loaded"):
        load_target(str(home / "target"))


@pytest.mark.parametrize("device", ["gpu", "meta", "nothing:1"])
def test_devices_that_there_are_not(home, device):
    with pytest.raises(TargetError, match="device"):
        load_target(str(home / "target"), device)


def prompts(home):
    lines = (home / "prompts.jsonl").read_text().splitlines()
    (home / "prompts.jsonl").write_text("\n".join(lines[::-1]) + "\n")


def settings(home):
    file = home / "target" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "rms_norm_eps": 0.5}))


@pytest.mark.parametrize("change", [prompts, settings])
def test_resuming_never_mixes_two_recordings(home, tmp_path, change):
    config = config_of(home, WARM, WARM, drafters=LOOKUP, batch=3)

    def stop(done, total, summary):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collect(config, {}, tmp_path / "out", progress=stop)
    assert not open_trace(tmp_path / "out").manifest.complete
    change(home)
    with pytest.raises(TraceError, match="settings"):
        collect(config, {}, tmp_path / "out", resume=True)


def test_lookup_one_token_deep_with_logits(home, tmp_path):
    collect(config_of(home, WARM, WARM, drafters=LOOKUP, k=1, logits=5), {}, tmp_path / "out")
    trace = open_trace(tmp_path / "out")
    assert trace.check() == []
    silent = np.isnan(trace.column("tail_q")[:, 0])
    assert silent.any()
    assert (trace.alpha[trace.column("logit_row")[silent], 0, 0] == 0).all()


def test_certain_drafts_have_no_temperature(home):
    bare = [{"name": "lookup", "kind": "lookup"}]
    assert config_of(home, WARM, WARM, drafters=bare).drafters[0].processing.temperature == 0
    warm = [{"name": "lookup", "kind": "lookup", "processing": WARM}]
    with pytest.raises(DrafterError, match="certain"):
        collect(config_of(home, WARM, WARM, drafters=warm), {}, home / "out")
    short = [{"name": "lookup", "kind": "lookup", "options": {"longest": 1, "shortest": 2}}]
    with pytest.raises(DrafterError, match="shortest is 2"):
        collect(config_of(home, WARM, WARM, drafters=short), {}, home / "out")


def test_ids_that_the_tokenizer_lacks_are_never_drawn(home):
    target = load_target(str(home / "target"))
    holes = torch.tensor([3, 5])
    logits = torch.zeros(2, target.vocabulary + 4)
    assert target.known(logits).shape == (2, target.vocabulary)
    object.__setattr__(target, "absent", holes)
    known = target.known(logits)
    assert torch.isinf(known[:, holes]).all()
    assert torch.isfinite(known).sum() == 2 * (target.vocabulary - 2)


def test_a_target_beside_its_configuration(home, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    collect(parse_config(DOCUMENT, home), {}, tmp_path / "out")
    assert open_trace(tmp_path / "out").manifest.complete


def line(text):
    return json.dumps({"messages": [{"role": "user", "content": text}]}, ensure_ascii=False)


def test_json_lines_may_hold_line_separators_and_a_bom(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text("\ufeff" + line("one \u2028 two \x85 three") + "\r\n" + line("four") + "\n", encoding="utf-8")
    assert [prompt.chat()[-1]["content"] for prompt in read(file)] == ["one \u2028 two \x85 three", "four"]
    file.write_text('{"messages": [{"role": "user", "content": "\\ud800"}]}\n')
    with pytest.raises(PromptError, match="1: holds half of a surrogate pair"):
        read(file)
    file.write_text("[" * 100_000)
    with pytest.raises(PromptError, match=r"p\.jsonl"):
        read(file)


def test_texts_hold_many_domains_and_no_unknown_tokens(tmp_path):
    n = 300
    texts = Texts(
        np.arange(n, dtype=np.int32), np.arange(n + 1), np.arange(n), np.arange(n), tuple(f"d{i}" for i in range(n)),
        1000, "", "x", "",
    )  # fmt: skip
    texts.save(tmp_path / "t.safetensors")
    assert Texts.load(tmp_path / "t.safetensors").domain.tolist() == list(range(n))
    texts.token[3] = -1
    with pytest.raises(TextsError, match="unknown tokens"):
        texts.save(tmp_path / "t.safetensors")


def test_out_of_space_or_rights_is_said_in_one_line(home, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from traces.__main__ import app

    (home / "c.yaml").write_text(json.dumps(DOCUMENT))
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["collect", str(home / "c.yaml"), "--out", str(tmp_path / "file" / "out")])
    assert result.exit_code == 1
    assert "\nerror: " in result.stderr
    assert "is no folder" in result.stderr

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("hedgelab.storage.recording.TraceWriter.write", full)
        result = CliRunner().invoke(app, ["collect", str(home / "c.yaml"), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert "--resume" in result.stderr
    shutil.rmtree(home / "target")
    result = CliRunner().invoke(app, ["collect", str(home / "c.yaml"), "--out", str(tmp_path / "new")])
    assert result.exit_code == 1
    assert "'target' is neither" in result.stderr


def test_configurations_name_what_is_wrong_with_lookup(home):
    with pytest.raises(ConfigError, match="longest"):
        config_of(home, WARM, WARM, drafters=[{"name": "l", "kind": "lookup", "options": {"longest": 0}}])
