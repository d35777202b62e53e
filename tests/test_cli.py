"""The command line on small traces: what it prints, and how it ends on bad input."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import hedgelab as hl
from hedgelab.cli import app
from hedgelab.comparison import compare, default_learners, regret_curves
from hedgelab.storage.recording import TraceWriter
from tests.strategies import a_manifest

PLAIN = """
import numpy as np
import hedgelab as hl

def init(params, n):
    return np.zeros((1, n))

def play(params, state, context, rng, probs):
    probs[:] = 0.0
    probs[np.argmin(state[0])] = 1.0

def observe(params, state, context, probs, pick, losses):
    state[0] = params[0] * state[0] + losses

RECENT = hl.Learner("recent", init, play, observe, parameters={"memory": hl.Parameter(0.9, "weight of the past", 0, 1)})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    prompts, rows, n = 12, 60, 4
    gamma = np.clip(rng.random((prompts * rows, n)) * [0.4, 0.8, 1.0, 1.6], 0, 1)
    trace = hl.Trace.from_arrays(
        token=np.zeros(prompts * rows, int),
        alpha=(rng.random(gamma.shape) < gamma).astype(float),
        gamma=gamma,
        offsets=np.arange(prompts + 1) * rows,
        domains=["sql"] * 6 + ["math"] * 6,
        drafters=["weak", "fair", "good", "best"],
        k=4,
    )
    path = tmp_path_factory.mktemp("traces") / "small"
    trace.save(path)
    return path


