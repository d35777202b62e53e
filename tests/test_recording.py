import dataclasses
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgelab.storage.checking import check_trace
from hedgelab.storage.columns import COLUMNS
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import Dropped, Manifest
from hedgelab.storage.recording import TraceWriter
from hedgelab.trace import open_trace
from tests.strategies import a_manifest, dropped_records, recordings, shard_columns

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True, scope="module")
def _no_fsync():
    """fsync matters when the power fails, which no test does; it takes most of the time of a small recording."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


def record(folder, manifest, shards, *, measured=None, **options):
    """Write what is not there yet, and finish."""
    with TraceWriter(folder, manifest, **options) as writer:
        for i in range(writer.done, len(shards)):
            writer.write(shards[i], cuts=i % 2, dropped=[Dropped(f"p{i}", "NaN logits")] * (i % 3))
        writer.finish(measured or {"host": "here"})
    return open_trace(folder)


def two_shards(manifest=None, seed=0):
    rng = np.random.default_rng(seed)
    manifest = manifest or a_manifest()
    return [shard_columns(manifest, rng, [3, 1, 4], 0), shard_columns(manifest, rng, [2, 2], 3)]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@settings(max_examples=40)
@given(recordings(), dropped_records)
def test_round_trip(tmp_path_factory, recording, dropped):
    """What was written is what is read, for every mix of drafters and encodings."""
    manifest, shards = recording
    folder = tmp_path_factory.mktemp("trace")
    with TraceWriter(folder, manifest) as writer:
        for i, shard in enumerate(shards):
            assert writer.done == i
            writer.write(shard, cuts=i, dropped=dropped)
        writer.finish({"seconds": 1.5})
    assert check_trace(folder) == []
    trace = open_trace(folder)
    expected = dataclasses.replace(manifest.checked(), complete=True, shards=trace.manifest.shards)
    assert trace.manifest == expected
    assert [shard.cuts for shard in trace.manifest.shards] == list(range(len(shards)))
    assert all(shard.dropped == tuple(dropped) for shard in trace.manifest.shards)
    assert trace.measured == {"seconds": 1.5}
    for name in shards[0] if shards else ():
        parts = [shard[name] for shard in shards]
        if name.endswith("offsets"):
            whole = np.concatenate([[0], *(np.diff(part) for part in parts)]).cumsum()
        elif name == "logit_row":
            starts = np.cumsum([0, *(len(shard["token"]) for shard in shards)])
            whole = np.concatenate([part + start for part, start in zip(parts, starts, strict=False)])
        else:
            whole = np.concatenate(parts)
        tolerance = 7.7e-6 if manifest.encoding(name) == "fixed16" else 0
        read = trace.column(name)
        assert read.dtype == COLUMNS[name].dtype
        assert read.shape == whole.shape
        np.testing.assert_allclose(read, whole, rtol=0, atol=tolerance, err_msg=name)


def test_shards_are_plain_safetensors(tmp_path):
    """The library reads them back; there is no metadata, and bytes do not depend on the order of the columns."""
    shards = two_shards()
    record(tmp_path / "a", a_manifest(), shards)
    record(tmp_path / "b", a_manifest(), [dict(reversed(shard.items())) for shard in shards])
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    stored = safetensors.numpy.load_file(tmp_path / "a" / "shard-00001.safetensors")
    np.testing.assert_array_equal(stored["token"], shards[1]["token"])
    assert stored["alpha_deep"].dtype == np.uint8
    assert b"__metadata__" not in (tmp_path / "a" / "shard-00001.safetensors").read_bytes()
    assert sorted(contents(tmp_path / "a")) == [
        "manifest.json",
        "measured.json",
        *sorted(f"shard-0000{i}.safetensors" for i in range(2)),
    ]


def test_dtypes_are_cast_when_nothing_is_lost(tmp_path):
    shards = two_shards()
    wide = [
        {
            name: np.asfortranarray(values.astype(np.int64 if values.dtype.kind in "iu" else np.float64))
            for name, values in shard.items()
        }
        for shard in shards
    ]
    record(tmp_path / "a", a_manifest(), shards)
    record(tmp_path / "b", a_manifest(), wide)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")


# ------------------------------------------------------------------ bad shards


def changed(**columns):
    shard = two_shards()[0]
    for name, value in columns.items():
        if value is None:
            del shard[name]
        elif callable(value):
            shard[name] = shard[name].copy()
            value(shard[name])
        else:
            shard[name] = value
    return shard


def put(*index_and_value):
    *index, value = index_and_value

    def change(array):
        array[tuple(index)] = value

    return change


@pytest.mark.parametrize(
    ("columns", "problems"),
    [
        ({"token": None}, ["token: missing"]),
        ({"colour": np.zeros(3)}, ["colour: unknown; allowed: token, offsets"]),
        ({"token": put(3, 100)}, ["token: is 100 at row 3; allowed: [0, 99]"]),
        ({"token": np.zeros(8)}, ["token: holds float64; allowed: integers"]),
        ({"token": put(3, -1), "first_token": put(2, -1)},
         ["token: is -1 at row 3", "first_token: is -1 at sequence 2"]),
        ({"stop": put(1, 4)}, ["stop: is 4 at sequence 1; allowed: [0, 3]"]),
        ({"domain": put(1, 2)}, ["domain: is 2 at sequence 1; allowed: [0, 1]"]),
        ({"sequence_id": put(1, 0)}, ["sequence_id: 0 appears 2 times; allowed: once"]),
        ({"offsets": put(1, 0)}, ["offsets: sequence 0 runs from 0 to 0; allowed: ascending, no empty sequence"]),
        ({"offsets": put(0, 1)}, ["offsets: begins with 1; allowed: 0"]),
        ({"offsets": put(3, 7)}, ["offsets: ends with 7; allowed: 8, the number of entries"]),
        ({"prompt_offsets": put(-1, 99)}, ["prompt_offsets: ends with 99"]),
        ({"prompt_sha256": put(1, 0, 7)}, ["prompt_sha256: is not the hash of the prompt's tokens at sequence 1"]),
        ({"prompt_id": put(0, 255)}, ["prompt_id: is not UTF-8 at sequence 0: invalid start byte"]),
        ({"target_logprob": put(2, np.nan)}, ["target_logprob: is nan at row 2"]),
        ({"target_logprob": put(2, -np.inf)}, ["target_logprob: is -inf at row 2"]),
        ({"target_logprob": put(2, 0.1)}, ["target_logprob: is 0.1"]),
        ({"target_entropy": put(2, 5)}, ["target_entropy: is 5.0 at row 2"]),
        ({"target_top2_margin": put(2, -1)}, ["target_top2_margin: is -1.0 at row 2; allowed: [0, inf]"]),
        ({"confidence": put(2, 3, 1.5)}, ["confidence: is 1.5 at row 2, drafter 3 (small); allowed: [0, 1] or NaN"]),
        ({"alpha_flat": put(2, 1, 1.5)}, ["alpha_flat: is 1.5 at row 2, drafter 3 (small); allowed: [0, 1]"]),
        ({"gamma_flat": put(2, 0, np.nan)}, ["gamma_flat: is nan at row 2, drafter 1 (ngram); allowed: [0, 1]"]),
        ({"alpha_deep": put(2, 1, 1, np.nan)},
         ["alpha_deep: is nan at row 2, depth 1, drafter 2 (suffix); allowed: [0, 1]"]),
        ({"proposed": put(2, 1, 4)}, ["proposed: is 4 at row 2, drafter 2 (suffix); allowed: [0, 3]"]),
        ({"match_length": put(2, 1, -1)}, ["match_length: is -1 at row 2, drafter 2 (suffix); allowed: [0, 32767]"]),
        ({"logit_id": np.zeros((2, 2), int), "logit_row": np.arange(2), "logit_p": -np.ones((2, 2)),
          "logit_q": -np.ones((2, 4, 2)), "tail_p": np.ones(2), "tail_q": np.full((2, 4), -0.5)},
         ["tail_q: is -0.5 at record 0, drafter 0 (lookup)", "logit_id: holds 0 twice at record 0"]),
        ({"logit_row": np.array([3, 3]), "logit_id": np.array([[1, 2], [3, 4]]), "logit_p": np.full((2, 2), np.nan),
          "logit_q": np.full((2, 4, 2), np.nan), "tail_p": np.ones(2), "tail_q": np.ones((2, 4))},
         ["logit_p: is nan at record 0, rank 0", "logit_q: is nan at record 0, drafter 1 (ngram), rank 0",
          "logit_row: does not ascend after record 0"]),
        ({"alpha_flat": np.zeros((8, 3))}, ["alpha_flat: shape (8, 3); allowed: (8, 2), which is (T, N1)"]),
        ({"alpha_flat": np.zeros((7, 2)), "stop": np.zeros(4, int)}, ["stop: shape (4,)", "alpha_flat: shape (7, 2)"]),
        ({"alpha_flat": [[1, 2], [3]]}, ["alpha_flat: is not an array: "]),
    ],
)  # fmt: skip
def test_a_bad_shard_is_refused_with_every_problem(tmp_path, columns, problems):
    """Nothing is written then, and the writer goes on."""
    with TraceWriter(tmp_path, a_manifest()) as writer:
        before = contents(tmp_path)
        with pytest.raises(TraceError) as caught:
            writer.write(changed(**columns), cuts=0)
        assert contents(tmp_path) == before
        assert len(caught.value.problems) == len(problems)
        for line, problem in zip(caught.value.problems, problems, strict=True):
            assert line.startswith(f"shard-00000.safetensors: {problem}")
        writer.write(two_shards()[0], cuts=0)
        assert writer.done == 1


def test_deep_blocks_must_fit_together(tmp_path):
    shard = two_shards()[0]
    shard["proposed"][:] = 3
    shard["alpha_deep"][:], shard["gamma_deep"][:] = 1, 0.5
    shard["gamma_deep"][4, 2, 1] = np.nan
    shard["proposed"][6, 0] = 1
    with TraceWriter(tmp_path, a_manifest()) as writer, pytest.raises(TraceError) as caught:
        writer.write(shard, cuts=0)
    nothing = "allowed: 0 at depths where nothing was proposed"
    assert [line.partition(": ")[2] for line in caught.value.problems] == [
        "gamma_deep: is nan at row 4, depth 2, drafter 2 (suffix); allowed: NaN only where alpha is 0",
        f"alpha_deep: is 1.0 at row 7, depth 1, drafter 0 (lookup); {nothing}",
        f"gamma_deep: is 0.5 at row 7, depth 1, drafter 0 (lookup); {nothing}",
    ]


def test_values_are_checked_before_they_are_rounded(tmp_path):
    """1 + 1e-9 would be 1 in float32, 2^63 as uint64 would be negative in int64."""
    shard = two_shards()[0]
    shard["alpha_flat"] = shard["alpha_flat"].astype(np.float64)
    shard["alpha_flat"][0, 0] = 1 + 1e-9
    shard["sequence_id"] = shard["sequence_id"].astype(np.uint64) + np.uint64(2**63)
    with TraceWriter(tmp_path, a_manifest()) as writer, pytest.raises(TraceError) as caught:
        writer.write(shard, cuts=0)
    assert ["sequence_id" in line or "alpha_flat" in line for line in caught.value.problems] == [True, True]


@pytest.mark.parametrize(("encoding", "allowed"), [("bits", "0 or 1")])
def test_an_encoding_that_cannot_hold_the_values(tmp_path, encoding, allowed):
    manifest = a_manifest(encodings={**a_manifest().encodings, "alpha_flat": encoding})
    shard = two_shards()[0]
    shard["alpha_flat"][:] = 1
    shard["alpha_flat"][5, 1] = 0.25
    with TraceWriter(tmp_path, manifest) as writer, pytest.raises(TraceError) as caught:
        writer.write(shard, cuts=0)
    assert (
        str(caught.value) == f"shard-00000.safetensors: alpha_flat: encoding bits holds {allowed}, not 0.25 at [5, 1]"
    )


def test_a_bandit_recording_may_lack_what_was_not_observed(tmp_path):
    manifest = a_manifest(feedback="bandit")
    shard = two_shards(manifest)[0]
    for name in ("alpha_flat", "gamma_flat"):
        shard[name][0, 0] = np.nan
    for name in ("alpha_deep", "gamma_deep"):
        shard[name] = np.full_like(shard[name], np.nan)
    manifest = dataclasses.replace(manifest, encodings={**manifest.encodings, "alpha_deep": "float32"})
    assert np.isnan(record(tmp_path, manifest, [shard]).alpha[:, :, 0]).all()


def test_ids_are_unique_across_shards(tmp_path):
    rng = np.random.default_rng(0)
    first, second = (shard_columns(a_manifest(), rng, [2, 2], i) for i in (0, 1))
    with TraceWriter(tmp_path, a_manifest()) as writer:
        writer.write(first, cuts=0)
        with pytest.raises(TraceError, match="sequence_id: 1 is in an earlier shard; allowed: once"):
            writer.write(second, cuts=0)
    with TraceWriter(tmp_path, a_manifest(), resume=True) as writer:
        with pytest.raises(TraceError, match="sequence_id: 1 is in an earlier shard; allowed: once"):
            writer.write(second, cuts=0)
        with pytest.raises(TraceError, match=r"shard.cuts: is -1; allowed: at least 0"):
            writer.write(shard_columns(a_manifest(), rng, [2, 2], 5), cuts=-1)


# ------------------------------------------------------------------ the folder


def test_a_folder_in_use_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(TraceError, match=r"is not empty: notes.txt; resume it, or choose another folder"):
        TraceWriter(tmp_path, a_manifest())
    with pytest.raises(TraceError, match=r"holds what no trace has: notes.txt"):
        TraceWriter(tmp_path, a_manifest(), resume=True)
    assert list(contents(tmp_path)) == ["notes.txt"]
    with pytest.raises(TraceError, match="is no folder"):
        TraceWriter(tmp_path / "notes.txt", a_manifest())


def test_a_manifest_that_is_wrong_or_begun_is_refused(tmp_path):
    folder = tmp_path / "new"
    with pytest.raises(TraceError, match=r"manifest.k: is 0"):
        TraceWriter(folder, a_manifest(k=0))
    with pytest.raises(TraceError, match="a writer begins with no shards"):
        TraceWriter(folder, a_manifest(complete=True))
    assert not folder.exists()


def test_shards_without_a_manifest_are_not_ours(tmp_path):
    (tmp_path / "shard-00000.safetensors").write_bytes(b"x")
    with pytest.raises(TraceError, match=r"has shard-00000.safetensors, but no manifest.json"):
        TraceWriter(tmp_path, a_manifest(), resume=True)
    assert (tmp_path / "shard-00000.safetensors").read_bytes() == b"x"


def test_two_writers_at_once(tmp_path):
    with TraceWriter(tmp_path, a_manifest()) as writer:
        for resume in (False, True):
            with pytest.raises(TraceError, match="another writer is at work there"):
                TraceWriter(tmp_path, a_manifest(), resume=resume)
        writer.write(two_shards()[0], cuts=0)  # the first is unharmed
    with TraceWriter(tmp_path, a_manifest(), resume=True) as writer:
        assert writer.done == 1
    assert not (tmp_path / ".lock").exists()


def test_closed_and_complete_writers_refuse(tmp_path):
    with TraceWriter(tmp_path, a_manifest()) as writer:
        writer.write(two_shards()[0], cuts=0)
        writer.finish({})
    for call in (lambda: writer.write(two_shards()[1], cuts=0), lambda: writer.finish({})):
        with pytest.raises(TraceError, match="this writer is closed"):
            call()
    with TraceWriter(tmp_path, a_manifest(), resume=True) as writer:
        assert writer.complete
        with pytest.raises(TraceError, match="the trace is complete; nothing can be added"):
            writer.write(two_shards()[1], cuts=0)
        writer.finish({})


@pytest.mark.parametrize(
    ("measured", "problem"),
    [
        ({"sha256": "x"}, "measured.sha256: the name is taken by the file's own hash"),
        ({"seconds": float("inf")}, "measured.seconds: is inf; allowed: a finite number"),
        ({"when": Path()}, "measured.when: is a PosixPath; allowed: what JSON can hold"),
    ],
)
def test_measured_must_be_json(tmp_path, measured, problem):
    with TraceWriter(tmp_path, a_manifest()) as writer:
        with pytest.raises(TraceError) as caught:
            writer.finish(measured)
        assert str(caught.value) == problem
        assert not writer.complete


# ------------------------------------------------------------------ resuming


def test_resume_with_another_manifest_names_the_fields(tmp_path):
    TraceWriter(tmp_path, a_manifest()).close()
    other = a_manifest(seed=8, settings={**a_manifest().settings, "batch": 4.0})
    with pytest.raises(TraceError) as caught:
        TraceWriter(tmp_path, other, resume=True)
    fields = [line.split(":")[0] for line in caught.value.problems]
    assert fields == ["manifest.seed", "manifest.settings"]
    assert caught.value.problems[0] == "manifest.seed: the trace there has 7, this recording 8"


def test_a_damaged_shard_is_recorded_anew(tmp_path):
    shards = two_shards()
    record(tmp_path / "whole", a_manifest(), shards)
    for damage in ("flip", "truncate", "remove"):
        folder = tmp_path / damage
        record(folder, a_manifest(), shards)
        path = folder / "shard-00000.safetensors"
        data = bytearray(path.read_bytes())
        data[-3] ^= 4
        path.unlink() if damage == "remove" else path.write_bytes(data if damage == "flip" else data[:-1])
        with TraceWriter(folder, a_manifest(), resume=True) as writer:
            assert writer.done == 0
            assert not writer.complete
            assert writer.discarded == (
                *(() if damage == "remove" else ("shard-00000.safetensors",)),
                "shard-00001.safetensors",
            )
        record(folder, a_manifest(), shards, resume=True)
        assert contents(folder) == contents(tmp_path / "whole")


_KILLED = textwrap.dedent("""
    import os, signal, stat, sys
    from pathlib import Path
    import hedgelab.storage.shards
    from hedgelab.storage.checking import check_trace
    from hedgelab.storage.errors import TraceError
    from hedgelab.storage.recording import TraceWriter
    from hedgelab.trace import open_trace
    from tests.strategies import a_manifest
    from tests.test_recording import contents, record, two_shards

    base = Path(sys.argv[1])
    manifest, shards = a_manifest(), two_shards()
    record(base / "whole", manifest, shards)
    whole = contents(base / "whole")
    os.fsync = lambda file: None  # matters when the power fails, not when a process is killed; slow
    real = {name: getattr(os, name) for name in ("fsync", "replace", "unlink")}

    def killed_at(folder, point, when):
        '''Record in a child that SIGKILL ends at its point-th system call; return whether it came so far.'''
        child = os.fork()
        if child == 0:
            count = 0
            def wrap(name):
                def call(*arguments, **options):
                    nonlocal count
                    status = os.fstat(arguments[0]) if name == "fsync" else None
                    file = status is not None and stat.S_ISREG(status.st_mode)
                    count += when != "half" or file
                    if count == point and when == "half" and file:
                        os.ftruncate(arguments[0], status.st_size // 2)
                    if count == point and when != "after":
                        os.kill(os.getpid(), signal.SIGKILL)
                    result = real[name](*arguments, **options)
                    if count == point:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return result
                return call
            for name in real:
                setattr(os, name, wrap(name))
            try:
                record(folder, manifest, shards, resume=True)
            except BaseException:
                import traceback
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            return False
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True

    kills = 0
    for when in ("before", "half", "after"):
        for point in range(1, 1000):
            folder = base / f"{when}-{point}"
            if not killed_at(folder, point, when):
                assert contents(folder) == whole
                break
            kills += 1
            if (folder / "manifest.json").exists():
                trace = open_trace(folder)
                trace.validate_values()
                complete = trace.manifest.complete
                assert complete or any("recording was not finished" in line for line in check_trace(folder))
            if point % 3 == 0:
                killed_at(folder, point // 3 + 1, when)  # the resumed one is killed too
            record(folder, manifest, shards, resume=True)
            assert contents(folder) == whole, (when, point)
            assert check_trace(folder) == []
    print(kills)
""")


def test_killed_at_every_step_and_resumed(tmp_path):
    """SIGKILL before and after every fsync, rename and unlink, and with a half-written file; then once more."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    # 6 calls each for two shards and for the end, 3 for the first manifest, 1 for the lock; before and after each, and
    # in the middle of 7 files
    assert int(done.stdout) == 2 * 22 + 7


def test_killed_from_outside(tmp_path):
    """A writer in the middle of its work, ended by another process; its lock ends with it."""
    script = "from tests.test_recording import *; import time\n" + textwrap.dedent(f"""
        shards = two_shards()
        with TraceWriter({str(tmp_path)!r}, a_manifest()) as writer:
            writer.write(shards[0], cuts=0)
            while True:
                time.sleep(0.01)
    """)
    writer = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    try:
        until = time.monotonic() + 60
        while (
            not (tmp_path / "manifest.json").exists()
            or Manifest.from_json((tmp_path / "manifest.json").read_bytes()).shards == ()
        ):
            assert writer.poll() is None
            assert time.monotonic() < until
            time.sleep(0.01)
        with pytest.raises(TraceError, match="another writer is at work there"):
            TraceWriter(tmp_path, a_manifest(), resume=True)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    (line,) = check_trace(tmp_path)
    assert line == "manifest.complete: is false: the recording was not finished, 1 shards"
    with TraceWriter(tmp_path, a_manifest(), resume=True) as resumed:
        assert resumed.done == 1


def test_a_partial_trace_opens_and_reads(tmp_path):
    writer = TraceWriter(tmp_path, a_manifest())
    try:
        empty = open_trace(tmp_path)  # while the writer is at work
        assert (empty.sequences, empty.rows, empty.alpha.shape) == (0, 0, (0, 3, 4))
        assert list(empty.parts()) == []
        assert empty.domains.tolist() == empty.prompt_ids.tolist() == []
        writer.write(two_shards()[0], cuts=0)
        assert open_trace(tmp_path).rows == 8
        assert open_trace(tmp_path).check() == ["manifest.complete: is false: the recording was not finished, 1 shards"]
    finally:
        writer.close()


def test_files_are_readable_by_others(tmp_path):
    """The safetensors library makes files that only their owner can read; a trace is shared."""
    record(tmp_path, a_manifest(), two_shards())
    mask = os.umask(0o022)
    os.umask(mask)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_manifest_on_disk_is_what_the_format_says(tmp_path):
    trace = record(tmp_path, a_manifest(), two_shards())
    document = json.loads((tmp_path / "manifest.json").read_text())
    assert document["complete"] is True
    assert [shard["file"] for shard in document["shards"]] == ["shard-00000.safetensors", "shard-00001.safetensors"]
    assert [shard["rows"] for shard in document["shards"]] == [8, 4]
    assert document["settings"] == a_manifest().settings
    assert trace.manifest.rows == 12


@given(st.integers(0, 3))
@settings(max_examples=4)
def test_measured_does_not_touch_the_hash(tmp_path_factory, seconds):
    folder = tmp_path_factory.mktemp("trace")
    trace = record(folder, a_manifest(), two_shards(), measured={"seconds": seconds})
    assert trace.measured == {"seconds": seconds}
    assert trace.sha256 == record(folder.with_name(folder.name + "b"), a_manifest(), two_shards()).sha256
