r"""The verdicts on record: those of the bundled traces, which the README shows and `check` holds new ones against."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments import claims
from experiments.claim import CANNOT_TELL, FAILS, HOLDS, Finding
from experiments.runner import experiment
from experiments.settings import ClaimError
from hedgelab.regret import Interval
from hedgelab.storage.shards import write_atomically

__all__ = ["RECORD", "changes", "document", "markdown", "on_record", "report", "save", "shown"]

RECORD = Path(__file__).parent / "data" / "verdicts.json"
FULL, QUICK = "full", "quick"


def shown(effect: Interval, unit: str = "") -> str:
    """Return an effect as text, with three digits that mean something.

    >>> shown(Interval(0.01234, -0.5, 1.0), "tokens"), shown(Interval(2.0, 2.0, 2.0))
    ('0.0123 [-0.5, 1] tokens', '2')
    """
    low, high = (f"{end:.3g}" for end in (effect.low, effect.high))
    ends = "" if effect.low == effect.high == effect.estimate else f" [{low}, {high}]"
    return f"{effect.estimate:.3g}{ends} {unit}".rstrip()


def document(found: Iterable[Finding]) -> dict[str, dict[str, Any]]:
    """Return findings as values that JSON can hold: {claim: {question: what was found}}."""
    out: dict[str, dict[str, Any]] = {}
    for each in found:
        out.setdefault(each.claim, {})[each.name] = {
            "what": each.question.what,
            "rule": str(each.question.rule),
            "unit": each.question.unit,
            "verdict": each.verdict,
            "case": each.case,
            "effect": [_plain(end) for end in each.effect],
            "cases": {word: count for word, count in each.tally.items() if count},
            "comparisons": each.question.comparisons,
            "note": each.answer.note,
        }
    return out


def _plain(value: float) -> float | None:
    return float(f"{value:.6g}") if abs(value) < float("inf") else None


def on_record(quick: bool = False) -> dict[str, dict[str, Any]]:
    """Return what is on record, {} where nothing is."""
    found: dict[str, dict[str, Any]] = _read().get(QUICK if quick else FULL, {})
    return found


def _read() -> dict[str, Any]:
    if not RECORD.exists():
        return {}
    try:
        held: dict[str, Any] = json.loads(RECORD.read_text())
    except ValueError as error:
        raise ClaimError(f"{RECORD}: cannot be read: {error}") from error
    return held


def save(found: Sequence[Finding], quick: bool = False) -> None:
    """Put the findings of some claims on record, in the place of what was there of them."""
    held = _read()
    part = QUICK if quick else FULL
    held[part] = {**held.get(part, {}), **document(found)}
    RECORD.parent.mkdir(exist_ok=True)
    write_atomically(RECORD, (json.dumps(held, indent=1, sort_keys=True, allow_nan=False) + "\n").encode())


def changes(found: Sequence[Finding], quick: bool = False) -> list[str]:
    """Return what differs from the record: a line for each verdict or rule that does, or that only one of them has."""
    held = on_record(quick)
    there = {(each.claim, each.name) for each in found}
    lines = [
        f"{name}, {key}: is on record, and no question any more"
        for name in dict.fromkeys(each.claim for each in found)
        for key in held.get(name, {})
        if (name, key) not in there
    ]
    for each in found:
        old = held.get(each.claim, {}).get(each.name)
        if old is None:
            lines.append(f"{each.claim}, {each.name}: {each.verdict}, and nothing is on record")
        elif old["rule"] != str(each.question.rule):
            lines.append(f"{each.claim}, {each.name}: holds if {each.question.rule}, on record if {old['rule']}")
        elif old["verdict"] != each.verdict:
            effect = _effect(old)
            lines.append(
                f"{each.claim}, {each.name}: {each.verdict} ({shown(each.effect, each.question.unit)}), on record is "
                f"{old['verdict']} ({shown(effect, each.question.unit)})"
            )
    return lines


def report(held: Mapping[str, Mapping[str, Any]]) -> str:
    """Return all verdicts on record as Markdown: each question with its rule, what decided it, and its note."""
    parts = []
    for name in (each for each in claims.NAMES if each in held):
        claim, questions = experiment(name).CLAIM, held[name]
        lines = [f"## {name}", "", f"{claim.sentence} *({claim.source})*", ""]
        lines += ["| question | verdict | effect [95%] | holds if |", "| --- | --- | --- | --- |"]
        notes = []
        for key in claim.questions:
            each = questions[key]
            many = sum(each["cases"].values()) > 1
            tally = _tally(each["cases"])
            decided = f"; {each['case']}. Cases: {tally}" if many else ""
            effect = f"{shown(_effect(each), each['unit'])}{decided}"
            lines.append(_row(f"**{key}** {each['what']}", f"*{each['verdict']}*", effect, each["rule"]))
            notes += [f"- **{key}**: {each['note']}"] if each["note"] else []
        parts.append("\n".join([*lines, "", *notes] if notes else lines))
    return "\n\n".join(parts) + "\n"


def _effect(held: Mapping[str, Any]) -> Interval:
    return Interval(*(float("nan") if end is None else end for end in held["effect"]))


def _tally(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{word} {counts[word]}" for word in (HOLDS, FAILS, CANNOT_TELL) if word in counts)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markdown(held: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the table of the README: a line a claim, its headline, and how its further questions came out."""
    lines = [
        "| claim | verdict | effect [95%] of the case that decides | further questions |",
        "| --- | --- | --- | --- |",
    ]
    for name in claims.NAMES:
        if name not in held:
            continue
        claim, questions = experiment(name).CLAIM, held[name]
        first = questions[claim.headline]
        effect = _effect(first)
        cases = _tally(first["cases"])
        case = f"; {first['case']} (of {sum(first['cases'].values())} cases: {cases})" if first["case"] else ""
        others = [question["verdict"] for key, question in questions.items() if key != claim.headline]
        tally = _tally({word: others.count(word) for word in others})
        lines.append(_row(claim.sentence, f"*{first['verdict']}*", shown(effect, first["unit"]) + case, tally))
    return "\n".join(lines) + "\n"
