"""What `check_trace` finds: every damaged byte, and nothing that it crashes on."""

import dataclasses
import hashlib
import json
import os
import random
import shutil
import struct

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgelab.storage.checking import check_trace
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import Manifest
from hedgelab.storage.shards import parse_header
from hedgelab.storage.typed_json import seal
from hedgelab.trace import open_trace
from tests.strategies import a_manifest
from tests.test_recording import record, two_shards

FIRST, SECOND = "shard-00000.safetensors", "shard-00001.safetensors"


@pytest.fixture(autouse=True, scope="module")
def _no_fsync():
    """fsync matters when the power fails, which no test does; it takes most of the time of a small recording."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture
def folder(tmp_path):
    record(tmp_path / "trace", a_manifest(), two_shards())
    return tmp_path / "trace"


def reseal(folder, **changes):
    """Make the manifest fit the shards as they are now, as someone would who changes a trace with care."""
    manifest = Manifest.from_json((folder / "manifest.json").read_bytes())
    shards = []
    for shard in manifest.shards:
        data = (folder / shard.file).read_bytes()
        shards.append(dataclasses.replace(shard, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
    manifest = dataclasses.replace(manifest, shards=tuple(shards), **changes)
    (folder / "manifest.json").write_text(manifest.to_json())


def use(folder):
    """Open a trace and read everything."""
    trace = open_trace(folder)
    for name in ("alpha", "gamma", "domains", "stop", "prompt_ids", "proposed", "sha256", "measured", "rows"):
        getattr(trace, name)
    for s in range(trace.sequences):
        trace.prompt_tokens(s)
    for part in trace.parts():
        assert (part.begin >= 0).all()
        assert (part.end <= len(part.alpha_flat)).all()
    trace.describe()
    trace.validate_values()


def sound_or_refused(folder):
    """Whatever the bytes: `check_trace` returns a list, and reading works or says what is wrong."""
    problems = check_trace(folder)
    try:
        use(folder)
    except TraceError:
        assert problems
    return problems


def test_a_sound_trace_has_no_problem(folder):
    assert check_trace(folder) == open_trace(folder).check() == sound_or_refused(folder) == []
    (folder / "README.md").write_text("the card of the trace")
    assert check_trace(folder) == []


@pytest.mark.parametrize("file", ["manifest.json", "measured.json", FIRST, SECOND])
def test_every_flipped_bit_is_found(folder, file):
    path = folder / file
    data = path.read_bytes()
    rng = random.Random(file)
    header = 8 + int.from_bytes(data[:8], "little") if file.startswith("shard") else 0
    positions = {*range(min(12, len(data))), *rng.sample(range(len(data)), min(100, len(data)))}
    if header:
        positions |= {*rng.sample(range(header), 60), header - 1, header, len(data) - 1}
    for position in sorted(positions):
        damaged = bytearray(data)
        damaged[position] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        problems = sound_or_refused(folder)
        assert any(file.removesuffix(".json") in line for line in problems), position


@pytest.mark.parametrize("file", [FIRST, SECOND])
def test_truncated_extended_missing_shards(folder, file):
    data = (folder / file).read_bytes()
    for new in (data[:-1], data[:100], data[:8], data[:3], b"", data + b"\0", data * 2):
        (folder / file).write_bytes(new)
        problems = sound_or_refused(folder)
        assert problems[0] == f"{file}: has {len(new)} bytes, the manifest says {len(data)}"
        with pytest.raises(TraceError, match=f"{file}: has {len(new)} bytes"):
            open_trace(folder)
    (folder / file).unlink()
    assert check_trace(folder) == [f"{file}: is missing"]
    (folder / file).mkdir()
    assert check_trace(folder) == [f"{file}: is not a regular file"]
    (folder / file).rmdir()
    os.mkfifo(folder / file)  # reading it would wait for ever
    assert check_trace(folder) == [f"{file}: is not a regular file"]
    (folder / file).unlink()
    (folder / file).symlink_to(folder / file)
    (line,) = check_trace(folder)
    assert line.startswith(f"{file}: can't be read: ")


def test_all_problems_at_once(folder):
    (folder / FIRST).unlink()
    data = bytearray((folder / SECOND).read_bytes())
    data[-1] ^= 1
    (folder / SECOND).write_bytes(data)
    (folder / "shard-00002.safetensors").write_bytes(data)
    (folder / "shard-00003.safetensors.tmp").touch()
    (folder / "notes").mkdir()
    (folder / "measured.json").write_text("{}")
    assert sorted(check_trace(folder)) == [
        "measured.json: its bytes do not match its own sha256: damaged, or edited after it was written",
        "notes: is not in the manifest",
        f"{FIRST}: is missing",
        f"{SECOND}: its bytes do not match the sha256 in the manifest: damaged, or replaced",
        "shard-00002.safetensors: is not in the manifest",
        "shard-00003.safetensors.tmp: left by an interrupted recording",
    ]


def test_folders_that_hold_no_trace(tmp_path):
    assert check_trace(tmp_path / "none") == [f"{tmp_path / 'none'}: no such folder"]
    assert check_trace(tmp_path) == ["manifest.json: is missing"]
    (tmp_path / "file").touch()
    (line,) = check_trace(tmp_path / "file")
    assert "can't be read" in line
    for path, words in (("none", "no such folder"), ("file", "is not a folder"), (".", "manifest.json: is missing")):
        with pytest.raises(TraceError, match=words):
            open_trace(tmp_path / path)
    assert check_trace("\0") != []
    with pytest.raises(TraceError):
        open_trace("\0")


def test_paths_out_of_the_folder(folder, tmp_path):
    """Even where the file is there and its hash is right."""
    shutil.copy(folder / FIRST, tmp_path / FIRST)
    for name in (f"../{FIRST}", str(tmp_path / FIRST)):
        document = json.loads((folder / "manifest.json").read_text())
        document["shards"][0]["file"] = name
        (folder / "manifest.json").write_bytes(seal(document))
        assert check_trace(folder) == [f"manifest.shards[0].file: is {name!r}; allowed: {FIRST!r}"]


def test_swapped_shards(folder):
    a, b = (folder / FIRST).read_bytes(), (folder / SECOND).read_bytes()
    (folder / FIRST).write_bytes(b)
    (folder / SECOND).write_bytes(a)
    assert {line.split(":")[0] for line in check_trace(folder)} == {FIRST, SECOND}


# ------------------------------------------------------------------ files changed with care


def rewrite(folder, file, edit):
    """Change the stored columns of a shard, and fit the manifest to it."""
    columns = {name: values.copy() for name, values in safetensors.numpy.load_file(folder / file).items()}
    edit(columns)
    (folder / file).write_bytes(safetensors.numpy.save(columns))
    reseal(folder)


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda c: c.pop("token"), "tensor 'token': missing"),
        (lambda c: c.update(extra=c["token"]), "tensor 'extra': unknown"),
        (
            lambda c: c.update(token=c["token"].astype(np.int64)),
            "tensor 'token': is int64; the manifest asks for int32",
        ),
        (lambda c: c.update(token=c["token"][:-1]), "tensor 'token': has shape (7,); the manifest asks for (8,)"),
        (lambda c: c.update(alpha_deep=c["alpha_deep"][:-1]), "tensor 'alpha_deep': has shape (5,); the manifest asks"),
        (
            lambda c: c.update(prompt_token=c["prompt_token"][None]),
            "tensor 'prompt_token': has 2 dimensions; allowed: 1",
        ),
        (lambda c: c["token"].__setitem__(2, 100), "token: is 100 at row 2; allowed: [0, 99]"),
        (lambda c: c["alpha_flat"].__setitem__((1, 0), np.nan), "alpha_flat: is nan at row 1, drafter 1 (ngram)"),
        (lambda c: c["alpha_flat"].__setitem__((1, 0), 1.5), "alpha_flat: is 1.5 at row 1, drafter 1 (ngram)"),
        (lambda c: c["gamma_flat"].__setitem__((1, 1), 65535), "gamma_flat: is nan at row 1, drafter 3 (small)"),
        (
            lambda c: c["offsets"].__setitem__(1, 10**12),
            "offsets: sequence 1 runs from 1000000000000 to 4; allowed: ascending",
        ),
        (
            lambda c: c["prompt_offsets"].__setitem__(1, -5),
            "prompt_offsets: sequence 0 runs from 0 to -5; allowed: not descending",
        ),
        (lambda c: c["stop"].__setitem__(0, 9), "stop: is 9 at sequence 0; allowed: [0, 3]"),
        (lambda c: c["prompt_id"].__setitem__(0, 0xC0), "prompt_id: is not UTF-8 at sequence 0"),
        (lambda c: c["prompt_sha256"].__setitem__((2, 5), 1), "prompt_sha256: is not the hash"),
    ],
)
def test_a_shard_that_is_wrong_but_sealed(folder, edit, problem):
    rewrite(folder, FIRST, edit)
    problems = sound_or_refused(folder)
    assert any(line.startswith(f"{FIRST}: {problem}") for line in problems)


def test_one_id_in_two_shards(folder):
    rewrite(folder, SECOND, lambda columns: columns["sequence_id"].__setitem__(1, 2))
    assert check_trace(folder) == ["sequence_id: 2 appears 2 times; allowed: once"]


def test_manifest_that_does_not_fit_its_shards(folder):
    drafters = open_trace(folder).manifest.drafters
    reseal(folder, k=4, drafters=tuple(dataclasses.replace(d, depth=4 if d.depth == 3 else 1) for d in drafters))
    assert any("tensor 'gamma_deep': has shape (8, 3, 2); the manifest asks for (8, 4, 2)" in line
               for line in check_trace(folder))  # fmt: skip
    reseal(folder, logits=0)
    assert any("tensor 'logit_row': unknown" in line for line in check_trace(folder))


@settings(max_examples=60)
@given(st.data())
def test_sealed_garbage_never_crashes(tmp_path_factory, data):
    """Random bytes over a shard, then sealed: read in full, or refused with a TraceError."""
    folder = tmp_path_factory.mktemp("garbage") / "trace"
    shutil.copytree(_whole(tmp_path_factory), folder)
    for file in (FIRST, SECOND):
        raw = bytearray((folder / file).read_bytes())
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(raw) - 1))
            new = data.draw(st.binary(min_size=1, max_size=8))
            raw[at : at + len(new)] = new
        (folder / file).write_bytes(raw)
    reseal(folder)
    sound_or_refused(folder)
    shutil.rmtree(folder)


def _whole(factory, kept={}):  # noqa: B006
    if not kept:
        kept["folder"] = factory.mktemp("whole") / "trace"
        record(kept["folder"], a_manifest(), two_shards())
    return kept["folder"]


# ------------------------------------------------------------------ headers


def file_of(header, size=0, length=None):
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length % 2**64) + raw + bytes(size)


def entry(dtype="U8", shape=(4,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "has 0 bytes"),
        (b"\x01\0\0", "has 3 bytes"),
        (file_of({}, length=3), "header length 3 exceeds what the file of 10 bytes can hold"),
        (file_of({}, length=1), "header is not valid JSON"),
        (file_of({}, length=2**63), "header length 9223372036854775808 exceeds"),
        (file_of({}, length=-1), "header length 18446744073709551615 exceeds"),
        (file_of(b"", length=0), "header is not valid JSON"),
        (file_of([]), "header is not a JSON object"),
        (file_of(b'{"a": 1, "a": 1}'), "key 'a' appears twice"),
        (file_of(b"{" * 9), "header is not valid JSON"),
        (file_of({"__metadata__": {"x": "y"}}), "tensor '__metadata__': is not an object of dtype, shape"),
        (file_of({"a": 5}, 4), "tensor 'a': is not an object"),
        (file_of({"a": {**entry(), "more": 1}}, 4), "tensor 'a': is not an object of dtype, shape and data_offsets"),
        (file_of({"a": entry("F8_E4M3")}, 4), "dtype 'F8_E4M3' is none of"),
        (file_of({"a": entry(["U8"])}, 4), "is none of"),
        (file_of({"a": entry(shape=(-4,))}, 4), "is not a list of sizes"),
        (file_of({"a": entry(shape=(4.0,))}, 4), "is not a list of sizes"),
        (file_of({"a": entry(shape=(True, 4))}, 4), "is not a list of sizes"),
        (file_of({"a": {**entry(), "shape": "4"}}, 4), "is not a list of sizes"),
        (file_of({"a": entry(offsets=(4, 0))}, 4), "are not two ascending positions"),
        (file_of({"a": entry(offsets=(0, 2, 4))}, 4), "are not two ascending positions"),
        (file_of({"a": entry(offsets=(-4, 0))}, 4), "are not two ascending positions"),
        (file_of({"a": entry(shape=(2**40, 2**40), offsets=(0, 4))}, 4), "span 4 bytes, its shape"),
        (file_of({"a": entry(shape=(2**70,), offsets=(0, 2**70))}, 4), f"tensors end at byte {2**70 + 110}"),
        (file_of({"a": entry(), "b": entry()}, 4), "tensor 'b': begins at byte"),
        (file_of({"a": entry(), "b": entry(offsets=(2, 6))}, 6), "tensor 'b': begins at byte"),
        (file_of({"a": entry(offsets=(1, 5))}, 5), "tensor 'a': begins at byte"),
        (file_of({"a": entry(), "b": entry(offsets=(5, 9))}, 9), "tensor 'b': begins at byte"),
        (file_of({"a": entry()}, 3), "cut short, or extended"),
        (file_of({"a": entry()}, 5), "cut short, or extended"),
        (file_of({"a": entry(shape=(1,), offsets=(0, 1)), "b": entry("I64", (1,), (1, 9))}, 9), "not aligned to 8"),
        (file_of(b'{"a": ' + b"[" * 50_000, 0), "header is not valid JSON: nested too deeply"),
    ],
)  # fmt: skip
def test_headers_are_read_strictly(raw, words):
    with pytest.raises(TraceError, match=words):
        parse_header(raw, len(raw))


@given(st.data())
def test_headers_agree_with_the_library(data):
    dtypes = [np.float32, np.int64, np.int32, np.int16, np.uint16, np.uint8]
    arrays = {
        name: np.zeros(data.draw(st.lists(st.integers(0, 3), max_size=3)), data.draw(st.sampled_from(dtypes)))
        for name in data.draw(st.lists(st.text(st.characters(codec="utf-8"), max_size=4), max_size=4, unique=True))
    }
    arrays.pop("__metadata__", None)
    raw = safetensors.numpy.save(arrays)
    tensors = parse_header(raw, len(raw))
    assert {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()} == {
        name: (array.dtype, array.shape) for name, array in arrays.items()
    }


@given(st.binary(max_size=40), st.integers(0, 2**64 - 1))
def test_any_bytes_are_parsed_or_refused(header, length):
    for raw in (header, struct.pack("<Q", len(header)) + header, struct.pack("<Q", length) + header):
        try:
            parse_header(raw, len(raw))
        except TraceError as error:
            assert error.problems  # noqa: PT017
