"""Drafters added to a recorded trace: what a recording with all of them from the start would hold."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from hedgelab.storage.errors import TraceError
from hedgelab.trace import open_trace
from tests.strategies_recording import WORDS, tiny_checkpoint, tiny_head, tiny_prompts
from tests.test_collect import contents
from traces import adding
from traces.__main__ import app
from traces.adding import add
from traces.collect import Batch, CollectError, collect
from traces.config import ConfigError, parse_config
from traces.drafters.base import DrafterError
from traces.prompts import Prompt, Turn, write
from traces.targets import load_target

IDS = sorted({0, *range(3, WORDS, 2)})
OLD = [
    {"name": "lookup", "kind": "lookup", "options": {"longest": 3, "shortest": 1}},
    {"name": "exit", "kind": "exit", "options": {"layer": 2}},
    {"name": "deep", "kind": "head", "options": {"checkpoint": "deep"}},
]
NEW = [
    {"name": "tree", "kind": "tree", "options": {"over": "deep", "nodes": 9}},
    {"name": "small", "kind": "causal", "options": {"model": "small"}},
    {"name": "shallow", "kind": "head", "options": {"checkpoint": "shallow"}},
    {"name": "wide", "kind": "tree", "options": {"over": "small", "nodes": 5}},
]
SOFT = [({"temperature": 0.8}, {"temperature": 1.2}), ({"temperature": 0.9, "top_p": 0.8}, {"temperature": 0.7})]
SETTINGS = [*SOFT, ({"temperature": 0.0}, {"temperature": 0.0})]
COLUMNS = ("confidence", "alpha", "gamma", "proposed", "match_length")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with two tiny targets, a small model, prompts, conversations and heads."""
    folder = tmp_path_factory.mktemp("adding")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    tiny_checkpoint(folder / "other", seed=9, rows=WORDS + 6)
    tiny_checkpoint(folder / "small", seed=3, layers=2)
    tiny_prompts(folder / "prompts.jsonl", 7)
    turn = Turn("b", (("user", "w3 w5"),))
    write([Prompt(f"t{i}", "a", (("user", f"w{i + 2} w4"),), "", turn) for i in range(3)], folder / "talks.jsonl")
    target = load_target(str(folder / "target"))
    tiny_head(folder / "deep", target, "eagle", (0, 2, 3), IDS)
    tiny_head(folder / "shallow", target, "eagle", (1,), IDS)
    return folder


def record(home, out, how, drafters, **changes):
    document = {
        "name": "tiny", "target": str(home / "target"), "prompts": {"file": "prompts.jsonl"}, "processing": how[0],
        "drafter_processing": how[1], "max_new_tokens": 14, "k": 4, "batch": 5, "seed": 11, "drafters": drafters,
        "loop": 0, **changes,
    }  # fmt: skip
    collect(parse_config(document, home), document, out)
    return open_trace(out)


@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("logits", [0, 6])
def test_added_is_recorded(home, tmp_path, how, logits):
    whole = record(home, tmp_path / "whole", how, [*OLD, *NEW], logits=logits)
    record(home, tmp_path / "few", how, OLD, logits=logits)
    grown = add(tmp_path / "few", [*OLD, *NEW], tmp_path / "grown", pool=home, batch=5)
    assert grown.drafters == whole.drafters
    assert [shard.sequences for shard in grown.manifest.shards] == [shard.sequences for shard in whole.manifest.shards]
    assert grown.manifest.drafters == whole.manifest.drafters
    for name in COLUMNS if not logits else (*COLUMNS, "logit_q", "tail_q", "logit_id"):
        mine, theirs = (
            (t.column if name.startswith(("logit", "tail")) else t.__getattribute__)(name) for t in (grown, whole)
        )
        np.testing.assert_allclose(mine, theirs, atol=1e-5, err_msg=name)
    assert grown.check() == []
    for name in ("token", "stop", "target_logprob", "target_entropy", "prompt_ids", "sequence_id"):
        assert np.array_equal(getattr(grown, name), getattr(whole, name)), name


