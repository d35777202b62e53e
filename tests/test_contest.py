"""Learners side by side in the token game, from Python and from the command line."""

import dataclasses
import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

import hedgelab as hl
from hedgelab.cli import app
from hedgelab.contest import WORLDS, contest, world_of
from hedgelab.figure import draw_contest


def test_contest_is_play_over_seeds():
    world = hl.worlds.gap(300, 4, 0.2)
    result = contest(world, ["hedge", hl.learner("hedge", scale=1.0), "ucb1"], seeds=3, seed=5, delay=2)
    assert list(result.regret) == ["hedge", "hedge(scale=1.0)", "ucb1"]
    for name, rows in result.regret.items():
        policy = hl.learner("hedge", scale=1.0) if "(" in name else name
        games = [hl.play(world, policy, seed=seed, delay=2) for seed in (5, 6, 7)]
        assert rows.tolist() == [game.regret_at.tolist() for game in games]
        final = result.final(name)
        values = np.array([game.regret for game in games])
        half = 4.302653 * values.std(ddof=1) / math.sqrt(3)  # Student's t, two degrees of freedom
        assert final == pytest.approx((values.mean(), values.mean() - half, values.mean() + half))
    assert result.unit == pytest.approx(math.sqrt(300 * math.log(4) / 2))
    assert "hedge_path" in result.notes["hedge"][0]
    assert math.isnan(contest(world, ["hedge"], seeds=1).final("hedge").low)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: contest([[0.5]], []), "got none"),
        (lambda: contest([[0.5]], ["hedge", "hedge"]), "a learner of its own, got hedge, hedge"),
        (lambda: contest([[0.5]], ["hedge"], seeds=0), "seeds must be at least 1"),
        (lambda: world_of("nowhere", 10, 2), "no world 'nowhere'; there are fair-coins"),
        (lambda: world_of("gap", 10, 2, gap=0.1, speed=3), "no setting speed; it has gap, mean, best"),
        (lambda: world_of("greedy", 10, 2, gap=0.1), "no setting gap; it has none"),
        (lambda: world_of("gone.npy"), "no file 'gone.npy'"),
        (lambda: world_of("x.npy", 10), "has its own rounds"),
        (lambda: world_of("x.npy", 10, 2, gap=0.1), "takes no settings"),
    ],
)
def test_bad_arguments(call, words):
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("name", WORLDS)
def test_every_world_of_the_command_line(name):
    world = world_of(name, 50, 4)
    assert hl.play(world, "hedge").rounds == 50


def test_command_line(tmp_path):
    run = CliRunner().invoke
    common = ["play", "gap", "--rounds", "400", "--drafters", "3", "--seeds", "2", "--world", "gap=0.3"]
    result = run(app, [*common, "--learner", "hedge", "--learner", "moss", "--json"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    expected = contest(hl.worlds.gap(400, 3, 0.3), ["hedge", "moss"], seeds=2).document()
    assert document == expected
    figure = tmp_path / "new" / "figure.png"
    result = run(app, [*common, "--learner", "hedge", "--set", "scale=1", "--delay", "3", "--figure", str(figure)])
    assert result.exit_code == 0, result.output
    assert "hedge(scale=1.0)" in result.stdout
    assert figure.stat().st_size > 10_000
    np.save(tmp_path / "losses.npy", np.random.default_rng(0).random((30, 2)))
    result = run(app, ["play", str(tmp_path / "losses.npy"), "--learner", "all", "--seeds", "1"])
    assert result.exit_code == 0, result.output
    for name in hl.learners():
        assert (name in result.stdout) == (name != "fixed") or name == "fixed"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["gap", "--world", "gap"], "--world needs NAME=VALUE"),
        (["gap", "--world", "gpa=1"], "no setting gpa; it has gap, mean, best"),
        (["switching", "--world", "at=noon"], "at"),
        (["switching", "--world", "switches=inf"], "switches must be a whole number"),
        (["block", "--world", "length=nan"], "length must be a whole number"),
        (["gap", "--figure", "x.docx"], "must end in .png"),
        (["gap", "--learner", "all", "--learner", "hedge"], "--learner all goes alone"),
        (["gap", "--learner", "my.py"], "FILE.py:NAME"),
        (["nowhere"], "no world 'nowhere'"),
        (["gap", "--learner", "hedge", "--learner", "ucb1", "--set", "scale=1"], "--set goes with one --learner"),
        (["gap", "--learner", "hedge", "--learner", "hedge"], "given twice"),
        (["gap", "--delay-mode", "qpm-d"], "for learners with bandit feedback"),
        (["missing.npy"], "has its own rounds"),
    ],
)
def test_errors_are_one_line(arguments, words):
    result = CliRunner().invoke(app, ["play", "--rounds", "20", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")


def test_replay_of_several_learners(tmp_path):
    hl.sample_trace("t06").few_prompts(1).save(tmp_path / "few")
    command = ["replay", str(tmp_path / "few"), "--learner", "hedge", "--learner", "metasd-onpath", "--json"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert {"hedge", "metasd-onpath"} <= set(json.loads(result.stdout)["policies"])


def test_any_name_can_be_drawn(tmp_path):
    names = ("a$x^{$", "_hidden")
    learners = [dataclasses.replace(hl.learner("hedge"), name=name) for name in names]
    result = contest([[0, 1], [1, 0], [1, 0]], learners, seeds=2)
    draw_contest(result, tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text()
    assert "_hidden" in text
    draw_contest(contest([[0.5]], ["hedge"], seeds=1), tmp_path / "single.png")  # one drafter, no regret
