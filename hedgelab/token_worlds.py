r"""Token worlds that can be enumerated: a target and drafters over a tiny vocabulary, given by their laws.

What is claimed of acceptance, of estimators and of replay is checked here without sampling: `sampler_law` enumerates
the drafts, coins and residuals of the sampler of one position, and everything else is built on it. Nothing here uses
alpha or gamma, except `TokenWorld.acceptance`, which computes them by `hedgelab.acceptance`.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hedgelab import acceptance
from hedgelab.trace import Trace

__all__ = [
    "KINDS",
    "TokenWorld",
    "WorldDrafter",
    "accepting_for_ever",
    "random_world",
    "sampler_law",
    "two_state_world",
]

Prefix = tuple[int, ...]
Vector = NDArray[np.float64]
RULES = ("chain", "one_hot", "independent", "recursive", "tree")


def sampler_law(
    rule: str, p: ArrayLike, q: ArrayLike, *, drafts: int = 1, replacement: bool = True
) -> NDArray[np.float64]:
    """Return the joint law (V, 2) of (output token, whether it was an accepted draft) of one position.

    p : (V,) the target's law; q : (V,) the drafter's, one-hot for the rule one_hot, the children (V,) of a tree's node
    Enumerated as the sampler runs: drafts, coins, residuals. Costs V^drafts for the rule recursive.

    >>> sampler_law("chain", [0.5, 0.5], [1.0, 0.0]).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)
    joint = np.zeros((len(p), 2))

    def look_at(p: Vector, q: Vector, left: int, chance: float) -> None:
        if left == 0 or not q.any():  # no draft is left, or none was ever there: the output is the residual's
            joint[:, 0] += chance * p
            return
        residual = np.maximum(p - q, 0.0)
        for draft in np.flatnonzero(q):
            keep = min(1.0, p[draft] / q[draft]) if residual.any() else 1.0  # p and q are one law, up to rounding
            joint[draft, 1] += chance * q[draft] * keep
            if keep < 1.0:
                rest = q.copy()
                if not replacement:
                    rest[draft] = 0.0
                    rest = rest / rest.sum() if rest.any() else rest
                look_at(residual / residual.sum(), rest, left - 1, chance * q[draft] * (1.0 - keep))

    if rule in ("chain", "one_hot"):  # a certain draft is one from a one-hot law
        look_at(p, q, 1, 1.0)
    elif rule == "recursive":
        look_at(p, q, drafts, 1.0)
    elif rule == "independent":
        for token, draft in itertools.product(range(len(p)), repeat=2):
            joint[token, int(token == draft)] += p[token] * q[draft]
    elif rule == "tree":
        for token in range(len(p)):
            joint[token, int(q[token] > 0)] += p[token]
    else:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
    return joint


@dataclass(frozen=True)
class WorldDrafter:
    """A drafter of a token world.

    rule : chain, one_hot, independent, recursive or tree, see `hedgelab.acceptance`
    law : law(prefix, depth) -> (V,), for the draft after `prefix` in a round that began `depth` tokens earlier: q,
        one-hot for the rule one_hot, the bool children of the node for the rule tree
    deep : whether the law depends on depth; always so for trees, which grow from where the round began
    drafts, replacement : of the rule recursive
    """

    rule: str
    law: Callable[[Prefix, int], NDArray]
    deep: bool = False
    drafts: int = 1
    replacement: bool = True

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {self.rule!r}")
        if self.rule == "tree" and not self.deep:
            raise ValueError("a tree grows from where the round began: deep must be True")

    def in_tree(self, prefix: Prefix, depth: int) -> bool:
        """Return whether the last `depth` tokens of the prefix are a path in the tree of the round that began there."""
        begun = len(prefix) - depth
        return self.rule != "tree" or all(self.law(prefix[: begun + d], d)[prefix[begun + d]] for d in range(depth))

    def sampler(self, p: Vector, prefix: Prefix, depth: int) -> NDArray[np.float64]:
        """Return `sampler_law` at a position that the round's drafts have reached."""
        return sampler_law(self.rule, p, self.law(prefix, depth), drafts=self.drafts, replacement=self.replacement)

    def acceptance(self, p: Vector, prefix: Prefix, depth: int, token: int) -> tuple[float, float]:
        """Return (alpha, gamma) at this depth, by `hedgelab.acceptance`; gamma NaN where the prefix left the tree."""
        if not self.in_tree(prefix, depth):
            return 0.0, np.nan
        q = self.law(prefix, depth)
        if self.rule == "recursive":
            alpha, gamma = acceptance.recursive(p, q, token, self.drafts, self.replacement)
        elif self.rule == "one_hot":
            alpha, gamma = acceptance.one_hot(p, int(q.argmax()), token)
        else:
            rules = {"chain": acceptance.chain, "tree": acceptance.tree, "independent": acceptance.independent}
            alpha, gamma = rules[self.rule](p, q, token)
        return float(alpha), float(gamma)


