"""JSON read strictly into frozen dataclasses, with every problem and its path, and sealed by its own hash."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = [
    "JSON",
    "UNREAD",
    "Rule",
    "between",
    "load_strict",
    "one_of",
    "pattern",
    "read",
    "seal",
    "to_document",
    "unseal",
]

T = TypeVar("T")
JSON = Annotated[Any, "JSON"]  # None, bool, int, finite float, str, lists and string-keyed dicts of these


@dataclass(frozen=True)
class Rule:
    """A rule that one value alone must keep, for use in Annotated[...]; `words` says what is allowed."""

    holds: Callable[[Any], bool]
    words: str


def one_of(allowed: tuple[str, ...]) -> Rule:
    """Return the rule of a closed vocabulary."""
    return Rule(lambda value: value in allowed, "one of " + ", ".join(allowed))


def between(low: float, high: float) -> Rule:
    """Return the rule low <= value <= high."""
    return Rule(lambda value: low <= value <= high, f"at least {low}" if high == math.inf else f"in [{low}, {high}]")


def pattern(expression: str, words: str) -> Rule:
    """Return the rule that a string matches the whole expression."""
    return Rule(lambda value: re.fullmatch(expression, value, re.DOTALL) is not None, words)


# ------------------------------------------------------------------ bytes <-> JSON values


def load_strict(raw: bytes) -> Any:
    """Return the value of JSON bytes; ValueError for anything that is not plain JSON.

    Beyond what json.loads refuses: duplicated keys, NaN and infinities in any spelling, lone surrogates.

    >>> load_strict(b'{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: key 'a' appears twice
    """

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(items)
        if len(document) < len(items):
            names = [name for name, _ in items]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"key {twice!r} appears twice")
        return document

    def constant(name: str) -> float:
        raise ValueError(f"{name} is not a number that JSON knows")

    def number(text: str) -> float:
        value = float(text)
        return value if math.isfinite(value) else constant(text)

    try:
        text = raw.decode()
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_float=number)
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates parse, but no UTF-8 file can hold them
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


_SEAL = re.compile(rb'^ "sha256": "([0-9a-f]{64})"', re.MULTILINE)  # one space of indent: the document's own key


def seal(document: Mapping[str, Any]) -> bytes:
    """Return a document as JSON text with sorted keys and the sha256 of that very text, counted with 64 zeros there.

    >>> unseal(seal({"k": 5}), "x.json")
    ({'k': 5}, [])
    """
    text = json.dumps({**document, "sha256": "0" * 64}, sort_keys=True, indent=1, allow_nan=False) + "\n"
    raw = text.encode()
    digest = hashlib.sha256(raw).hexdigest().encode()
    return _SEAL.sub(b' "sha256": "' + digest + b'"', raw, count=1)


def unseal(raw: bytes, file: str) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the document of sealed JSON bytes (None where there is none) and the problems with bytes and seal."""
    try:
        document = load_strict(raw)
    except ValueError as error:
        return None, [f"{file}: not valid JSON: {error}"]
    if not isinstance(document, dict):
        return None, [f"{file}: holds {_kind(document)}, not an object"]
    document.pop("sha256", None)
    found = _SEAL.findall(raw)
    blank = _SEAL.sub(b' "sha256": "' + b"0" * 64 + b'"', raw)
    if len(found) == 1 and hashlib.sha256(blank).hexdigest().encode() == found[0]:
        return document, []
    return document, [f"{file}: its bytes do not match its own sha256: damaged, or edited after it was written"]


# ------------------------------------------------------------------ JSON values <-> dataclasses


class _Unread:
    """Stands for a value that could not be read, so that rules between other fields still run."""

    def __getattr__(self, name: str) -> _Unread:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __contains__(self, item: object) -> bool:
        return True


UNREAD: Any = _Unread()


def to_document(value: Any) -> Any:
    """Return dataclasses and tuples as the dicts and lists that JSON knows; anything else as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: to_document(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, dict):
        return {name: to_document(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_document(entry) for entry in value]
    return value


def read(hint: type[T], value: Any, place: str, problems: list[str]) -> T:
    """Return `value` as the type that `hint` says; for what does not fit, append to `problems` and put UNREAD there.

    Hints: str, bool, int, float (an int will do), JSON, Annotated with a Rule, optional, tuple[X, ...], dict[str, X]
    and dataclasses. A dataclass must have exactly its fields: nothing is assumed for a missing one.
    """
    return _read(hint, value, place, problems)


def _read(hint: Any, value: Any, place: str, problems: list[str]) -> Any:
    def fault(words: str) -> Any:
        problems.append(f"{place}: {words}")
        return UNREAD

    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        base, rule = arguments
        if rule == "JSON":
            return _read_json(value, place, problems)
        known = _read(base, value, place, problems)
        if known is UNREAD or rule.holds(known):
            return known
        return fault(f"is {_shown(value)}; allowed: {rule.words}")
    if origin in (types.UnionType, Union):
        return None if value is None else _read(arguments[0], value, place, problems)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            return fault(f"is {_kind(value)}; allowed: a list")
        return tuple(_read(arguments[0], entry, f"{place}[{i}]", problems) for i, entry in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            return fault(f"is {_kind(value)}; allowed: an object with string keys")
        return {name: _read(arguments[1], entry, f"{place}.{name}", problems) for name, entry in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        if not isinstance(value, dict):
            return fault(f"is {_kind(value)}; allowed: an object")
        hints = _hints(hint)
        problems += [f"{place}.{name}: unknown field" for name in value if name not in hints]
        problems += [f"{place}.{name}: missing" for name in hints if name not in value]
        return hint(
            **{
                name: _read(inner, value[name], f"{place}.{name}", problems) if name in value else UNREAD
                for name, inner in hints.items()
            }
        )
    if hint is float and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1000:
        return float(value)
    if type(value) is not hint:
        return fault(f"is {_kind(value)}; allowed: {_KINDS[hint]}")
    if hint is float and not math.isfinite(value):
        return fault(f"is {value}; allowed: a finite number")
    return value


def _read_json(value: Any, place: str, problems: list[str]) -> Any:
    if isinstance(value, list | tuple):
        return [_read_json(entry, f"{place}[{i}]", problems) for i, entry in enumerate(value)]
    if isinstance(value, dict):
        problems += [f"{place}: key {name!r} is not a string" for name in value if not isinstance(name, str)]
        return {name: _read_json(entry, f"{place}.{name}", problems) for name, entry in value.items()}
    if value is not None and type(value) not in (bool, int, float, str):
        problems.append(f"{place}: is {_kind(value)}; allowed: what JSON can hold")
    elif isinstance(value, float) and not math.isfinite(value):
        problems.append(f"{place}: is {value}; allowed: a finite number")
    return value


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls, include_extras=True)


_KINDS: dict[Any, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    float: "a number",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    type(None): "null",
}


def _kind(value: Any) -> str:
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
