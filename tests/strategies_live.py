"""Chance that goes through every outcome, and toy worlds in which rounds are drafted and accepted, written naively.

`outcomes` enumerates whatever asks a `traces.live.chance.Chance`: one round, or a whole decode loop. `law_of_texts`
puts rounds together without going through their product.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from hedgelab.coins import COIN, DRAFT
from tests.strategies_trees import trees_of
from traces.live.accept import accept
from traces.live.draft import Draft
from traces.sampling import Dense, Law, OneHot, Reduced, index_of


class Outcome:
    """A `Chance` that yields one outcome: what `script` says, step by step, then always the first possible one.

    probability : of all that it answered so far. Asked twice for one (stream, place, nth) it fails: in real coins both
    answers would be the same uniform's.
    """

    def __init__(self, script=()):
        self.script, self.widths, self.probability, self.asked = list(script), [], 1.0, set()

    def draw(self, law: Law, place: int, stream: int, nth: int = 0) -> int:
        """Branch over the ids that can be drawn."""
        assert law.size == 1
        if isinstance(law, OneHot):
            assert int(law.token) >= 0
            return self._step(stream, place, nth, [(int(law.token), 1.0)])
        ids = range(law.probs.shape[1]) if isinstance(law, Dense) else law.ids.tolist()
        weights = law.probs[0].double().tolist()
        assert all(weight >= 0 for weight in weights)
        total = sum(weights)
        pairs = [(v, weight / total) for v, weight in zip(ids, weights, strict=True) if weight > 0]
        return self._step(stream, place, nth, pairs)

    def accept(self, chance: float, place: int, nth: int = 0) -> bool:
        """Branch over both answers that can be."""
        assert 0 <= chance <= 1
        pairs = [(answer, weight) for answer, weight in ((True, chance), (False, 1 - chance)) if weight > 0]
        return self._step(COIN, place, nth, pairs)

    def _step(self, stream, place, nth, pairs):
        assert (stream, place, nth) not in self.asked, f"asked twice: stream {stream}, place {place}, nth {nth}"
        self.asked.add((stream, place, nth))
        step = len(self.widths)
        self.widths.append(len(pairs))
        answer, weight = pairs[self.script[step] if step < len(self.script) else 0]
        self.probability *= weight
        return answer


def outcomes(run: Callable[[Outcome], Any]) -> Iterator[tuple[float, Any]]:
    """Yield (probability, run's result) for each way that the answers to `run` can fall, depth first."""
    script: list[int] = []
    while True:
        chance = Outcome(script)
        result = run(chance)
        yield chance.probability, result
        taken = script + [0] * (len(chance.widths) - len(script))
        while taken and taken[-1] + 1 == chance.widths[len(taken) - 1]:
            taken.pop()
        if not taken:
            return
        script = [*taken[:-1], taken[-1] + 1]


def joint(run: Callable[[Outcome], Any]) -> dict[Any, float]:
    """Return {result: probability}."""
    found: dict[Any, float] = defaultdict(float)
    for probability, result in outcomes(run):
        found[result] += probability
    return dict(found)


# --- toy worlds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """Laws over `words` ids behind every text, a pure function of the seed, the model's name and the text.

    greedy : the target takes its most likely token. zeros : about this share of a law's entries is 0
    """

    seed: int
    words: int
    greedy: bool = False
    zeros: float = 0.25

    @cache  # noqa: B019  # worlds are few and small
    def law(self, model: str, text: tuple[int, ...]) -> np.ndarray:
        """A model's law behind a text, (words,) float64."""
        rng = np.random.default_rng([self.seed, *model.encode(), 999, *text])
        weights = rng.integers(1, 9, self.words) * (rng.random(self.words) >= self.zeros)
        if not weights.any():
            weights[rng.integers(self.words)] = 1
        return weights / weights.sum()

    def target(self, text: tuple[int, ...]) -> np.ndarray:
        """The target's law, one-hot for a greedy one."""
        law = self.law("target", text)
        return np.eye(self.words)[law.argmax()] if self.greedy else law

    def target_laws(self, texts) -> Dense | OneHot:
        """The target's laws behind texts, as `accept` gets them."""
        rows = np.stack([self.target(text) for text in texts])
        return OneHot(torch.from_numpy(rows.argmax(1))) if self.greedy else dense(rows)

    def law_of_texts(self, length: int) -> dict[tuple[int, ...], float]:
        """{text: probability} of plain sampling."""
        found = {(): 1.0}
        for _ in range(length):
            found = {
                (*text, v): chance * float(p)
                for text, chance in found.items()
                for v, p in enumerate(self.target(text))
                if p > 0
            }
        return found


@dataclass(frozen=True)
class Toy:
    """A toy drafter.

    model : whose law it drafts from. form : "sequences" or "nodes" of `many` draws each (1: a chain), "tree" of the
    `many` likeliest tokens at each node, or "none". greedy : the law that is drawn from is one-hot. keeps : ids of a
    reduced vocabulary
    """

    form: str = "sequences"
    many: int = 1
    model: str = "a"
    greedy: bool = False
    keeps: tuple[int, ...] = ()

    def array(self, world: World, text: tuple[int, ...]) -> np.ndarray:
        """The law that is drawn from behind a text, over all ids."""
        law = world.target(text) if self.model == "target" else world.law(self.model, text)
        if self.keeps:
            law = np.array([p if v in self.keeps else 0.0 for v, p in enumerate(law)])
            law = law / law.sum() if law.any() else np.eye(world.words)[self.keeps[0]]
        return np.eye(world.words)[law.argmax()] if self.greedy else law

    @cache  # noqa: B019
    def law(self, world: World, text: tuple[int, ...]) -> Law:
        """The same as one of the three shapes."""
        law = self.array(world, text)
        if self.greedy:
            return OneHot(torch.tensor([int(law.argmax())]))
        if not self.keeps:
            return dense(law[None])
        ids = torch.tensor(self.keeps)
        return Reduced(torch.from_numpy(law[None, list(self.keeps)]), ids, index_of(ids, world.words))


def dense(rows: np.ndarray) -> Dense:
    """Laws (B, V) in float64: nothing is rounded to float32."""
    probs = torch.from_numpy(np.ascontiguousarray(rows, np.float64))
    return Dense(probs, probs.sum(-1))


def drafted(world: World, toy: Toy, text: tuple[int, ...], k: int, chance) -> Draft:
    """What a round drafts behind a text."""
    below: dict[tuple[int, ...], list[tuple[int, ...]]] = {}  # path -> the paths that were drawn behind it, in order
    level: list[tuple[int, ...]] = [()] * (toy.many if toy.form == "sequences" else 1)
    for d in range(k):
        nth = 0
        drawn = []
        for path in level:
            for rank in range(1 if toy.form == "sequences" else toy.many):
                if toy.form == "tree":
                    law = world.law(toy.model, (*text, *path))
                    token = int(np.argsort(-law, kind="stable")[rank])
                else:  # a round begun elsewhere asks for the same place with another depth
                    law = toy.law(world, (*text, *path))
                    token = chance.draw(law, len(text) + d, DRAFT, 64 * nth + d)
                nth += 1
                drawn.append((*path, token))
                below.setdefault(path, []).append((*path, token))
        level = drawn if toy.form == "sequences" else list(dict.fromkeys(drawn))
    paths = sorted({path for behind in below.values() for path in behind}, key=lambda path: (len(path), path))
    place = {path: node for node, path in enumerate(paths)}
    trees = trees_of([[(path[-1], place.get(path[:-1], -1)) for path in paths]])
    if toy.form == "tree":
        return Draft(trees)
    everywhere = [(), *paths]
    return Draft(
        trees,
        tuple(toy.law(world, (*text, *path)) for path in everywhere),
        tuple(tuple(place[child] for child in below.get(path, ())) for path in everywhere),
    )


def nothing() -> Draft:
    """The draft of a round that proposes nothing."""
    return Draft(trees_of([[]]))


def round_of(world: World, toy: Toy, text: tuple[int, ...], k: int, chance) -> tuple[tuple[int, ...], int]:
    """Return what one round commits behind a text, and how many of these tokens are accepted drafts."""
    draft = nothing() if toy.form == "none" else drafted(world, toy, text, k, chance)
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(draft.trees.tokens[0].tolist(), draft.trees.parent[0].tolist(), strict=True):
        paths.append((*paths[parent], token) if parent >= 0 else (token,))
    target = world.target_laws([text, *((*text, *path) for path in paths)])
    nodes, token = accept(draft, target, chance, len(text))
    assert [paths[node][:-1] for node in nodes] == [(), *(paths[node] for node in nodes)][: len(nodes)]
    return (*(paths[nodes[-1]] if nodes else ()), token), len(nodes)


Policy = Callable[[tuple[int, ...], int], Toy]  # (text so far, drafts accepted by the last round) -> drafter


def decode(world: World, policy: Policy, k: int, length: int, chance) -> tuple[int, ...]:
    """A naive decode loop: rounds until `length` tokens are written; return these."""
    text: tuple[int, ...] = ()
    accepted = 0
    while len(text) < length:
        tokens, accepted = round_of(world, policy(text, accepted), text, k, chance)
        text += tokens
    return text[:length]


def law_of_texts(world: World, policy: Policy, k: int, length: int) -> dict[tuple[int, ...], float]:
    """{text: probability} of `decode`, each round enumerated once for each text and outcome that it begins with."""
    waiting: dict[tuple[tuple[int, ...], int], float] = {((), 0): 1.0}
    done: dict[tuple[int, ...], float] = defaultdict(float)
    while waiting:
        text, accepted = min(waiting, key=lambda state: len(state[0]))
        weight = waiting.pop((text, accepted))
        toy = policy(text, accepted)
        for (tokens, last), chance in joint(lambda c, toy=toy, text=text: round_of(world, toy, text, k, c)).items():
            longer = (*text, *tokens)
            if len(longer) >= length:
                done[longer[:length]] += weight * chance
            else:
                waiting[longer, last] = waiting.get((longer, last), 0.0) + weight * chance
    return dict(done)


def distance(one: dict, other: dict) -> float:
    """The largest difference between two laws."""
    return max(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys())


# --- decoded texts ---------------------------------------------------------------------------------------------------


def same_texts(run, plain, close=1e-4, least=0.9):
    """Assert that texts are equal, each up to the first row at which rounding may choose; return tokens compared.

    close : top-2 margin of logits from which it cannot; by default of tiny models, whose float32 logits are of size 1
    least : share of the tokens that must be compared
    """
    compared = 0
    for one, other in zip(run.texts, plain.texts, strict=True):
        rows = np.flatnonzero(other.margin < close)
        end = 1 + int(rows[0]) if len(rows) else len(other.tokens)
        assert one.tokens[:end] == other.tokens[:end]
        compared += end
        if end == len(other.tokens):
            assert (one.stop, len(one.tokens)) == (other.stop, len(other.tokens))
    assert compared > least * (plain.rows + len(plain.texts))
    return compared
