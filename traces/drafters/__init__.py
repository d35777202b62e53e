"""Drafters: the registry. One file a kind; `base.py` says what a drafter is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hedgelab.storage.manifest import Processing
from traces.drafters import causal, dynamic_tree, exit, head, lookup, medusa, ngram, retrieval, several, tree, truncated
from traces.drafters.base import DeepLaws, Drafter, DrafterError, FlatDrafter
from traces.targets import Target, load_target, located
from traces.texts import Texts

__all__ = ["KINDS", "Kind", "Surroundings"]


@dataclass(frozen=True)
class Surroundings:
    """What a drafter may need to be built: the target, the longest draft, where relative paths begin, other drafters.

    built : the drafters listed before, by name
    """

    target: Target
    k: int
    folder: Path
    built: dict[str, Drafter] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Return a path from the configuration, relative to the configuration's own folder."""
        return self.folder / name

    def texts(self, name: str | None) -> Texts | None:
        """Return the texts of a drafter, None without a name."""
        return None if name is None else Texts.load(self.path(name))

    def model(self, spec: str, dtype: str) -> Target:
        """Return the model of a drafter; a folder may be relative to the configuration's."""
        return load_target(located(spec, self.folder), self.target.device, dtype)

    def law_of(self, name: str, over: str) -> FlatDrafter | DeepLaws:
        """Return the drafter `over`, whose laws the drafter `name` reads; DrafterError if there is none with laws."""
        found = self.built.get(over)
        if isinstance(found, FlatDrafter | DeepLaws):
            return found
        with_laws = [other for other, drafter in self.built.items() if isinstance(drafter, FlatDrafter | DeepLaws)]
        what = "is no drafter listed before it" if found is None else "has no laws to read"
        raise DrafterError(
            f"drafter {name!r}: over names {over!r}, which {what}; allowed: {', '.join(with_laws) or 'none is listed'}"
        )


@dataclass(frozen=True)
class Kind:
    """A kind of drafter: its options, its class, and how one is made from (name, processing, options, surroundings)."""

    options: type
    drafter: type[Drafter]
    make: Callable[[str, Processing, Any, Surroundings], Drafter]


KINDS: dict[str, Kind] = {
    "lookup": Kind(
        lookup.Options, lookup.Lookup, lambda name, how, options, at: lookup.Lookup(name, how, at.k, options)
    ),
    "ngram": Kind(
        ngram.Options,
        ngram.NGram,
        lambda name, how, options, at: ngram.NGram(name, how, options, Texts.load(at.path(options.texts)), at.target),
    ),
    "retrieval": Kind(
        retrieval.TreeOptions,
        retrieval.Retrieval,
        lambda name, how, options, at: retrieval.Retrieval(
            name, how, at.k, options, at.texts(options.texts), at.target
        ),
    ),
    "retrieval-chain": Kind(
        retrieval.Options,
        retrieval.RetrievalChain,
        lambda name, how, options, at: retrieval.RetrievalChain(name, how, options, at.texts(options.texts), at.target),
    ),
    "dynamic-tree": Kind(
        dynamic_tree.Options,
        dynamic_tree.DynamicTree,
        lambda name, how, options, at: dynamic_tree.DynamicTree(
            name, how, at.k, at.path(options.checkpoint), options, at.target
        ),
    ),
    "exit": Kind(
        exit.Options, exit.EarlyExit, lambda name, how, options, at: exit.EarlyExit(name, how, options, at.target)
    ),
    "causal": Kind(
        causal.Options,
        causal.Causal,
        lambda name, how, options, at: causal.Causal(name, how, at.target, at.model(options.model, options.dtype)),
    ),
    "head": Kind(
        head.Options,
        head.TrainedHead,
        lambda name, how, options, at: head.TrainedHead(name, how, at.k, at.path(options.checkpoint), at.target),
    ),
    "several": Kind(
        several.Options,
        several.Several,
        lambda name, how, options, at: several.Several(name, how, at.k, options, at.law_of(name, options.over)),
    ),
    "tree": Kind(
        tree.Options,
        tree.StaticTree,
        lambda name, how, options, at: tree.StaticTree(name, how, at.k, options, at.law_of(name, options.over)),
    ),
    "truncated": Kind(
        truncated.Options,
        truncated.Truncated,
        lambda name, how, options, at: truncated.Truncated(name, how, at.path(options.checkpoint), at.target),
    ),
    "medusa": Kind(
        medusa.Options,
        medusa.Medusa,
        lambda name, how, options, at: medusa.Medusa(name, how, at.k, at.path(options.checkpoint), at.target),
    ),
}
