"""What calls of target, drafters and learners cost on one machine: measured once, kept as JSON.

`python -m experiments.bench_costs` measures; `hedgelab.cost` makes seconds of rounds of them. All are CPU seconds of
one text on one thread, behind a text of `prefix` tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab.storage.manifest import RULES, Model
from hedgelab.storage.shards import write_atomically
from hedgelab.storage.typed_json import UNREAD, Rule, between, one_of, read, seal, to_document, unseal

__all__ = ["BUNDLED", "Costs", "CostsError", "DrafterCost", "LearnerCost", "Machine", "Points", "Seconds", "TargetCost"]

FORMAT_VERSION = 1
BUNDLED = Path(__file__).resolve().parent.parent / "data" / "costs.json"

Time = Annotated[float, Rule(lambda value: value >= 0, "at least 0")]
Whole = Annotated[int, between(1, 2**31)]


class CostsError(ValueError):
    """A file of costs cannot be read, or does not hold a cost that is asked for; the message names all."""


@dataclass(frozen=True)
class Seconds:
    """The median of repeats, and the 95% interval of the median from their order."""

    median: Time
    low: Time
    high: Time


@dataclass(frozen=True)
class Points:
    """Seconds by the number of tokens: `tokens` ascending, `seconds` of each."""

    tokens: tuple[Whole, ...]
    seconds: tuple[Seconds, ...]

    def at(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds of numbers of tokens, on straight lines between those measured, from 0 for none.

        Nothing is measured beyond the last: CostsError there.

        >>> Points((1, 3), (Seconds(2.0, 2.0, 2.0), Seconds(3.0, 3.0, 3.0))).at([0, 1, 2]).tolist()
        [0.0, 2.0, 2.5]
        """
        wanted = np.asarray(tokens, np.float64)
        if wanted.size and (wanted.max() > self.tokens[-1] or wanted.min() < 0):
            raise CostsError(f"{wanted.max():g} tokens at once; measured: 1 to {self.tokens[-1]}")
        return np.interp(wanted, (0, *self.tokens), (0.0, *(each.median for each in self.seconds)))

    def in_blocks(self, tokens: ArrayLike) -> NDArray[np.float64]:
        """Return the seconds of any numbers of tokens: those beyond the last measured in blocks of as many as that.

        >>> Points((1, 3), (Seconds(2.0, 2.0, 2.0), Seconds(3.0, 3.0, 3.0))).in_blocks([4, 6]).tolist()
        [5.0, 6.0]
        """
        blocks, rest = np.divmod(np.asarray(tokens, np.int64), self.tokens[-1])
        return blocks * self.seconds[-1].median + self.at(rest)


@dataclass(frozen=True)
class TargetCost:
    """step : one plain autoregressive step. verify : one pass over so many tokens, a chain or a tree.

    Both with the law of every token read, and its draw.
    """

    model: Model
    step: Seconds
    verify: Points


@dataclass(frozen=True)
class DrafterCost:
    """What a drafter's calls cost.

    draft : entry k - 1: proposing k tokens, or a tree no deeper than k, as the chosen drafter
    nodes : entry k - 1: tokens of that tree, the mean over texts; None for a chain, which has as many as are proposed
    evaluate : scoring so many tokens of the text as a drafter that was not chosen
    over : the drafter whose laws it reads; their cost is in `draft`, not in `evaluate`
    note : why `draft` is None

    draft and nodes are None where drafting was not measured.
    """

    kind: str
    rule: Annotated[str, one_of(RULES)]
    depth: Whole
    draft: tuple[Seconds, ...] | None
    nodes: tuple[Time, ...] | None
    evaluate: Points
    over: str | None = None
    note: str = ""


@dataclass(frozen=True)
class LearnerCost:
    """play : one distribution and its draw. observe : one revealed loss vector."""

    play: Seconds
    observe: Seconds


@dataclass(frozen=True)
class Machine:
    """processor : as the system names it. provisional : what is wrong with the measurement, "" for nothing."""

    processor: str
    cores: Whole
    system: str
    provisional: str


@dataclass(frozen=True)
class Costs:
    """Everything measured in one run.

    measured : the date. k : drafts of a round. prefix : tokens of the text before. repeats : of every number
    learners : of as many drafters as there are here
    """

    format_version: int
    measured: str
    machine: Machine
    device: str
    threads: Whole
    dtype: str
    k: Whole
    prefix: Whole
    repeats: Whole
    versions: dict[str, str]
    target: TargetCost
    drafters: dict[str, DrafterCost]
    learners: dict[str, LearnerCost]

    def to_json(self) -> str:
        """Return the text of the file, sealed by its own sha256."""
        return seal(to_document(self)).decode()

    @classmethod
    def from_json(cls, text: str | bytes, file: str = "costs.json") -> Costs:
        """Return the costs of a file's text; CostsError lists every problem with its place."""
        document, problems = unseal(text.encode() if isinstance(text, str) else text, file)
        if document is not None:
            version = document.get("format_version")
            if version != FORMAT_VERSION:
                raise CostsError(f"{file}: format_version is {version!r}; accepted: {FORMAT_VERSION}")
            costs = read(cls, document, file, problems)
            problems += _problems(costs, file)
        if problems:
            raise CostsError("\n".join(problems))
        return costs

    @classmethod
    def load(cls, file: str | Path | None = None) -> Costs:
        """Return the costs in a file, or those that come with hedgelab; CostsError for what cannot be read.

        >>> Costs.load().target.step.median > 0
        True
        """
        path = BUNDLED if file is None else Path(file)
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise CostsError(f"{path}: cannot be read: {error}") from error
        return cls.from_json(raw, str(path))

    def save(self, file: str | Path) -> None:
        """Write the file."""
        write_atomically(Path(file), self.to_json().encode())


def _problems(costs: Costs, place: str) -> Iterator[str]:
    """Yield the faults that no field shows alone."""
    if costs.drafters is UNREAD or costs.target is UNREAD or costs.k is UNREAD:
        return
    if costs.target.step is not UNREAD and costs.target.step.median == 0:
        yield f"{place}.target.step.median: is 0; allowed: above 0, plain decoding takes time"
    tables = {"target.verify": costs.target.verify}
    for name, drafter in costs.drafters.items():
        if drafter is UNREAD:
            continue
        tables[f"drafters.{name}.evaluate"] = drafter.evaluate
        if drafter.over == name:
            yield f"{place}.drafters.{name}.over: is its own name"
        for part in ("draft", "nodes"):
            given = getattr(drafter, part)
            if isinstance(given, tuple) and len(given) != costs.k:
                yield f"{place}.drafters.{name}.{part}: has {len(given)} entries; allowed: k = {costs.k}"
        if drafter.nodes is not None and drafter.draft is None:
            yield f"{place}.drafters.{name}.nodes: is given without draft"
    for name, table in tables.items():
        if table is UNREAD or table.tokens is UNREAD or table.seconds is UNREAD or UNREAD in table.tokens:
            continue
        if not table.tokens or len(table.tokens) != len(table.seconds):
            yield f"{place}.{name}: has {len(table.tokens)} tokens, {len(table.seconds)} seconds; allowed: as many, > 0"
        if any(b <= a for a, b in zip(table.tokens, table.tokens[1:], strict=False)):
            yield f"{place}.{name}.tokens: do not ascend"