def test_added_in_other_batches(home, tmp_path):
    whole = record(home, tmp_path / "whole", SOFT[0], [*OLD, *NEW])
    record(home, tmp_path / "few", SOFT[0], OLD)
    grown = add(tmp_path / "few", [*OLD, *NEW], tmp_path / "grown", pool=home, batch=3)
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(grown, name), getattr(whole, name), atol=1e-4, err_msg=name)
    assert grown.manifest.settings["added"][0]["to"] == open_trace(tmp_path / "few").sha256
    assert [entry["name"] for entry in grown.manifest.settings["added"][0]["drafters"]] == [d["name"] for d in NEW]
    assert {"forward: exit", "forward: small"} <= grown.measured["parts"].keys()


def test_what_was_recorded_stays(home, tmp_path):
    """The recorded columns keep their bytes, even those that a drafter computed again would change."""
    few = record(home, tmp_path / "few", SOFT[0], OLD[:2])
    twice = add(
        add(tmp_path / "few", [*OLD, NEW[0]], tmp_path / "a", pool=home).folder, [*OLD, *NEW], tmp_path / "b", pool=home
    )
    assert twice.drafters == ("lookup", "exit", "deep", "tree", "small", "shallow", "wide")
    for name in COLUMNS:
        old, new = getattr(few, name), getattr(twice, name)
        assert np.array_equal(old, new[..., :2], equal_nan=True), name
    assert len(twice.manifest.settings["added"]) == 2


def test_conversations(home, tmp_path):
    """A later turn's prompt holds the answer before it, so each text stands alone."""
    how = {"prompts": {"file": "talks.jsonl"}, "batch": 3}
    whole = record(home, tmp_path / "whole", SOFT[0], [*OLD, *NEW], **how)
    record(home, tmp_path / "few", SOFT[0], OLD, **how)
    grown = add(tmp_path / "few", [*OLD, *NEW], tmp_path / "grown", pool=home, batch=4)
    assert np.array_equal(grown.conversations, whole.conversations)
    assert len(set(grown.conversations)) == 3
    for name in COLUMNS:
        np.testing.assert_allclose(getattr(grown, name), getattr(whole, name), atol=1e-4, err_msg=name)


def test_resuming_ends_with_the_same_bytes(home, tmp_path, monkeypatch):
    record(home, tmp_path / "few", SOFT[0], OLD)
    add(tmp_path / "few", [*OLD, *NEW], tmp_path / "whole", pool=home, batch=3)
    row, calls = Batch.row, [0]

    def stop(self, t):
        calls[0] += 1
        if calls[0] == 18:  # within the second of three shards
            raise KeyboardInterrupt
        row(self, t)

    monkeypatch.setattr(Batch, "row", stop)
    with pytest.raises(KeyboardInterrupt):
        add(tmp_path / "few", [*OLD, *NEW], tmp_path / "t", pool=home, batch=3)
    monkeypatch.undo()
    assert len(open_trace(tmp_path / "t").manifest.shards) == 1
    add(tmp_path / "few", [*OLD, *NEW], tmp_path / "t", pool=home, batch=3, resume=True)
    assert contents(tmp_path / "t") == contents(tmp_path / "whole")


def test_another_target_is_refused(home, tmp_path, monkeypatch):
    """By its hash; and, where the hash says nothing, by what it says about the texts."""
    record(home, tmp_path / "few", SOFT[0], OLD)
    other = load_target(str(home / "other"))
    monkeypatch.setattr(adding, "load_target", lambda *rest: other)
    with pytest.raises(CollectError, match="the trace was written by 'target'"):
        add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home)
    same = dataclasses.replace(other, info=load_target(str(home / "target")).info)
    monkeypatch.setattr(adding, "load_target", lambda *rest: same)
    with pytest.raises(CollectError, match=r"at row \d+ the target's log-probability of the token is"):
        add(tmp_path / "few", NEW[1:2], tmp_path / "u", pool=home)


def test_a_greedy_tie_keeps_the_text(home, tmp_path, monkeypatch):
    """Where two logits tie the recorded token is the target's, whichever the argmax is now."""
    record(home, tmp_path / "few", SETTINGS[-1], OLD)
    trace = open_trace(tmp_path / "few")
    real = adding.process

    def flipped(logits, how):
        law = real(logits, how)
        return dataclasses.replace(law, token=(law.token + 1) % WORDS)

    monkeypatch.setattr(adding, "process", flipped)
    with pytest.raises(CollectError, match="not the target that wrote this trace"):
        add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home)
    monkeypatch.setattr(type(trace), "target_top2_margin", np.zeros(trace.rows, np.float32))
    grown = add(tmp_path / "few", NEW[1:2], tmp_path / "u", pool=home)
    monkeypatch.undo()
    whole = record(home, tmp_path / "whole", SETTINGS[-1], [*OLD, NEW[1]])
    np.testing.assert_allclose(grown.alpha, whole.alpha, atol=1e-5)