@dataclass(frozen=True)
class TokenWorld:
    """A target and N drafters over `vocabulary` tokens, small enough to enumerate.

    target : target(prefix) -> p (V,), prefix a tuple of token ids

    >>> world = accepting_for_ever()
    >>> world.expected_length(0, k=2)
    2.0
    >>> tokens, chance = world.paths(2)
    >>> alpha, gamma = world.acceptance(tokens[0], k=2)
    >>> tokens[0].tolist(), float(chance[0]), alpha.shape
    ([0, 0], 0.5, (2, 1, 1))
    """

    name: str
    vocabulary: int
    target: Callable[[Prefix], Vector]
    drafters: tuple[WorldDrafter, ...]

    def paths(self, length: int, prefix: Prefix = ()) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return the P possible continuations of the prefix, (P, length) tokens, and their probabilities (P,)."""
        found = {prefix: 1.0}
        for _ in range(length):
            found = {
                (*path, int(token)): chance * float(p[token])
                for path, chance in found.items()
                for p in (self.target(path),)
                for token in np.flatnonzero(p)
            }
        tokens = np.array([path[len(prefix) :] for path in found], np.int64).reshape(len(found), length)
        return tokens, np.array(list(found.values()))

    def acceptance(
        self, path: ArrayLike, k: int, prefix: Prefix = ()
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return alpha and gamma, (T, D, N), of a path (T,) after the prefix, where rounds begin no earlier than row 0.

        D = k if a drafter is deep, else 1. Where a round has no such depth (d > t), or the path left a tree: 0 and NaN.
        """
        tokens = tuple(int(token) for token in np.asarray(path))
        depths = k if any(drafter.deep for drafter in self.drafters) else 1
        alpha = np.zeros((len(tokens), depths, len(self.drafters)))
        gamma = np.full(alpha.shape, np.nan)
        for t, token in enumerate(tokens):
            before = prefix + tokens[:t]
            p = self.target(before)
            for i, drafter in enumerate(self.drafters):
                for d in range(min(t + 1, depths) if drafter.deep else 1):
                    alpha[t, d, i], gamma[t, d, i] = drafter.acceptance(p, before, d, token)
                if not drafter.deep:
                    alpha[t, :, i], gamma[t, :, i] = alpha[t, 0, i], gamma[t, 0, i]
        return alpha, gamma

    def round_law(self, drafter: int, k: int, prefix: Prefix = ()) -> dict[Prefix, float]:
        """Return {committed tokens: probability} of a round of k drafts that begins after the prefix, by `sampler_law`.

        Tokens of 1 to k+1: accepted drafts, then the token of the first rejection, or the bonus token.

        >>> two_state_world().round_law(0, 1, prefix=(1,))
        {(0, 0): 0.25, (0, 1): 0.25, (1,): 0.5}
        """
        drafting = self.drafters[drafter]
        law: dict[Prefix, float] = {}

        def go_on(committed: Prefix, chance: float) -> None:
            depth = len(committed)
            here = prefix + committed
            p = self.target(here)
            joint = np.column_stack([p, 0 * p]) if depth == k else drafting.sampler(p, here, depth)
            for token in range(self.vocabulary):
                if joint[token, 1] > 0:
                    go_on((*committed, token), chance * float(joint[token, 1]))
                if joint[token, 0] > 0:  # a round that ends so was accepted up to here: no other way leads to it
                    law[(*committed, token)] = chance * float(joint[token, 0])

        go_on((), 1.0)
        return law

    def expected_length(self, drafter: int, k: int, prefix: Prefix = ()) -> float:
        """Return the exact mean of the tokens committed by a round that begins after the prefix: E Y in [1, k+1]."""
        return float(sum(len(tokens) * chance for tokens, chance in self.round_law(drafter, k, prefix).items()))

    def decoding_law(
        self, length: int, k: int, policy: Callable[[int | None], int]
    ) -> dict[tuple[Prefix, Prefix], float]:
        """Return {(text, accepted drafts of each round): probability} of decoding `length` tokens by real rounds.

        policy : the drafter of the next round, given the accepted drafts of the last one (None: the first round)
        A last round that reaches the limit is cut there: its drafts on the text are counted, the rest forgotten.
        """
        law: dict[tuple[Prefix, Prefix], float] = defaultdict(float)

        def go_on(text: Prefix, accepted: Prefix, chance: float) -> None:
            if len(text) == length:
                law[text, accepted] += chance
                return
            drafter = policy(accepted[-1] if accepted else None)
            for tokens, share in self.round_law(drafter, k, text).items():
                kept = tokens[: length - len(text)]
                go_on(text + kept, (*accepted, min(len(tokens) - 1, len(kept))), chance * share)

        go_on((), (), 1.0)
        return dict(law)

    def trace(self, length: int, k: int) -> tuple[Trace, NDArray[np.float64]]:
        """Return a trace with every path of `length` tokens as a sequence, and the paths' probabilities (P,).

        A trace holds float32: a weighted mean over its sequences is as exact as that.
        """
        tokens, chance = self.paths(length)
        values = [self.acceptance(path, k) for path in tokens]
        alpha, gamma = (np.concatenate(arrays) for arrays in zip(*values, strict=True))
        trace = Trace.from_arrays(
            token=tokens.ravel(),
            alpha=alpha,
            gamma=gamma,
            offsets=np.arange(len(tokens) + 1) * length,
            domains=[self.name] * len(tokens),
            drafters=[f"{drafter.rule}-{i}" for i, drafter in enumerate(self.drafters)],
            k=k,
            depths=[k if drafter.deep else 1 for drafter in self.drafters],
        )
        return trace, chance