def run(*arguments, status=0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == status, result.output + result.stderr
    return result


def test_demo_prints_everything_and_draws(folder, tmp_path):
    figure = tmp_path / "deep" / "figure.pdf"
    text = run("demo", "--trace", folder, "--figure", figure, "--replicates", 2).stdout
    for word in (
        "normalhedge",
        "ucb1",
        "clairvoyant",
        "best fixed drafter: best",
        "regret in rounds",
        "tokens / rounds",
    ):
        assert word in text
    assert "mean of prompts" in text
    assert figure.read_bytes().startswith(b"%PDF")


def test_demo_json(folder, tmp_path):
    document = json.loads(
        run("demo", "--trace", folder, "--figure", tmp_path / "f.png", "--replicates", 2, "--json").stdout
    )
    assert set(document["results"]) == {"sql", "math", "all domains"}
    pooled = document["results"]["all domains"]
    assert set(pooled) == set(document["policies"])
    shown = {name for name, policy in document["policies"].items() if policy["kind"] == "learner"}
    assert shown == {policy.name for policy in default_learners()}
    assert shown < set(hl.learners())
    for numbers in pooled.values():
        assert set(numbers) == {"mat", "mat_mean_of_requests", "rounds", "regret_rounds"}
        for interval in numbers.values():
            assert interval["low"] <= interval["estimate"] <= interval["high"]
    assert pooled["best fixed drafter"]["regret_rounds"] == {"estimate": 0, "low": 0, "high": 0}
    assert pooled["normalhedge"]["mat"]["low"] < pooled["normalhedge"]["mat"]["high"]
    order = ["clairvoyant switching", "best fixed per prompt", "best fixed drafter", "uniform"]
    speeds = [pooled[name]["mat"]["estimate"] for name in order]
    assert speeds == sorted(speeds, reverse=True)
    # by hand: normalhedge under the same coins
    trace = hl.open_trace(folder)
    rounds = [hl.replay(trace, "normalhedge", k=4, replicate=r).rounds for r in range(2)]
    assert pooled["normalhedge"]["rounds"]["estimate"] == pytest.approx(np.mean(rounds))
    assert pooled["normalhedge"]["mat"]["estimate"] == pytest.approx(trace.rows / np.mean(rounds))


def test_demo_shows_every_kind(tmp_path):
    """The best drafter of each kind, with its MAT in each domain, by hand from the rounds that it needs alone."""
    trace = hl.sample_trace("t06").few_prompts(2)
    trace.save(tmp_path / "few")
    arguments = ("demo", "--trace", tmp_path / "few", "--figure", tmp_path / "f.png", "--replicates", 1)
    kinds = json.loads(run(*arguments, "--json").stdout)["kinds"]
    manifest = trace.manifest.drafters
    assert list(kinds) == list(dict.fromkeys(drafter.kind for drafter in manifest))
    rounds = hl.oracles.expected_fixed_rounds(trace, k=5).rounds
    lengths = np.diff(trace.offsets)
    for kind, found in kinds.items():
        members = [i for i, drafter in enumerate(manifest) if drafter.kind == kind]
        assert found["drafters"] == len(members)
        best = trace.drafters.index(found["best"])
        assert best in members
        assert rounds[:, best].sum() == rounds[:, members].sum(axis=0).min()
        for domain, interval in found["mat"].items():
            here = np.full(trace.sequences, True) if domain == "all domains" else trace.domains == domain
            assert interval["estimate"] == pytest.approx(lengths[here].sum() / rounds[here, best].sum())
            assert interval["low"] <= interval["estimate"] <= interval["high"]
    text = run(*arguments).stdout
    for kind, found in kinds.items():
        assert f"│ {kind} " in text
        assert f"{found['best']} (of {found['drafters']})" in text
        assert f"{found['mat']['all domains']['estimate']:.2f} ±" in text


def test_replay_a_registered_learner(folder):
    text = run("replay", folder, "--learner", "fixed", "--set", "drafter=good", "--k", 3).stdout
    assert "fixed" in text
    document = json.loads(run("replay", folder, "--learner", "hedge", "--set", "learning_rate=0.5", "--json").stdout)
    assert next(iter(document["policies"])) == "hedge(learning_rate=0.5)"


def test_replay_a_learner_in_a_plain_file(folder, tmp_path):
    file = tmp_path / "my.py"
    file.write_text(PLAIN)
    document = json.loads(run("replay", folder, "--learner", f"{file}:RECENT", "--set", "memory=0.5", "--json").stdout)
    pooled = document["results"]["all domains"]
    assert pooled["recent(memory=0.5)"]["mat"]["estimate"] > 1.0
    file.write_text(PLAIN.replace("def play", "@hl.kernel\ndef play").replace("def observe", "@hl.kernel\ndef observe"))
    compiled = json.loads(run("replay", folder, "--learner", f"{file}:RECENT", "--set", "memory=0.5", "--json").stdout)
    assert compiled["results"] == document["results"]  # the decorator changes speed alone
    # and an edit is seen at once
    file.write_text(file.read_text().replace("np.argmin", "np.argmax"))
    edited = json.loads(run("replay", folder, "--learner", f"{file}:RECENT", "--set", "memory=0.5", "--json").stdout)
    assert edited["results"]["all domains"]["recent(memory=0.5)"] != pooled["recent(memory=0.5)"]


def test_tables():
    text = run("learners").stdout
    assert all(name in text for name in hl.learners())
    assert json.loads(run("learners", "--json").stdout)[0]["name"] == "hedge"
    text = run("metrics").stdout
    assert all(name in text for name in hl.metrics.METRICS)


def test_trace_show_and_check(folder, tmp_path):
    assert "best" in run("trace", "show", folder).stdout
    assert json.loads(run("trace", "show", folder, "--json").stdout)["rows"] == 720
    assert "no problems" in run("trace", "check", folder).stdout
    import shutil

    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    shard = next(broken.glob("shard-*"))
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    result = run("trace", "check", broken, status=1)
    assert shard.name in result.stdout
    assert "problem" in result.stdout
    run("trace", "check", tmp_path / "nothing", status=1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", "nowhere"), "nowhere"),
        (("replay", "{folder}", "--learner", "nobody"), "no learner 'nobody'"),
        (("replay", "{folder}", "--learner", "nothing.py:X"), "no file 'nothing.py'"),
        (("replay", "{folder}", "--set", "rate"), "NAME=VALUE"),
        (("replay", "{folder}", "--set", "rate=1"), "no such parameter"),
        (("replay", "{folder}", "--k", "0"), "k must be"),
        (("replay", "{folder}", "--objective", "speed"), "objective must be one of"),
        (("replay", "{folder}", "--feedback", "bandit"), "needs every drafter's loss"),
        (("demo", "--trace", "{folder}", "--figure", "x.nothing"), "must end in .png, .pdf or .svg"),
        (("demo", "--trace", "{folder}", "--figure", "x"), "must end in .png, .pdf or .svg"),
    ],
)
def test_bad_input_ends_in_one_line(folder, arguments, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*(str(folder) if a == "{folder}" else a for a in arguments), status=2)
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_bundled_names(tmp_path, monkeypatch):
    (tmp_path / "t06").mkdir()  # a folder of that name that is no trace does not hide the bundled one
    monkeypatch.chdir(tmp_path)
    assert json.loads(run("trace", "show", "t06", "--json").stdout)["name"] == "t06"
    assert "no problems" in run("trace", "check", "t06").stdout
    assert "greedy" in run("trace", "show", "t07", status=2).stderr  # names those there are