def test_faults_are_named(home, tmp_path, monkeypatch):
    record(home, tmp_path / "few", SOFT[0], OLD)
    with pytest.raises(ConfigError, match="the trace has all of lookup, exit, deep already"):
        add(tmp_path / "few", OLD, tmp_path / "t", pool=home)
    with pytest.raises(ConfigError, match="drafters: none is listed"):
        add(tmp_path / "few", [], tmp_path / "t", pool=home)
    with pytest.raises(ConfigError, match="batch: is 0"):
        add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home, batch=0)
    empty = {"name": "t", "kind": "tree", "options": {"over": "deep", "shares": []}}
    with pytest.raises(DrafterError, match="shares is empty"):
        add(tmp_path / "few", [OLD[2], empty], tmp_path / "t", pool=home)
    with pytest.raises(DrafterError, match="over names 'deep', which is no drafter listed before it"):
        add(tmp_path / "few", NEW[:1], tmp_path / "t", pool=home)
    made = adding.build_drafters

    def narrow(*arguments):
        built = made(*arguments)
        built[-1].context = 12
        return built

    monkeypatch.setattr(adding, "build_drafters", narrow)
    with pytest.raises(CollectError, match=r"has \d+ tokens; the drafters read 12"):
        add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home)

    def broken(*arguments):
        built = made(*arguments)
        logits = built[-1].logits

        def spoiled(prefix):
            found = logits(prefix)
            found.values[0, 1] = torch.nan
            return found

        built[-1].logits = spoiled
        return built

    monkeypatch.setattr(adding, "build_drafters", broken)
    with pytest.raises(CollectError, match="logits of 'small' hold NaN at row 0"):
        add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home)
    assert not open_trace(tmp_path / "t").manifest.shards


def test_resuming_in_other_batches_is_refused(home, tmp_path, monkeypatch):
    """A shard holds so many texts: going on with another number would leave some out."""
    record(home, tmp_path / "few", SOFT[0], OLD)
    row, calls = Batch.row, [0]

    def stop(self, t):
        calls[0] += 1
        if calls[0] == 18:
            raise KeyboardInterrupt
        row(self, t)

    monkeypatch.setattr(Batch, "row", stop)
    with pytest.raises(KeyboardInterrupt):
        add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home, batch=3)
    monkeypatch.undo()
    for batch in (2, 5):
        with pytest.raises(TraceError, match="settings"):
            add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home, batch=batch, resume=True)
    whole = add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home, batch=3, resume=True)
    assert whole.sequences == open_trace(tmp_path / "few").sequences


@pytest.mark.parametrize("temperature", [0.8, 0.0])
def test_a_drafters_processing_is_that_of_a_recording_by_default(home, tmp_path, temperature):
    how = {"processing": {"temperature": temperature}}
    documents = [
        {
            "name": "tiny", "target": str(home / "target"), "prompts": {"file": "prompts.jsonl"}, "k": 4, "batch": 7,
            "max_new_tokens": 9, "loop": 0, "seed": 3, "drafters": drafters, **how,
        }
        for drafters in ([OLD[1]], [OLD[1], NEW[1]])
    ]  # fmt: skip
    for name, document in zip(("few", "whole"), documents, strict=True):
        collect(parse_config(document, home), document, tmp_path / name)
    grown, whole = add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home, batch=7), open_trace(tmp_path / "whole")
    assert grown.manifest.drafters == whole.manifest.drafters
    np.testing.assert_allclose(grown.alpha, whole.alpha, atol=1e-5)


def test_another_drafter_under_a_recorded_name_is_refused(home, tmp_path):
    record(home, tmp_path / "few", SOFT[0], OLD)
    tree = {"name": "t", "kind": "tree", "options": {"over": "exit"}}
    for other in ({"kind": "exit", "options": {"layer": 1}}, {"kind": "causal", "options": {"model": "small"}}):
        with pytest.raises(ConfigError, match="the trace has another 'exit'"):
            add(tmp_path / "few", [{"name": "exit", **other}, tree], tmp_path / "t", pool=home)
    grown = add(tmp_path / "few", [OLD[1], tree], tmp_path / "t", pool=home)
    assert grown.drafters[-1] == "t"


