import dataclasses
import hashlib
import json
import mmap
import os
import pickle
import struct
import time
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hedgelab.trace
from hedgelab.storage.checking import check_trace
from hedgelab.storage.columns import ENCODED
from hedgelab.storage.errors import TraceError
from hedgelab.storage.manifest import Drafter, Processing, Shard
from hedgelab.trace import Trace, open_trace, sample_trace
from tests.strategies import a_manifest, recordings, trace_arguments, traces
from tests.test_recording import record, two_shards


@pytest.fixture(autouse=True, scope="module")
def _no_fsync():
    """fsync matters when the power fails, which no test does; it takes most of the time of a small recording."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


def arguments(**changes):
    """Two flat drafters on two sequences."""
    given = {
        "token": [5, 6, 7],
        "alpha": [[0.5, 1], [0, 1], [0.25, 0]],
        "gamma": [[0.5, 1], [0.5, 1], [0.25, 0.5]],
        "offsets": [0, 2, 3],
        "domains": ["code", "chat"],
        "drafters": ["a", "b"],
        "k": 4,
    }
    return {**given, **changes}


def deep(**changes):
    """Two deep drafters on the same sequences, k = 2."""
    alpha = np.array([[[1, 0], [0.5, 1]], [[1, 0], [1, 0]], [[0.5, 0], [0, 0]]])
    gamma = np.array([[[1, 0.5], [0.5, 1]], [[1, 0.5], [1, np.nan]], [[0.5, 0], [0, 0]]])
    return arguments(**{"alpha": alpha, "gamma": gamma, "k": 2, "proposed": [[2, 2], [2, 2], [1, 0]], **changes})


# ------------------------------------------------------------------ from arrays


@given(trace_arguments())
def test_from_arrays_holds_what_it_was_given(given_):
    trace = Trace.from_arrays(**given_)
    n, k = len(given_["drafters"]), given_["k"]
    alpha = np.asarray(given_["alpha"], np.float32)
    depths = 1 if alpha.ndim == 2 or ("depths" in given_ and set(given_["depths"]) == {1}) else alpha.shape[1]
    assert trace.alpha.shape == trace.gamma.shape == (len(given_["token"]), depths, n)
    for name in ("alpha", "gamma"):
        whole = np.asarray(given_[name], np.float32)
        np.testing.assert_array_equal(getattr(trace, name), whole[:, None] if whole.ndim == 2 else whole[:, :depths])
    np.testing.assert_array_equal(trace.token, given_["token"])
    np.testing.assert_array_equal(trace.offsets, given_["offsets"])
    assert trace.domains.tolist() == given_["domains"]
    assert trace.drafters == tuple(given_["drafters"])
    assert (trace.k, trace.rows, trace.sequences) == (k, len(given_["token"]), len(given_["domains"]))
    np.testing.assert_array_equal(trace.proposed, given_.get("proposed", np.full((trace.rows, n), k)))
    np.testing.assert_array_equal(trace.sequence_id, given_.get("sequence_id", np.arange(trace.sequences)))
    unknown = np.full((trace.rows, n), np.nan)
    np.testing.assert_array_equal(trace.confidence, given_.get("confidence", unknown).astype(np.float32))
    assert trace.check() == []
    assert sorted([*trace.flat_columns, *trace.deep_columns]) == list(range(n))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ">f8"])
@pytest.mark.parametrize("order", ["C", "F", "strided", "reversed"])
def test_floats_of_any_kind_and_order(dtype, order):
    given_ = deep()
    for name in ("alpha", "gamma"):
        values = np.asarray(given_[name], dtype)
        if order == "F":
            values = np.asfortranarray(values)
        elif order == "strided":
            values = np.repeat(np.repeat(values, 2, axis=0), 3, axis=2)[::2, :, ::3]
        elif order == "reversed":
            values = np.ascontiguousarray(values[::-1])[::-1]
        given_[name] = values
    trace, plain = Trace.from_arrays(**given_), Trace.from_arrays(**deep())
    assert trace.alpha.dtype == trace.gamma.dtype == np.float32
    assert trace.sha256 == plain.sha256
    for part in trace.parts():
        for field in dataclasses.fields(part):
            array = getattr(part, field.name)
            assert array.flags.c_contiguous
            assert not array.flags.writeable
            assert type(array) is np.ndarray


def test_integers_and_booleans_are_probabilities_too():
    trace = Trace.from_arrays(**arguments(alpha=np.eye(3, 2, dtype=int), gamma=np.eye(3, 2, dtype=bool)))
    assert trace.alpha.dtype == np.float32
    np.testing.assert_array_equal(trace.alpha, trace.gamma)


def test_arrays_are_copied():
    """A trace never changes, whoever writes to the arrays it was made from."""
    given_ = {name: np.array(value) for name, value in deep().items() if name not in ("domains", "drafters", "k")}
    given_ = {name: value.astype("f4" if value.dtype == float else "i4") for name, value in given_.items()}
    given_ |= {"sequence_id": np.arange(2), "confidence": np.zeros((3, 2), np.float32)}
    trace = Trace.from_arrays(**{**deep(), **given_})
    before = trace.sha256
    for array in given_.values():
        array[:] = 7
    assert Trace.from_arrays(**deep(confidence=np.zeros((3, 2)))).sha256 == before
    assert trace.token.tolist() == [5, 6, 7]
    assert trace.alpha.max() == 1
    assert not trace.confidence.any()
    assert trace.sequence_id.tolist() == [0, 1]
    again = Trace.from_arrays(**deep(confidence=np.zeros((3, 2))))
    for name in ("token", "alpha", "gamma", "offsets", "proposed", "confidence", "sequence_id"):
        np.testing.assert_array_equal(getattr(trace, name), getattr(again, name))
    for name in ("token", "alpha", "gamma", "offsets", "domains", "proposed", "confidence", "sequence_id", "stop"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(trace, name)[0] = 0


NAN = float("nan")


@pytest.mark.parametrize(
    ("given_", "problems"),
    [
        (arguments(alpha=[[1.5, 0]] * 3), ["alpha: is 1.5 at row 0, drafter 0 (a); allowed: [0, 1] (3 such values)"]),
        (arguments(alpha=[[0, 0], [0, -1e-9], [0, 0]]), ["alpha: is -1e-09 at row 1, drafter 1 (b); allowed: [0, 1]"]),
        (arguments(alpha=[[0, 0], [0, 0], [1 + 1e-7, 0]]), ["alpha: is 1.0000001 at row 2, drafter 0 (a)"]),
        (arguments(alpha=np.full((3, 2), np.inf)), ["alpha: is inf at row 0, drafter 0 (a)"]),
        (arguments(alpha=[[0, 0], [NAN, 0], [0, 0]]), ["alpha: is nan at row 1, drafter 0 (a); allowed: [0, 1]"]),
        (arguments(gamma=[[0, 0], [NAN, 0], [0, 0]]), ["gamma: is nan at row 1, drafter 0 (a); allowed: [0, 1]"]),
        (arguments(gamma=[[0, 0], [0, 0], [0, 2]], alpha=[[0, 0], [0, 0], [0, NAN]]),
         ["alpha: is nan at row 2, drafter 1 (b)", "gamma: is 2 at row 2, drafter 1 (b)"]),
        (arguments(alpha=[["x", "y"]] * 3), ["alpha: holds <U1; allowed: floats"]),
        (arguments(alpha=np.ones((3, 2), complex)), ["alpha: holds complex128; allowed: floats"]),
        (arguments(alpha=[[1, 2], [3]]), ["alpha: is not an array: "]),
        (arguments(alpha=np.ones((3, 3))), ["alpha: shape (3, 3); allowed: (T, N), (T, 1, N) or (T, k, N) with T = 3"]),
        (arguments(alpha=np.ones((2, 2))), ["alpha: shape (2, 2)"]),
        (arguments(alpha=np.ones(())), ["alpha: shape ()"]),
        (arguments(alpha=np.ones((3, 3, 2)), gamma=np.ones((3, 3, 2))),
         ["alpha: shape (3, 3, 2)", "gamma: shape (3, 3, 2)"]),
        (arguments(alpha=np.ones((3, 4, 2))), ["gamma: has not as many depths as alpha"]),
        (arguments(token=[5, 6]), ["alpha: shape (3, 2)", "gamma: shape (3, 2)", "offsets: ends with 3; allowed: 2"]),
        (arguments(token=[5, -1, 7]), ["token: is -1 at row 1; allowed: [0, 7]"]),
        (arguments(token=[5, 2**31, 7]), ["token: is 2147483648 at row 1; allowed: [0, 2147483647]"]),
        (arguments(token=[5.0, 6.0, 7.0]), ["token: holds float64; allowed: integers"]),
        (arguments(token=[[5, 6, 7]]), ["token: shape (1, 3); allowed: (T,)"]),
        (arguments(offsets=[0, 3]), ["offsets: shape (2,); allowed: (S+1,)"]),
        (arguments(offsets=[0, 0, 3]), ["offsets: sequence 0 runs from 0 to 0; allowed: ascending, no empty sequence"]),
        (arguments(offsets=[0, 3, 3]), ["offsets: sequence 1 runs from 3 to 3; allowed: ascending, no empty sequence"]),
        (arguments(offsets=[0, 4, 3]), ["offsets: sequence 1 runs from 4 to 3; allowed: ascending, no empty"]),
        (arguments(offsets=[1, 2, 3]), ["offsets: begins with 1; allowed: 0"]),
        (arguments(offsets=[0, 1, 2]), ["offsets: ends with 2; allowed: 3, the number of entries"]),
        (arguments(offsets=[]), ["offsets: shape (0,)"]),
        (arguments(domains=["code"]), ["offsets: shape (3,); allowed: (S+1,) with T = 3 tokens, S = 1 domains"]),
        (arguments(domains=["code", ""]), ["domains[1]: is ''; allowed: a name"]),
        (arguments(domains=["code", 5]), ["domains[1]: is 5; allowed: a name"]),
        (arguments(domains="ab"), ["domains: is 'ab'; allowed: a sequence of names, at least one", "offsets: shape"]),
        (arguments(drafters=["a", "a"]), ["drafters: 'a' appears 2 times; allowed: once"]),
        (arguments(drafters=["a"]), ["alpha: shape (3, 2); allowed: (T, N), (T, 1, N) or (T, k, N) with T = 3 tokens, "
                                     "S = 2 domains, N = 1 drafters, k = 4", "gamma: shape (3, 2)"]),
        (arguments(drafters=7), ["drafters: is 7; allowed: a sequence of names", "alpha: shape", "gamma: shape"]),
        (arguments(drafters=[], alpha=np.ones((3, 0)), gamma=np.ones((3, 0))), ["drafters: is []; allowed: a"]),
        (arguments(k=0), ["k: is 0; allowed: an integer from 1 to 32767"]),
        (arguments(k=2.0), ["k: is 2.0; allowed: an integer from 1 to 32767"]),
        (arguments(k=True), ["k: is True; allowed: an integer from 1 to 32767"]),
        (arguments(k=10**6, feedback="some"), ["feedback: is 'some'; allowed: one of full, bandit", "k: is 1000000"]),
        (arguments(proposed=[[4, 4], [4, 3], [4, 4]]), ["proposed: a drafter of depth 1 always proposes k = 4"]),
        (arguments(confidence=[[0, 0], [0, 1.5], [NAN, 0]]), ["confidence: is 1.5 at row 1, drafter 1 (b)"]),
        (arguments(confidence=[0, 0, 0]), ["confidence: shape (3,); allowed: (T, N)"]),
        (arguments(sequence_id=[7, 7]), ["sequence_id: 7 appears 2 times; allowed: once"]),
        (arguments(sequence_id=[-1, 7]), ["sequence_id: is -1 at sequence 0"]),
        (arguments(sequence_id=np.array([0, 2**63], np.uint64)), ["sequence_id: is 9223372036854775808 at"]),
        (arguments(sequence_id=[1]), ["sequence_id: shape (1,); allowed: (S,)"]),
        (arguments(depths=[1]), ["depths: is [1]; allowed: N = 2 entries, each 1 or 1, the depths of alpha"]),
        (arguments(depths=3), ["depths: is 3; allowed: N = 2 entries"]),
        (deep(k=3), ["alpha: shape (3, 2, 2); allowed: (T, N), (T, 1, N) or (T, k, N)", "gamma: shape (3, 2, 2)"]),
        (deep(k=1, proposed=None), ["alpha: shape (3, 2, 2)", "gamma: shape (3, 2, 2)"]),
        (deep(proposed=[[2, 2], [2, 2], [1, 3]]), ["proposed: is 3 at row 2, drafter 1 (b); allowed: [0, 2]"]),
        (deep(proposed=[[1, 2], [2, 2], [1, 0]]), [  # the round that began at row 0 meets row 1 at depth 1
            "alpha: is 1.0 at row 1, depth 1, drafter 0 (a); allowed: 0 at depths where nothing was proposed",
            "gamma: is 1.0 at row 1, depth 1, drafter 0 (a); allowed: 0 at depths where nothing was proposed"]),
        (deep(alpha=np.array([[[1, 1], [0.5, 1]], [[1, 0], [1, 0]], [[0.5, 0], [0, 0]]])), [
            "gamma: is nan at row 1, depth 1, drafter 1 (b); allowed: NaN only where the path had left the draft"]),
        (deep(gamma=np.array([[[1, NAN], [0.5, 1]], [[1, 0.5], [1, 0]], [[0.5, 0], [0, 0]]])), [
            "gamma: is nan at row 0, depth 0, drafter 1 (b); allowed: NaN only where the path had left the draft"]),
        (deep(proposed=None, alpha=np.full((3, 2, 2), 1e-9),
              gamma=np.where(np.arange(12) == 6, NAN, 1).reshape(3, 2, 2)),
         ["gamma: is nan at row 1, depth 1, drafter 0 (a); allowed: NaN only where alpha is 0"]),
        (deep(depths=[1, 2]), ["alpha: differs over depth for a drafter of depth 1",
                               "gamma: differs over depth for a drafter of depth 1",
                               "proposed: a drafter of depth 1 always proposes k = 2"]),
        (arguments(token=None, k=4, alpha=[[2, 0]] * 3, offsets=[0, 0, 3], drafters=["b", "b"]),
         ["drafters: 'b' appears 2 times", "token: holds object; allowed: integers", "alpha: is 2 at row 0, drafter 0",
          "offsets: sequence 0 runs from 0 to 0"]),
    ],
)  # fmt: skip
def test_from_arrays_names_every_problem(given_, problems):
    if given_["token"] is None:
        given_["token"] = np.array([None])
    with pytest.raises(TraceError) as caught:
        Trace.from_arrays(**given_)
    found = caught.value.problems
    unmatched = [line for line in found if not any(line.startswith(problem) for problem in problems)]
    missed = [problem for problem in problems if not any(line.startswith(problem) for line in found)]
    assert (unmatched, missed) == ([], [])


@settings(max_examples=200)
@given(trace_arguments(), st.data())
def test_from_arrays_never_raises_anything_else(given_, data):
    """One argument replaced by junk: a trace, or a TraceError."""
    junk = st.sampled_from([None, 5, "x", [], [[]], [1, 2], [[1], [2, 3]], {}, np.zeros((2, 2)), np.array([None])])
    name = data.draw(st.sampled_from(sorted(given_)))
    try:
        Trace.from_arrays(**{**given_, name: data.draw(junk)})
    except TraceError as error:
        assert error.problems  # noqa: PT017


def test_places_are_right_beyond_the_first_chunk():
    """Values are scanned 65536 at a time."""
    rows = 100_000
    values = np.zeros((rows, 2, 3))
    values[70_001, 1, 2] = values[99_999, 0, 0] = 2
    gamma = np.zeros((rows, 2, 3))
    gamma[80_000, 1, 1] = 0.5
    proposed = np.full((rows, 3), 2)
    proposed[79_999, 1] = 1
    with pytest.raises(TraceError) as caught:
        Trace.from_arrays(
            token=np.zeros(rows, int), alpha=values, gamma=gamma, offsets=[0, rows], domains=["x"],
            drafters=["a", "b", "c"], k=2, proposed=proposed,
        )  # fmt: skip
    assert caught.value.problems == (
        "alpha: is 2.0 at row 70001, depth 1, drafter 2 (c); allowed: [0, 1] (2 such values)",
        "gamma: is 0.5 at row 80000, depth 1, drafter 1 (b); allowed: 0 at depths where nothing was proposed",
    )


def test_a_bandit_trace_may_have_gaps():
    gaps = [[0.5, NAN], [NAN, 1], [NAN, NAN]]
    trace = Trace.from_arrays(**arguments(alpha=gaps, gamma=gaps, feedback="bandit"))
    np.testing.assert_array_equal(trace.alpha[:, 0], np.array(gaps, np.float32))
    with pytest.raises(TraceError, match=r"alpha: is nan at row 0, drafter 1 .*\(4 such values\)"):
        Trace.from_arrays(**arguments(alpha=gaps, gamma=gaps))


def test_what_arrays_do_not_say_is_unknown():
    trace = Trace.from_arrays(**arguments())
    assert trace.first_token.tolist() == [-1, -1]
    assert trace.stop.tolist() == ["length", "length"]
    assert trace.prompt_ids.tolist() == ["0", "1"]
    assert trace.prompt_tokens(1).shape == (0,)
    assert np.isnan([trace.target_logprob, trace.target_entropy, trace.target_top2_margin]).all()
    assert trace.match_length.tolist() == [[0, 0]] * 3
    assert trace.manifest.path == "given"
    assert trace.measured == {}
    with pytest.raises(TraceError, match="has no column 'logit_p'; it has token, "):
        trace.column("logit_p")
    for sequence in (-1, 2):
        with pytest.raises(IndexError, match=f"sequence {sequence}; allowed: 0 to 1"):
            trace.prompt_tokens(sequence)


def test_hash_sees_every_array():
    names = ("token", "alpha", "gamma", "offsets", "domains", "drafters", "k", "confidence", "sequence_id")
    seen = {Trace.from_arrays(**arguments()).sha256}
    other = ([5, 6, 8], [[0.5, 1], [0, 1], [0.25, 0.125]], [[0.5, 1], [0.5, 1], [0.25, 1]], [0, 1, 3], ["chat", "code"],
             ["b", "a"], 5, [[0, 0], [0, 0], [0, 1]], [0, 2])  # fmt: skip
    seen |= {Trace.from_arrays(**arguments(**{n: value})).sha256 for n, value in zip(names, other, strict=True)}
    assert len(seen) == 1 + len(names)
    assert Trace.from_arrays(**arguments()).sha256 in seen


# ------------------------------------------------------------------ selections


def rows_of(trace, which):
    return np.concatenate([np.arange(trace.offsets[s], trace.offsets[s + 1]) for s in which])


def same_selection(trace, selection, which):
    """Compare with plain fancy indexing."""
    rows = rows_of(trace, which)
    for name in ("token", "alpha", "gamma", "confidence", "proposed", "match_length", "target_entropy"):
        np.testing.assert_array_equal(getattr(selection, name), getattr(trace, name)[rows], err_msg=name)
    for name in ("domains", "sequence_id", "prompt_ids", "first_token", "stop"):
        np.testing.assert_array_equal(getattr(selection, name), getattr(trace, name)[which], err_msg=name)
    for i, s in enumerate(which):
        np.testing.assert_array_equal(selection.prompt_tokens(i), trace.prompt_tokens(s))
    np.testing.assert_array_equal(np.diff(selection.offsets), np.diff(trace.offsets)[which])
    assert (selection.sequences, selection.rows) == (len(which), len(rows))
    # and as engines walk it
    positions = []
    for part in selection.parts():
        for begin, end, identity, position in zip(part.begin, part.end, part.sequence_id, part.position, strict=True):
            mine = slice(selection.offsets[position], selection.offsets[position + 1])
            positions.append(position)
            assert identity == selection.sequence_id[position]
            for d, name in enumerate(("flat", "deep")):
                columns = (selection.flat_columns, selection.deep_columns)[d]
                for stem in ("alpha", "gamma"):
                    block = getattr(part, f"{stem}_{name}")[begin:end]
                    whole = getattr(selection, stem)[mine]
                    if len(columns):
                        np.testing.assert_array_equal(block, whole[:, :, columns] if d else whole[:, 0, columns])
            np.testing.assert_array_equal(part.proposed[begin:end], selection.proposed[mine][:, selection.deep_columns])
            np.testing.assert_array_equal(part.confidence[begin:end], selection.confidence[mine])
    assert positions == list(range(len(which)))


@given(traces(), st.data())
def test_select_equals_fancy_indexing(trace, data):
    which = data.draw(st.lists(st.integers(0, trace.sequences - 1), min_size=1, max_size=8))
    selection = trace.select(which)
    same_selection(trace, selection, which)
    again = data.draw(st.lists(st.integers(0, len(which) - 1), min_size=1, max_size=5))
    same_selection(trace, selection.select(again), np.array(which)[again])
    assert selection.select(again).sha256 == trace.select(np.array(which)[again]).sha256


@given(traces(), st.data())
def test_select_by_mask(trace, data):
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=trace.sequences, max_size=trace.sequences)))
    if mask.any():
        same_selection(trace, trace.select(mask), np.flatnonzero(mask))
    else:
        with pytest.raises(TraceError, match="select: no sequence is selected"):
            trace.select(mask)


@settings(max_examples=40)
@given(recordings(), st.data())
def test_select_across_shards(tmp_path_factory, recording, data):
    manifest, shards = recording
    trace = record(tmp_path_factory.mktemp("trace"), manifest, shards)
    if trace.sequences:
        which = data.draw(st.lists(st.integers(0, trace.sequences - 1), min_size=1, max_size=8))
        selection = trace.select(which)
        same_selection(trace, selection, which)
        if manifest.logits:
            expected = [(new, old) for new, old in enumerate(rows_of(trace, which)) if old in trace.column("logit_row")]
            rows = selection.column("logit_row")
            assert rows.tolist() == [new for new, _ in expected]
            records = np.searchsorted(trace.column("logit_row"), [old for _, old in expected]).astype(int)
            for name in ("logit_id", "logit_p", "logit_q", "tail_p", "tail_q"):
                np.testing.assert_array_equal(selection.column(name), trace.column(name)[records], err_msg=name)


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ([], "no sequence is selected"),
        ([2], "index 2; allowed: 0 to 1"),
        ([0, -1], "index -1; allowed: 0 to 1"),
        ([True], r"mask of shape \(1,\); allowed: \(2,\)"),
        ([0.0], r"float64 of shape \(1,\); allowed: a mask, or indices of shape \(s,\)"),
        ([[0, 1]], r"int64 of shape \(1, 2\)"),
        (0, r"int64 of shape \(\)"),
        (["code"], "<U4 of shape"),
    ],
)
def test_select_refuses(which, words):
    with pytest.raises(TraceError, match=f"select: {words}"):
        Trace.from_arrays(**arguments()).select(which)


def test_parts_join_consecutive_sequences_of_a_shard(tmp_path):
    trace = record(tmp_path, a_manifest(), two_shards())  # shards of 3 and 2 sequences
    assert [part.position.tolist() for part in trace.parts()] == [[0, 1, 2], [3, 4]]
    selection = trace.select([2, 0, 0, 4, 3, 1])
    assert [part.position.tolist() for part in selection.parts()] == [[0, 1, 2], [3, 4], [5]]
    assert [part.sequence_id.tolist() for part in selection.parts()] == [[2, 0, 0], [4, 3], [1]]


def test_a_selection_has_a_hash_of_its_own(tmp_path):
    trace = record(tmp_path, a_manifest(), two_shards())
    assert trace.sha256 == hashlib.sha256((tmp_path / "manifest.json").read_bytes()).hexdigest()
    hashes = {trace.sha256, trace.select([0, 1]).sha256, trace.select([1, 0]).sha256, trace.select([0]).sha256}
    assert len(hashes) == 4
    assert trace.select(np.arange(5) < 2).sha256 == trace.select([0, 1]).sha256


# ------------------------------------------------------------------ memory maps


def base_of(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


def plain(drafters=(1,), **changes):
    """A manifest whose blocks are all float32, one shard of which can be mapped."""
    law = Processing(0.6)
    return a_manifest(
        drafters=tuple(Drafter(f"d{i}", "any", "chain", depth, law) for i, depth in enumerate(drafters)),
        encodings=dict.fromkeys(ENCODED, "float32"),
        **changes,
    )


@pytest.mark.parametrize(("depths", "block"), [((1, 1), "flat"), ((3, 3), "deep")])
def test_whole_blocks_are_views_of_the_map(tmp_path, depths, block):
    manifest = plain(depths)
    trace = record(tmp_path, manifest, two_shards(manifest)[:1])
    (part,) = trace.parts()
    for name in ("alpha", "gamma"):
        whole, mapped = getattr(trace, name), getattr(part, f"{name}_{block}")
        assert np.shares_memory(whole, mapped)
        assert whole.size == mapped.size
        assert isinstance(base_of(mapped), mmap.mmap)
        assert not whole.flags.writeable
    for name in ("token", "confidence", "target_entropy"):
        assert isinstance(base_of(getattr(trace, name)), mmap.mmap)
    selection = trace.select([0, 1])  # neighbours: still one range
    assert np.shares_memory(selection.alpha, trace.alpha)
    assert np.shares_memory(selection.token, trace.token)
    (some,) = trace.select([2, 0, 2]).parts()
    assert np.shares_memory(getattr(some, f"alpha_{block}"), trace.alpha)


def test_encoded_blocks_are_decoded_once(tmp_path):
    trace = record(tmp_path, a_manifest(), two_shards())
    first = [part.alpha_deep for part in trace.parts()]
    again = [part.alpha_deep for part in trace.select([4, 0]).parts()]
    assert again[0] is first[1]
    assert again[1] is first[0]
    assert isinstance(base_of(next(trace.parts()).alpha_flat), mmap.mmap)


def sparse_trace(folder, rows):
    """Write a trace whose columns are holes of a sparse file: every value 0, one sequence."""
    manifest = plain((1, 1, 3, 3, 3, 3), logits=0)
    sizes = {"token": (4, [rows], "I32"), "offsets": (8, [2], "I64"), "sequence_id": (8, [1], "I64")}
    sizes |= {"domain": (4, [1], "I32"), "prompt_sha256": (1, [1, 32], "U8"), "prompt_token": (4, [0], "I32")}
    sizes |= {"prompt_offsets": (8, [2], "I64"), "prompt_id": (1, [0], "U8"), "prompt_id_offsets": (8, [2], "I64")}
    sizes |= {"first_token": (4, [1], "I32"), "stop": (1, [1], "U8"), "confidence": (4, [rows, 6], "F32")}
    sizes |= {f"target_{name}": (4, [rows], "F32") for name in ("logprob", "entropy", "top2_margin")}
    sizes |= {f"{name}_flat": (4, [rows, 2], "F32") for name in ("alpha", "gamma")}
    sizes |= {f"{name}_deep": (4, [rows, 3, 4], "F32") for name in ("alpha", "gamma")}
    sizes |= {name: (2, [rows, 4], "I16") for name in ("proposed", "match_length")}
    header, position = {}, 0
    for name, (width, shape, dtype) in sorted(sizes.items(), key=lambda item: -item[1][0]):
        end = position + width * int(np.prod(shape))
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    folder.mkdir()
    with (folder / "shard-00000.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        start = file.tell()
        file.truncate(start + position)
        for name, value in (("offsets", struct.pack("<qq", 0, rows)), ("prompt_sha256", hashlib.sha256().digest())):
            file.seek(start + header[name]["data_offsets"][0])
            file.write(value)
    shard = Shard("shard-00000.safetensors", rows, 1, "00" * 32, start + position, 0, ())
    (folder / "manifest.json").write_text(dataclasses.replace(manifest, complete=True, shards=(shard,)).to_json())
    return folder


def resident(path):
    """Bytes of a mapped file that this process has touched."""
    total, mine = 0, False
    with open("/proc/self/smaps") as smaps:
        for line in smaps:
            if "-" in line.split(" ")[0]:
                mine = line.rstrip().endswith(str(path))
            elif mine and line.startswith("Rss:"):
                total += int(line.split()[1]) * 1024
    return total


def test_opening_reads_no_column(tmp_path):
    """8 GB of holes: opened in milliseconds, and hardly a page of it touched."""
    folder = sparse_trace(tmp_path / "trace", 2**33 // 160)
    shard = folder / "shard-00000.safetensors"
    assert shard.stat().st_size > 2**33
    begin = time.perf_counter()
    trace = open_trace(folder)
    seconds = time.perf_counter() - begin
    assert seconds < 0.5  # one pass over the file would take seconds
    assert resident(shard) < 2**20
    assert trace.select([0]).token.shape == (trace.rows,)  # nor does choosing rows
    assert next(trace.parts()).alpha_flat.shape == (trace.rows, 2)
    assert resident(shard) < 2**20


def test_validation_streams_and_is_cached(tmp_path, monkeypatch):
    trace = open_trace(sparse_trace(tmp_path / "trace", 2**25 // 160))
    tracemalloc.start()
    try:
        trace.validate_values()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**21  # of 32 MB
    calls = []
    monkeypatch.setattr("hedgelab.storage.blocks.value_problems", lambda *arguments: calls.append(arguments) or [])
    trace.validate_values()
    trace.select([0, 0]).validate_values()
    assert calls == []
    open_trace(trace.folder).validate_values()
    assert len(calls) == 1


def test_validate_values_raises_each_time(tmp_path):
    trace = open_trace(sparse_trace(tmp_path / "trace", 100))
    with (tmp_path / "trace" / "shard-00000.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x05")  # the last column is `stop`
    for _ in range(2):
        with pytest.raises(TraceError, match=r"^shard-00000.safetensors: stop: is 5 at sequence 0; allowed: \[0, 3\]$"):
            trace.validate_values()
    with pytest.raises(TraceError, match="stop: is 5"):
        trace.stop.tolist()


def test_small_traces_open_fast(tmp_path):
    record(tmp_path, a_manifest(), two_shards())
    open_trace(tmp_path)
    seconds = []
    for _ in range(20):
        begin = time.perf_counter()
        open_trace(tmp_path)
        seconds.append(time.perf_counter() - begin)
    assert min(seconds) < 0.01


# ------------------------------------------------------------------ cuts


def test_a_cut_is_a_trace_of_its_own(tmp_path):
    trace = record(tmp_path / "whole", a_manifest(), two_shards())
    which = [4, 0, 2]
    cut = trace.select(which).save(tmp_path / "cut")
    assert check_trace(tmp_path / "cut") == []
    same_selection(trace, cut, which)
    assert cut.manifest.settings["cut_of"] == trace.select(which).sha256
    assert cut.measured == trace.measured
    assert sum(shard.cuts for shard in cut.manifest.shards) == int((cut.stop == "loop").sum())
    dropped = [record for shard in trace.manifest.shards for record in shard.dropped]
    assert list(cut.manifest.shards[0].dropped) == dropped != []
    split = trace.save(tmp_path / "split", rows_per_shard=1)
    assert [list(shard.dropped) for shard in split.manifest.shards] == [dropped, [], [], [], []]
    np.testing.assert_array_equal(cut.column("logit_row"), trace.select(which).column("logit_row"))
    bare = trace.select(which).save(tmp_path / "bare", logits=False)
    assert bare.manifest.logits == 0
    same_selection(trace, bare, which)


@settings(max_examples=30)
@given(traces(), st.sampled_from([None, 1, 5, 100]), st.sampled_from([None, "compact", "deflate"]))
def test_traces_in_memory_can_be_saved(tmp_path_factory, trace, rows_per_shard, encodings):
    folder = tmp_path_factory.mktemp("cut") / "trace"
    cut = trace.save(folder, rows_per_shard=rows_per_shard, encodings=encodings)
    assert check_trace(folder) == []
    np.testing.assert_array_equal(cut.offsets, trace.offsets)
    for name in ("token", "domains", "sequence_id", "proposed", "first_token"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(trace, name))
    for name in ("alpha", "gamma", "confidence"):
        np.testing.assert_allclose(getattr(cut, name), getattr(trace, name), rtol=0, atol=7.7e-6 if encodings else 0)
        binary = np.isin(getattr(trace, name), (0, 1, np.nan))
        np.testing.assert_array_equal(getattr(cut, name)[binary], getattr(trace, name)[binary])
    if rows_per_shard:
        rows = [shard.rows for shard in cut.manifest.shards]
        lengths = np.diff(trace.offsets)
        assert all(count >= rows_per_shard for count in rows[:-1])
        assert max(rows) < rows_per_shard + lengths.max()
    else:
        assert len(cut.manifest.shards) == 1


def test_a_deflated_trace_is_small_and_damage_is_named(tmp_path):
    rng = np.random.default_rng(4)
    alpha = (rng.random((400, 3, 5)) < 0.1).astype(np.float32)
    names = [f"d{i}" for i in range(5)]
    parts = {"token": [1] * 400, "offsets": [0, 300, 400], "k": 3, "drafters": names}
    trace = Trace.from_arrays(**arguments(alpha=alpha, gamma=alpha, **parts))
    compact = trace.save(tmp_path / "compact", encodings="compact")
    cut = trace.save(tmp_path / "cut", encodings="deflate")
    assert sum(s.bytes for s in cut.manifest.shards) < 0.8 * sum(s.bytes for s in compact.manifest.shards)
    np.testing.assert_array_equal(cut.alpha, trace.alpha)
    assert check_trace(tmp_path / "cut") == []
    file = tmp_path / "cut" / "shard-00000.safetensors"
    data = file.read_bytes()
    place = data.index(cut._blocks[0].stored["alpha_deep"].tobytes()) + 40
    file.write_bytes(data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :])
    with pytest.raises(TraceError, match=r"shard-00000.safetensors: alpha_deep: .*inflate"):
        open_trace(tmp_path / "cut").alpha  # noqa: B018
    assert any("alpha_deep" in problem for problem in check_trace(tmp_path / "cut"))


def test_compact_takes_bits_where_they_do(tmp_path):
    trace = Trace.from_arrays(**arguments(alpha=[[0, 1], [1, 1], [0, 0]]))
    cut = trace.save(tmp_path / "cut", encodings="compact")
    assert cut.manifest.encodings["alpha_flat"] == "bits"
    assert cut.manifest.encodings["gamma_flat"] == "fixed16"
    assert cut.manifest.encodings["confidence"] == "fixed16"
    some = trace.save(tmp_path / "some", encodings={"gamma_flat": "fixed16"})
    assert some.manifest.encodings["gamma_flat"] == "fixed16"
    assert some.manifest.encodings["alpha_flat"] == "float32"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"encodings": "small"}, 'encodings: is \'small\'; allowed: "compact", "deflate", or a mapping'),
        ({"encodings": {"gamma_flat": "bits"}}, "gamma_flat: encoding bits holds 0 or 1, not 0.5"),
        ({"encodings": {"token": "bits"}}, "manifest.encodings.token: unknown column"),
        ({"rows_per_shard": 0}, "rows_per_shard: is 0; allowed: at least 1"),
    ],
)
def test_save_refuses(tmp_path, options, words):
    with pytest.raises(TraceError, match=words):
        Trace.from_arrays(**arguments()).save(tmp_path / "cut", **options)


def test_save_refuses_repeats_and_full_folders(tmp_path):
    trace = Trace.from_arrays(**arguments(sequence_id=[5, 6]))
    with pytest.raises(TraceError, match="sequence_id: 6 is selected 2 times; allowed: once"):
        trace.select([1, 0, 1]).save(tmp_path / "cut")
    trace.save(tmp_path / "cut")
    with pytest.raises(TraceError, match="is not empty"):
        trace.save(tmp_path / "cut")


# ------------------------------------------------------------------ facts and samples


def test_describe_gives_plain_facts(tmp_path):
    trace = record(tmp_path, a_manifest(), two_shards())
    facts = trace.describe()
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["rows"], facts["sequences"], facts["shards"], facts["k"]) == (12, 5, 2, 3)
    assert sum(domain["rows"] for domain in facts["domains"].values()) == 12
    assert sum(domain["sequences"] for domain in facts["domains"].values()) == sum(facts["stops"].values()) == 5
    assert [drafter["name"] for drafter in facts["drafters"]] == list(trace.drafters)
    assert facts["bytes"] == sum(path.stat().st_size for path in tmp_path.glob("*.safetensors"))
    assert facts["cuts"] == 1
    assert facts["dropped"] == [{"prompt_id": "p1", "reason": "NaN logits"}]
    assert facts["measured"] == {"host": "here"}
    assert trace.select([0]).describe()["rows"] == 3
    json.dumps(Trace.from_arrays(**arguments()).describe())


def test_sample_trace_names_those_there_are(tmp_path, monkeypatch):
    package = tmp_path / "hedgelab"
    Trace.from_arrays(**arguments()).save(package / "data" / "small")
    monkeypatch.setattr(hedgelab.trace, "__file__", str(package / "trace.py"))
    assert sample_trace("small").rows == 3
    for name in ("t07", "../data/small", "", "small/"):
        with pytest.raises(TraceError, match=r"no sample trace .*; there are: small"):
            sample_trace(name)


def test_a_trace_travels_to_another_process(tmp_path):
    trace = record(tmp_path, a_manifest(), two_shards()).select([3, 1])
    again = pickle.loads(pickle.dumps(trace))
    assert again.sha256 == trace.sha256
    np.testing.assert_array_equal(again.alpha, trace.alpha)
