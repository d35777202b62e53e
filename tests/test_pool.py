"""A pool from nothing on a tiny target: what it holds, and that interruption and failures cost nothing that is done."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from hedgelab.trace import open_trace
from tests.strategies_recording import WORDS, tiny_checkpoint, tiny_prompts
from traces import collect as collecting
from traces import pool as pools
from traces import train as training
from traces.__main__ import app
from traces.checkpoints import load_head, read_card, weights_of
from traces.collect import CollectError
from traces.config import ConfigError, load_config, read_yaml
from traces.heads import HeadError
from traces.pool import PoolError, load_pool_config, make_pool, parse_pool_config
from traces.targets import load_target
from traces.texts import Texts

ROOT = Path(__file__).parent.parent
HEAD = {"kind": "eagle", "taps": [1, 2], "width": 30, "depth": 2, "batch": 4, "steps": 8, "save_every": 3}
DOCUMENT = {
    "name": "tiny", "target": "target", "temperature": 0.7, "domains": ["math", "general"], "workers": 2,
    "texts": {
        "sampled": {"prompts": {"count": 4}, "processing": {"temperature": 0.7}, "max_new_tokens": 12, "seed": 3},
        "hot": {"prompts": {"count": 3}, "processing": {"temperature": 1.5}, "max_new_tokens": 12},
    },
    "heads": [
        {**HEAD, "name": "eagle-math", "domains": ["math"], "stored": "int8"},
        {**HEAD, "name": "eagle-all", "stored": "float16", "steps": 12},
        {**HEAD, "name": "cut-general", "kind": "truncated", "taps": [2], "depth": 1, "domains": ["general"]},
    ],
    "traces": ["small.yaml"],
}  # fmt: skip
TRACE = {
    "name": "small", "target": "target", "prompts": {"split": "heldout", "count": 2, "domains": ["math"]},
    "processing": {"temperature": 0.7}, "drafter_processing": {"temperature": 0.7}, "max_new_tokens": 8, "k": 3,
    "drafters": "drafters.yaml",
}  # fmt: skip
DRAFTERS = [
    {"name": "ngram-all", "kind": "ngram", "options": {"texts": "texts.safetensors", "order": 2}},
    {"name": "eagle-math", "kind": "head", "options": {"checkpoint": "heads/eagle-math"}},
    {"name": "cut-general", "kind": "truncated", "options": {"checkpoint": "heads/cut-general"}},
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A tiny target and the configurations of a pool."""
    folder = tmp_path_factory.mktemp("pool")
    tiny_checkpoint(folder / "target", rows=WORDS + 6, context=160)
    for name, document in (("pool", DOCUMENT), ("small", TRACE), ("drafters", DRAFTERS)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
    return folder


@pytest.fixture(scope="module")
def made(home):
    """The pool, made in this process without interruption."""
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(1) as executor:
        make_pool(load_pool_config(home / "pool.yaml"), home / "made", traces=True, executor=executor)
    torch.set_num_threads(threads)
    return home / "made"


def configuration(document, folder):
    """A pool's configuration as its file gives it: YAML sorts the recordings, whose order heads notice."""
    return parse_pool_config(yaml.safe_load(yaml.safe_dump(document)), folder)


def files_of(folder):
    """Every file that must not depend on interruptions."""
    kept = ("*/*/*.safetensors", "*.safetensors", "heads/*/curve.png", "*/*/manifest.json")
    return {str(file.relative_to(folder)): file.read_bytes() for pattern in kept for file in folder.glob(pattern)}


def test_it_holds_what_was_asked_for(home, made):
    texts = Texts.load(made / "texts.safetensors")
    assert texts.domains == ("math", "general")
    parts = [open_trace(made / "texts" / f"{name}-{domain}") for name in ("sampled", "hot") for domain in texts.domains]
    assert len(texts.domain) == sum(part.sequences for part in parts) > 9
    assert [part.manifest.seed for part in parts] == [3, 4, 0, 1]
    assert int(texts.own().sum()) == sum(part.rows + part.sequences for part in parts)
    target = load_target(str(home / "target"))
    for head in DOCUMENT["heads"]:
        _, card = load_head(made / "heads" / head["name"], target)
        assert (card.stored, card.steps) == (head.get("stored", "float32"), head["steps"])
        assert card.domains == tuple(head.get("domains", ("general", "math")))
        assert len(card.acceptance) == head["depth"]
    trace = open_trace(made / "traces" / "small")
    assert trace.drafters == ("ngram-all", "eagle-math", "cut-general")
    assert (
        trace.manifest.drafters[1].details["weights_sha256"] == read_card(made / "heads" / "eagle-math").weights_sha256
    )
    steps = json.loads((made / "steps.json").read_text())
    assert len(steps) == 4 + 3 + 1
    assert all(step["cpu_seconds"] > 0 for step in steps.values())


def test_interrupted_and_resumed_it_is_the_same(home, made):
    """SIGINT to the command alone: it ends soon, says how to go on, leaves no process behind, and goes on."""
    out = home / "stopped"
    command = [sys.executable, "-m", "traces", "pool", str(home / "pool.yaml"), "--out", str(out), "--traces"]
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, env=env, start_new_session=True, text=True, stderr=subprocess.PIPE,
        # whoever runs the tests in the background may have it ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 600
        while not list(out.glob("texts/*/manifest.json")) and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert "--resume to go on" in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    for _ in range(100):
        try:
            os.killpg(process.pid, 0)  # anyone left in its group?
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        pytest.fail("processes are left")
    assert not (out / "traces").exists()
    refused = CliRunner().invoke(app, command[3:])
    assert refused.exit_code == 1
    assert "--resume goes on" in refused.output
    done = subprocess.run([*command, "--resume"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "8 steps" in done.stdout
    assert files_of(out) == files_of(made)


def test_a_step_that_fails_is_named_and_the_others_stay(home, tmp_path, monkeypatch):
    real = training._Trainer.advance

    def advance(self):
        if self.config.name == "eagle-all" and self.progress.step == 4:
            raise HeadError("the losses are nan")
        return real(self)

    monkeypatch.setattr(training._Trainer, "advance", advance)
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(1) as executor, pytest.raises(HeadError) as caught:
        make_pool(load_pool_config(home / "pool.yaml"), tmp_path / "pool", executor=executor)
    assert caught.value.__notes__ == ["in step heads/eagle-all"]
    monkeypatch.undo()
    ran = []
    monkeypatch.setattr(pools, "run_step", lambda step, real=pools.run_step: (ran.append(step.title), real(step))[1])
    with ThreadPoolExecutor(1) as executor:
        found = make_pool(load_pool_config(home / "pool.yaml"), tmp_path / "pool", resume=True, executor=executor)
    torch.set_num_threads(threads)
    assert len(found) == 7
    assert "heads/eagle-all" in ran
    assert not any(title.startswith("texts/") for title in ran)


@pytest.mark.parametrize("change", ["head", "texts", "more texts", "trace"])
def test_a_pool_of_another_configuration_is_not_taken_for_this_one(home, made, tmp_path, change):
    document = json.loads(json.dumps(DOCUMENT))
    folder = home
    if change == "head":
        document["heads"][1]["learning_rate"] = 0.01
    elif change == "texts":
        document["texts"]["hot"]["processing"]["temperature"] = 1.4
    elif change == "more texts":
        document["texts"]["more"] = {"prompts": {"count": 1}, "processing": {"temperature": 0.7}, "max_new_tokens": 5}
    else:
        folder = tmp_path
        shutil.copytree(home / "target", tmp_path / "target")
        (tmp_path / "drafters.yaml").write_text(yaml.safe_dump(DRAFTERS[:2]))
        (tmp_path / "small.yaml").write_text(yaml.safe_dump(TRACE))
    shutil.copytree(made, tmp_path / "pool")
    threads = torch.get_num_threads()
    config = configuration(document, folder)
    with (
        ThreadPoolExecutor(1) as executor,
        pytest.raises(ConfigError, match="another configuration or from other texts"),
    ):
        make_pool(config, tmp_path / "pool", traces=True, resume=True, executor=executor)
    torch.set_num_threads(threads)


def test_a_head_on_the_last_state_leaves_recorded_texts_as_they_are(home, made, tmp_path):
    """The last state of all is kept for every head: texts recorded before one asks for it serve it as they are."""
    medusa = {**HEAD, "name": "medusa-all", "kind": "medusa", "taps": [1, 3]}
    document = {**DOCUMENT, "heads": [*DOCUMENT["heads"], medusa], "traces": []}
    shutil.copytree(made, tmp_path / "pool")
    before = json.loads((made / "steps.json").read_text())
    threads = torch.get_num_threads()
    with ThreadPoolExecutor(1) as executor:
        found = make_pool(configuration(document, home), tmp_path / "pool", resume=True, executor=executor)
        assert set(found) == {*before, "heads/medusa-all"}
        assert all(found[title] == step for title, step in before.items())  # seconds, too: none was run again
        # the other way round, and a pool whose steps were noted when the last layer still counted
        without = configuration({**DOCUMENT, "traces": []}, home)
        make_pool(without, tmp_path / "pool", resume=True, executor=executor)
        for title in list(found):
            if title.startswith("texts/"):
                found[title]["fingerprint"] = noted_with(title.removeprefix("texts/"), document, home, [1, 2, 3])
        (tmp_path / "pool" / "steps.json").write_text(json.dumps(found))
        again = make_pool(configuration(document, home), tmp_path / "pool", resume=True, executor=executor)
        assert again == found
        # a layer that was not kept is another matter
        document["heads"] = [*DOCUMENT["heads"], {**medusa, "taps": [0]}]
        with pytest.raises(ConfigError, match="another configuration or from other texts"):
            make_pool(configuration(document, home), tmp_path / "pool", resume=True, executor=executor)
    torch.set_num_threads(threads)


def noted_with(name, document, home, taps):
    """The fingerprint of texts kept with `taps`, from its parts."""
    recording = parse_pool_config(document, home).recordings()[name]
    facts = ["texts", recording, "cpu", "float32", [taps, 0.7], ""]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def test_fingerprints_are_those_of_pools_made_before(home, made):
    steps = json.loads((made / "steps.json").read_text())
    texts = [title for title in steps if title.startswith("texts/")]
    assert len(texts) == 4
    for title in texts:
        assert steps[title]["fingerprint"] == noted_with(title.removeprefix("texts/"), DOCUMENT, home, [1, 2])


def test_a_recording_that_was_begun_again_is_not_taken_for_whole(home, made, tmp_path, monkeypatch):
    """Its old entry is still in steps.json, and a manifest is there from its first moment on."""
    shutil.copytree(made, tmp_path / "pool")
    manifest = tmp_path / "pool" / "traces" / "small" / "manifest.json"
    shutil.rmtree(manifest.parent)
    threads = torch.get_num_threads()
    real = collecting.Batch.row
    monkeypatch.setattr(collecting.Batch, "row", lambda self, t: (_ for _ in ()).throw(CollectError("stopped")))
    config = load_pool_config(home / "pool.yaml")
    with ThreadPoolExecutor(1) as executor, pytest.raises(CollectError, match="stopped"):
        make_pool(config, tmp_path / "pool", traces=True, resume=True, executor=executor)
    assert not json.loads(manifest.read_text())["complete"]
    monkeypatch.setattr(collecting.Batch, "row", real)
    with ThreadPoolExecutor(1) as executor:
        make_pool(config, tmp_path / "pool", traces=True, resume=True, executor=executor)
    torch.set_num_threads(threads)
    assert files_of(tmp_path / "pool") == files_of(made)


def test_a_worker_that_is_killed_is_an_error_that_says_so(home, tmp_path):
    class Broken(ThreadPoolExecutor):
        def submit(self, *arguments, **named):
            raise BrokenExecutor("a child process terminated abruptly")

    with Broken(1) as executor, pytest.raises(PoolError, match="--resume goes on"):
        make_pool(load_pool_config(home / "pool.yaml"), tmp_path / "pool", executor=executor)


@pytest.mark.parametrize(("stored", "error"), [("float16", 1e-3), ("int8", 0.5 / 127)])
def test_what_is_stored_is_what_is_measured(home, made, tmp_path, stored, error):
    """The narrow weights are the wide ones, rounded; the card tells the acceptance of the narrow ones."""
    from traces.config import parse_train_config
    from traces.train import train

    wide, narrow = [], []
    target = load_target(str(home / "target"))
    for precision, found in (("float32", wide), (stored, narrow)):
        document = {
            **DOCUMENT["heads"][0], "target": str(home / "target"), "texts": ["texts.safetensors"], "temperature": 0.7,
            "stored": precision,
        }  # fmt: skip
        card = train(parse_train_config(document, made), document, tmp_path / precision)
        head, read = load_head(tmp_path / precision, target)
        assert read == card
        found += [head.state_dict(), card, (tmp_path / precision / "head.safetensors").stat().st_size]
    assert narrow[0].keys() == wide[0].keys()
    for name, weight in wide[0].items():
        room = error * weight.abs().amax(-1, keepdim=True) * 1.01 + 1e-7
        assert bool(((narrow[0][name] - weight).abs() <= room).all())
        kept = stored == "int8" and weight.ndim == 1  # gains keep their precision
        assert torch.equal(narrow[0][name], weight) == kept or bool((weight == weight.round()).all())
    assert narrow[1].acceptance != wide[1].acceptance
    assert narrow[1].acceptance == pytest.approx(wide[1].acceptance, abs=0.02)
    assert narrow[2] < wide[2] * (0.6 if stored == "float16" else 0.5)


def test_every_problem_of_a_configuration_is_reported(tmp_path):
    with pytest.raises(ConfigError) as caught:
        parse_pool_config(
            {
                **DOCUMENT, "domains": ["math", "cooking"], "traces": ["nowhere.yaml"],
                "texts": {"a": {"processing": {"temperature": -1}}, "b": []},
                "heads": [{**HEAD, "name": "x", "temperature": 0.9, "taps": []}, *[{**HEAD, "name": "y"}] * 2],
            },
            tmp_path,
        )  # fmt: skip
    for words in ("'cooking'", "nowhere.yaml: cannot be read", "config.texts.b: holds no mapping"):
        assert words in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        parse_pool_config(
            {
                **DOCUMENT, "traces": [], "texts": {"a": {"processing": {"temperature": -1}}},
                "heads": [{**HEAD, "name": "x", "temperature": 0.9, "taps": []}, *[{**HEAD, "name": "y"}] * 2],
            },
            tmp_path,
        )  # fmt: skip
    for words in (
        "config.texts.a-math.processing.temperature",
        "'y' is used twice",
        "config.heads.x.taps",
        "config.heads.x.temperature",
    ):
        assert words in str(caught.value)
    result = CliRunner().invoke(app, ["pool", str(tmp_path / "none.yaml"), "--out", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert "none.yaml: cannot be read" in result.output


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"domains": []}, "config.domains: is empty"),
        ({"domains": ["math", "math"]}, "names one twice"),
        ({"traces": ["small.yaml", "sub/small.yaml"]}, "config.traces: two are called 'small'"),
        ({"texts": {"a": {"prompts": None}}}, "config.texts.a: holds no mapping"),
        ({"texts": {"a": {"seed": "x"}}}, "config.texts.a.seed: is no whole number"),
        ({"texts": {"a": {"prompts": {"split": "heldout"}}}}, "no other split"),
        ({"texts": {"a": {"target": "other"}}}, "config.texts.a: target is the pool's to say"),
        ({"heads": [{**HEAD, "name": ".."}]}, "not dots alone"),
        ({"heads": [{**HEAD, "name": "x", "texts": ["y"]}]}, "config.heads.x: texts is the pool's to say"),
        ({"heads": [{**HEAD, "name": "x", "domains": ["sql"]}]}, "config.heads.x.domains: 'sql' is none of the pool's"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(home, change, words):
    with pytest.raises(ConfigError) as caught:
        parse_pool_config({**DOCUMENT, **change}, home)
    assert words in str(caught.value)


def test_a_traces_prompts_lie_beside_the_configuration(home, made, tmp_path):
    """While its drafters lie in the pool."""
    tiny_prompts(tmp_path / "mine.jsonl", 1)
    shutil.copytree(home / "target", tmp_path / "target")
    (tmp_path / "drafters.yaml").write_text(yaml.safe_dump(DRAFTERS))
    (tmp_path / "small.yaml").write_text(yaml.safe_dump({**TRACE, "prompts": {"file": "mine.jsonl"}}))
    config, document = load_config(tmp_path / "small.yaml", made)
    assert config.prompts.file == str(tmp_path / "mine.jsonl")
    assert document["prompts"] == {"file": "mine.jsonl"}
    threads = torch.get_num_threads()
    step = pools.Step("small", "traces", document, tmp_path / "pool" / "traces" / "small", tmp_path, "cpu", "float32")
    (tmp_path / "pool").mkdir()
    for name in ("heads", "texts.safetensors"):
        (tmp_path / "pool" / name).symlink_to(made / name)
    assert "2 texts" in pools.run_step(step)["note"]
    torch.set_num_threads(threads)


def test_weights_that_do_not_fit_float16_are_refused(home, made):
    head, _ = load_head(made / "heads" / "eagle-math", load_target(str(home / "target")))
    with torch.no_grad():
        head.layer.input_layernorm.weight.fill_(1e5)
    assert len(weights_of(head, "int8")) < len(weights_of(head))
    with pytest.raises(HeadError, match="do not fit float16"):
        weights_of(head, "float16")


def test_the_shipped_pool():
    config = load_pool_config(ROOT / "traces" / "configs" / "pool.yaml")
    names = {head["name"] for head in config.heads}
    assert {f"truncated-{domain}" for domain in config.domains} <= names
    assert sum(f"eagle-{domain}" in names for domain in config.domains) >= 3
    assert {"truncated-matched", "truncated-all", "eagle-matched"} <= names
    assert len(config.trainings()) == len(config.heads) == len(names)
    # the traces record with every head, or `python -m traces add` does
    drafters, _ = load_config(ROOT / "traces" / "configs" / "t06.yaml")
    added = {entry["name"] for entry in read_yaml(ROOT / "traces" / "configs" / "more.yaml", list)}
    assert names <= {drafter.name for drafter in drafters.drafters} | added