def test_an_error_in_the_users_own_code_keeps_its_place(folder, tmp_path):
    file = tmp_path / "mine.py"
    (tmp_path / "neighbour.py").write_text("FACTOR = 'x'")
    text = "from neighbour import FACTOR\n" + PLAIN.replace("params[0] * state[0]", "FACTOR * state[0]")
    file.write_text(text)
    result = CliRunner().invoke(app, ["replay", str(folder), "--learner", f"{file}:RECENT"])
    assert result.exit_code == 1
    assert isinstance(result.exception, TypeError)  # not caught: the traceback says where


def test_short_and_lonely_traces(tmp_path):
    for rows, drafters in ((1, 3), (30, 1)):
        values = np.full((rows, drafters), 0.5)
        trace = hl.Trace.from_arrays(
            token=np.zeros(rows, int),
            alpha=values,
            gamma=values,
            offsets=[0, rows],
            domains=["x"],
            drafters=[f"d{i}" for i in range(drafters)],
            k=4,
        )
        trace.save(tmp_path / f"{rows}")
        arguments = ("demo", "--trace", tmp_path / f"{rows}", "--figure", tmp_path / "f.png")
        assert "[one prompt a domain]" in run(*arguments).stdout
        numbers = json.loads(run(*arguments, "--json").stdout)["results"]["x"]["hedge"]["mat"]
        assert numbers["low"] is None


def test_lines_of_a_comparison_have_names_of_their_own(folder):
    trace = hl.open_trace(folder)
    both = [hl.learner("fixed", drafter=0), hl.learner("fixed", drafter="best")]
    rows = compare(trace, both, replicates=1).summary()["all domains"]
    assert rows["fixed(drafter=0)"]["rounds"] != rows["fixed(drafter=best)"]["rounds"]
    with pytest.raises(ValueError, match="two called 'hedge'"):
        compare(trace, ["hedge", hl.learner("hedge")])
    with pytest.raises(ValueError, match="own coins"):
        compare(trace, ["hedge"], coins=np.zeros(trace.rows))
    with pytest.raises(ValueError, match="plays no token game"):
        regret_curves(trace, ["ucb1"])


def test_a_file_without_that_learner(folder, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLAIN)
    assert "it has RECENT" in run("replay", folder, "--learner", f"{file}:OTHER", status=2).stderr


def test_a_recording_without_texts_is_shown_and_otherwise_refused(tmp_path):
    with TraceWriter(tmp_path / "t", a_manifest()):
        pass
    name = str(tmp_path / "t")
    shown = CliRunner().invoke(app, ["trace", "show", name])
    assert shown.exit_code == 0, shown.output
    for command in (
        ["matrix", name],
        ["replay", name],
        ["costs", name],
        ["trace", "cut", name, name, "--prompts", "1"],
    ):
        refused = CliRunner().invoke(app, command)
        assert refused.exit_code == 2, command
        assert "holds no text yet; --resume" in " ".join(refused.output.split())
