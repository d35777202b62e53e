"""The code that README shows runs, and the table of learners is the registry's."""

import json
import re
from pathlib import Path

from typer.testing import CliRunner

import hedgelab as hl
from hedgelab.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_ten_lines(capsys):
    exec(compile(BLOCKS[0], "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "best fixed drafter: truncated-all-static " in printed
    rates = {line.split()[0]: float(line.split()[1]) for line in printed.splitlines()[:4]}
    assert rates["uniform"] < rates["ucb1"] < rates["hedge"] < rates["normalhedge"]


def test_your_own_learner(tmp_path):
    trace = hl.sample_trace("t06").few_prompts(2)
    trace.save(tmp_path / "few")
    results = []
    for text in (BLOCKS[1], re.sub(r"(?m)^def (play|observe)", r"@hl.kernel\ndef \1", BLOCKS[1])):
        (tmp_path / "my.py").write_text(text)
        command = ["replay", str(tmp_path / "few"), "--k", "5", "--learner", f"{tmp_path / 'my.py'}:RECENT"]
        result = CliRunner().invoke(app, [*command, "--set", "memory=0.95", "--json"])
        assert result.exit_code == 0, result.output
        results.append(json.loads(result.stdout)["results"])
    assert results[0] == results[1]  # the decorator changes speed alone


def test_the_table_is_the_registry():
    result = CliRunner().invoke(app, ["learners", "--markdown"])
    assert result.exit_code == 0
    rows = result.stdout.splitlines()
    assert len(rows) == len(hl.learners())
    assert "\n".join(rows) in (ROOT / "hedgelab" / "algorithms" / "README.md").read_text()
    assert f"\n{len(rows)}, from Hedge" in README


def test_the_theorems_game(capsys):
    exec(compile(BLOCKS[2], "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    regret = {line.split()[0]: float(line.split()[2]) for line in lines[:4]}
    assert max(regret["hedge"], regret["normalhedge"]) < regret["moss"] < regret["ucb1"]
    assert "no bound is proved" in lines[4]