# what a WorldDrafter of each kind is; "head" is a chain whose law depends on depth: a head fed by its own features
KINDS: dict[str, dict] = {
    "chain": {"rule": "chain"},
    "head": {"rule": "chain", "deep": True},
    "one_hot": {"rule": "one_hot"},
    "independent": {"rule": "independent"},
    "recursive": {"rule": "recursive", "drafts": 2},
    "without_replacement": {"rule": "recursive", "drafts": 3, "replacement": False},
    "tree": {"rule": "tree", "deep": True},
}


def random_world(seed: int, kinds: Sequence[str] = tuple(KINDS), vocabulary: int = 3) -> TokenWorld:
    """Return a world with random laws after every prefix: some entries are 0, some q equal p. One drafter a kind.

    kinds : of `KINDS`. Laws are fixed by the seed. Entries of p are powers of two and those of q multiples of 1/64, so
    that float32, and so a trace, holds alpha and gamma exactly where they are quotients and sums of those (not under
    recursive rejection).

    >>> random_world(0, ["chain"]).target(()).tolist() == random_world(0, ["chain", "tree"]).target(()).tolist()
    True
    """
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise ValueError(f"kinds must be some of {', '.join(KINDS)}, got {', '.join(unknown) or 'none'}")
    if vocabulary < 2:
        raise ValueError(f"vocabulary must be at least 2, got {vocabulary}")

    @functools.cache
    def target(prefix: Prefix) -> Vector:
        rng = np.random.default_rng([seed, 0, *(token + 1 for token in prefix)])
        pieces = [1.0]  # halved until they are enough
        while len(pieces) < vocabulary and rng.random() < 0.85:
            i = int(rng.integers(len(pieces)))
            pieces[i] /= 2
            pieces.append(pieces[i])
        return rng.permutation(pieces + [0.0] * (vocabulary - len(pieces)))

    def drafter(i: int, kind: str) -> WorldDrafter:
        what = KINDS[kind]

        @functools.cache
        def law(prefix: Prefix, depth: int) -> NDArray:
            depth = depth if what.get("deep", False) else 0
            rng = np.random.default_rng([seed, 1 + i, depth, *(token + 1 for token in prefix)])
            if kind == "tree":
                return rng.random(vocabulary) < 0.6
            if kind == "one_hot":
                return np.eye(vocabulary)[rng.integers(vocabulary)]
            if rng.random() < 0.1:
                return target(prefix)
            return rng.multinomial(64, rng.dirichlet([0.7] * vocabulary)) / 64

        return WorldDrafter(law=law, **what)

    drafters = tuple(drafter(i, kind) for i, kind in enumerate(kinds))
    return TokenWorld(f"random-{seed}", vocabulary, target, drafters)


def two_state_world() -> TokenWorld:
    """Return the case that tells coins against alpha from coins against gamma. Tokens 0 and 1, i.i.d. and fair.

    After 0 (or nothing) the drafter's law is the target's; after 1 it is certain of 0. With k = 2, MAT is 31/14; coins
    against gamma would give 37/16. The means of B and A over *tokens* are 2.375 and 2.3125: rounds do not begin at
    typical tokens.

    >>> world = two_state_world()
    >>> world.expected_length(0, k=2, prefix=(0,)), world.expected_length(0, k=2, prefix=(1,))
    (2.75, 2.0)
    """
    fair, certain = np.array([0.5, 0.5]), np.array([1.0, 0.0])

    def law(prefix: Prefix, depth: int) -> Vector:
        return certain if prefix and prefix[-1] == 1 else fair

    return TokenWorld("two-state", 2, lambda prefix: fair, (WorldDrafter("chain", law),))


def accepting_for_ever() -> TokenWorld:
    """Return the family in which the plug-in estimator is off by (k-1)/4 tokens; k = 2 is the smallest such case.

    The first token is 0 or 1, fair, and the drafter is certain of 0. After 0 every draft is accepted, after 1 none.
    E Y = 1 + k/2, as B and C have it; A has 1 + (k+1)/4, in the mean: true 2 and A 1.75 at k = 2, 1.5 tokens at k = 7.

    >>> [accepting_for_ever().expected_length(0, k) for k in (2, 7)]
    [2.0, 4.5]
    """
    fair, zero, one = np.array([0.5, 0.5]), np.array([1.0, 0.0]), np.array([0.0, 1.0])

    def target(prefix: Prefix) -> Vector:
        return zero if prefix else fair

    def law(prefix: Prefix, depth: int) -> Vector:
        return one if prefix and prefix[0] == 1 else zero

    return TokenWorld("accepting for ever", 2, target, (WorldDrafter("chain", law),))