def test_recorded_drafters_that_nobody_reads_are_not_built(home, tmp_path):
    record(home, tmp_path / "few", SOFT[0], OLD)
    gone = {"name": "exit", "kind": "exit", "options": {"layer": 99}}  # could not be
    assert add(tmp_path / "few", [gone, NEW[1]], tmp_path / "t", pool=home).drafters[-1] == "small"


@pytest.mark.parametrize("column", ["alpha_flat", "target_entropy", "prompt_token"])
def test_a_damaged_source_is_refused(home, tmp_path, column):
    """By its bytes: an added trace would have hashes of its own."""
    trace = record(home, tmp_path / "few", SOFT[0], OLD)
    file = tmp_path / "few" / trace.manifest.shards[0].file
    data = bytearray(file.read_bytes())
    place = bytes(data).index(trace._blocks[0].stored[column].tobytes())
    data[place] ^= 1
    file.write_bytes(bytes(data))
    for act in (lambda: add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home), lambda: trace.save(tmp_path / "u")):
        with pytest.raises(TraceError, match="do not match the sha256"):
            act()


@pytest.mark.parametrize("calls_made", [2, 18])
def test_an_unfinished_source_is_refused(home, tmp_path, monkeypatch, calls_made):
    row, calls = Batch.row, [0]

    def stop(self, t):
        calls[0] += 1
        if calls[0] == calls_made:
            raise KeyboardInterrupt
        row(self, t)

    monkeypatch.setattr(Batch, "row", stop)
    with pytest.raises(KeyboardInterrupt):
        record(home, tmp_path / "few", SOFT[0], OLD, batch=3)
    monkeypatch.undo()
    with pytest.raises(CollectError, match="its recording is not finished"):
        add(tmp_path / "few", NEW[1:2], tmp_path / "t", pool=home)


def test_bits_widen_for_laws(home, tmp_path):
    """Where only certain drafters were recorded one bit an acceptance is enough; a chain needs more."""
    record(home, tmp_path / "few", SOFT[0], OLD[:1]).save(tmp_path / "bits", encodings="compact")
    assert open_trace(tmp_path / "bits").manifest.encodings["alpha_deep"] == "bits"
    grown = add(tmp_path / "bits", [OLD[2]], tmp_path / "t", pool=home)
    assert grown.manifest.encodings["alpha_deep"] == "fixed16"
    static = {"name": "t", "kind": "tree", "options": {"over": "deep", "nodes": 9}}
    both = add(tmp_path / "t", [OLD[2], static], tmp_path / "u", pool=home)
    assert both.drafters == ("lookup", "deep", "t")
    kept = add(tmp_path / "bits", [NEW[1]], tmp_path / "v", pool=home)  # a flat chain: the deep block stays as it is
    assert kept.manifest.encodings["alpha_deep"] == "bits"
    assert kept.manifest.encodings["alpha_flat"] == "fixed16"


def test_drafts_of_one_token_with_logits(home, tmp_path):
    """k = 1: trees lie in the flat block, and have no law to keep."""
    drafters = [OLD[2], {"name": "t", "kind": "tree", "options": {"over": "deep", "nodes": 3}}]
    whole = record(home, tmp_path / "whole", SOFT[0], drafters, k=1, logits=4)
    assert np.isnan(whole.column("logit_q")[:, 1]).all()
    assert whole.check() == []
    record(home, tmp_path / "few", SOFT[0], drafters[:1], k=1, logits=4)
    grown = add(tmp_path / "few", drafters, tmp_path / "t", pool=home, batch=5)
    np.testing.assert_allclose(grown.alpha, whole.alpha, atol=1e-5)


def test_the_command(home, tmp_path):
    record(home, tmp_path / "few", SOFT[0], OLD)
    (home / "more.yaml").write_text(json.dumps([*OLD, *NEW]))
    done = CliRunner().invoke(
        app, ["add", str(tmp_path / "few"), str(home / "more.yaml"), "--out", str(tmp_path / "t")]
    )
    assert done.exit_code == 0, done.output
    assert "7 drafters" in done.output
    again = CliRunner().invoke(
        app, ["add", str(tmp_path / "few"), str(home / "more.yaml"), "--out", str(tmp_path / "t")]
    )
    assert again.exit_code == 1
    assert "error:" in again.output
