"""The verdicts on record are those of the claims: quick ones are computed anew, full ones keep questions and rules."""

from __future__ import annotations

from pathlib import Path

import pytest

import paper_figures
from experiments import claims, record
from experiments.claim import findings
from experiments.runner import experiment
from paper_figures.__main__ import gallery

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", claims.NAMES)
def test_quick_verdicts_are_those_on_record(name, quick):
    assert record.changes(findings(name, experiment(name), quick(name)), quick=True) == []


@pytest.mark.parametrize("name", claims.NAMES)
def test_the_record_holds_every_question_and_its_rule(name):
    for size in (False, True):
        held = record.on_record(quick=size)[name]
        asked = experiment(name).CLAIM.questions
        assert {key: (each["what"], each["rule"]) for key, each in held.items()} == {
            key: (question.what, str(question.rule)) for key, question in asked.items()
        }


def test_readme_shows_the_verdicts_on_record():
    held = record.on_record()
    assert list(held) == sorted(claims.NAMES)
    assert record.markdown(held) in (ROOT / "README.md").read_text()
    assert record.report(held) in (ROOT / "experiments" / "VERDICTS.md").read_text()


def test_the_gallery_shows_all_figures_with_their_captions():
    assert (ROOT / "paper_figures" / "README.md").read_text() == gallery()


@pytest.mark.parametrize("name", paper_figures.NAMES)
def test_every_figure_is_there(name):
    for suffix, begin in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
        assert (ROOT / "paper_figures" / f"{name}{suffix}").read_bytes().startswith(begin)
