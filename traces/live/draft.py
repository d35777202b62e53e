"""Drafting: what a round proposes, from the drafter's call at its row.

The tree drafted here is the one that the recorder scores without drafting it: `traces.scoring` follows the text's own
tokens through it, here every node has to be computed. The same `process` makes laws, the same `top_ids` ranks.

- a law (`FlatDrafter`, `DeepLaws`): a chain, each token drawn before the next law is asked for, and certain at
  temperature 0
- `DeepDrafter`, `TreeDrafter`: what it proposed, cut to k
- a tree over a law: level by level the tokens of the ranks that have a place in it
- several drafts from a law: level by level, equal ones once; a node's candidates name it as often as it was drawn
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hedgelab.coins import DRAFT
from hedgelab.storage.manifest import Processing
from traces.acceptance import alpha_gamma
from traces.drafters.base import (
    PAD,
    Branches,
    DeepLaws,
    Drafter,
    DrafterError,
    FlatDrafter,
    Layers,
    Logits,
    Prefix,
    Proposal,
    Reading,
    TreeDrafter,
    Trees,
)
from traces.drafters.several import Several
from traces.drafters.tree import StaticTree
from traces.live.chance import Chance
from traces.sampling import Dense, Law, OneHot, faults, process, top_ids
from traces.trees import ROOT

__all__ = ["LARGEST", "Draft", "draft", "most_tokens", "overlaps", "prepare", "room"]

LARGEST = 256  # most tokens that fresh drafts at every node may be
DEEPEST = 64  # rounds draft less deep than this, or as deep


@dataclass(frozen=True)
class Draft:
    """What a round proposes for one text.

    trees : of one text (B = 1); no node where nothing is proposed. Children of one node are different tokens
    laws : None for certain tokens, accepted by membership (rules one_hot and tree). Else laws[0] is the law (one row)
        of what follows the root, laws[1 + node] of what follows each node. Only those of nodes that have candidates
        are read: others may be anything, and missing at the end
    candidates : of sampled drafts, [0] the root's and [1 + node] each node's: child nodes in the order in which they
        are looked at, a node twice if it was drawn twice; all drawn from the one law there. Of drafted sequences these
        are, at each node, the next nodes of all that pass through it, in the order of the sequences

    Raises ValueError for trees of several texts, laws without candidates, or candidates that are not the tree's.
    """

    trees: Trees
    laws: tuple[Law, ...] | None = None
    candidates: tuple[tuple[int, ...], ...] | None = None

    def __post_init__(self) -> None:
        shape = tuple(self.trees.tokens.shape)
        if shape[:1] != (1,) or shape != tuple(self.trees.parent.shape):
            raise ValueError(f"a draft is of one text: tokens {shape}, parent {tuple(self.trees.parent.shape)}")
        if (self.laws is None) != (self.candidates is None):
            raise ValueError("sampled drafts have laws and candidates, certain ones neither; one of the two is missing")
        _check_tree(self.trees)
        if self.laws is not None and self.candidates is not None:
            _check_sampled(self.trees, self.laws, self.candidates)


@torch.inference_mode()
def draft(
    drafter: Drafter,
    found: Logits | Proposal | Trees,
    prefix: Prefix,
    k: int,
    chance: Chance,
    place: int,
    layers: Layers | None = None,
) -> Draft:
    """Return what a round of one text drafts, at most k tokens deep.

    found : what the drafter's call at this row returned for `prefix`; of a `Reading` what that of its `over` did
    place : the row that the first drafted token is for. layers : the target's, of drafters with `needs_hidden`

    Raises DrafterError, naming drafter and depth, for logits that give no law, and for drafts that are too many.
    """
    if k <= 0:
        return Draft(_tree([], []))
    if isinstance(found, Proposal):
        tokens = [token for token in found.tokens[0, :k].tolist() if token != PAD]
        return Draft(_chain(tokens))
    if isinstance(found, Trees):
        return Draft(_cut(drafter, found, k))
    laws, depth = _Laws(drafter, found, prefix, layers), _depth(drafter, k)
    if isinstance(drafter, StaticTree):
        return Draft(_ranked(drafter.paths, laws, depth))
    if isinstance(drafter, Several) and drafter.processing.temperature > 0:
        _check_size(drafter, depth)
        return _several(drafter, laws, depth, chance, place)
    if isinstance(drafter, Reading) and not isinstance(drafter, Several):
        raise DrafterError(f"drafter {drafter.name!r}: not known how a reading of kind {drafter.kind} drafts live")
    return _drawn(drafter.processing, laws, depth, chance, place)


def room(drafter: Drafter, k: int) -> int:
    """Return the most nodes whose laws `draft` asks of the drafter's branches, beside the root's."""
    if not isinstance(drafter, FlatDrafter | DeepLaws | Reading):
        return 0
    depth = _depth(drafter, k)
    if isinstance(drafter, StaticTree):
        return len({path[:-1] for path in drafter.paths if 1 < len(path) <= depth})
    if isinstance(drafter, Several) and drafter.processing.temperature > 0:
        return min(sum(_widths(drafter, depth)[:-1]), LARGEST)
    return depth - 1


def most_tokens(drafter: Drafter, k: int) -> int:
    """Return the most tokens that a round of `drafter` drafts."""
    depth = _depth(drafter, k)
    if isinstance(drafter, StaticTree):
        return sum(len(path) <= depth for path in drafter.paths)
    if isinstance(drafter, Several) and drafter.processing.temperature > 0:
        return min(sum(_widths(drafter, depth)), LARGEST)
    return drafter.nodes if isinstance(drafter, TreeDrafter) else depth


def prepare(drafters: Iterable[Drafter], k: int, rounds: int | None = None) -> None:
    """Make drafters ready to draft live, up to k tokens deep; see `Drafter.prepare`."""
    rooms: dict[Drafter, int] = {}
    for drafter in drafters:
        law = drafter.over if isinstance(drafter, Reading) else drafter
        rooms[law] = max(rooms.get(law, 0), room(drafter, k))
    for drafter, nodes in rooms.items():
        drafter.prepare(nodes, rounds)


class _Laws:
    """The laws of a round, level by level, at first the root's alone.

    ids, index : as of `Logits`
    """

    def __init__(self, drafter: Drafter, found: Logits, prefix: Prefix, layers: Layers | None) -> None:
        law = drafter.over if isinstance(drafter, Reading) else drafter
        assert isinstance(law, FlatDrafter | DeepLaws)
        self._drafter, self._law, self._prefix, self._layers = drafter, law, prefix, layers
        self._branches: Branches | None = None
        self._depth = 0
        # of laws that depend on the depth, the first is of the round that begins here
        self._take(Logits(found.values.flatten(0, -2)[:1], found.ids, found.index))

    def grow(self, parent: Sequence[int], tokens: Sequence[int]) -> None:
        """Go on to a level of nodes with these tokens behind nodes `parent` of the present one."""
        if self._branches is None:
            self._branches = self._law.branches(self._prefix, self._layers)
        self._depth += 1
        self._take(self._branches.grow(torch.tensor(parent), torch.tensor(tokens)))

    def processed(self, processing: Processing) -> list[Law]:
        """Return the level's laws, one row each; the very same one for all nodes where all have one."""
        law = process(self._values, processing, self._ids, self._index)
        each = [law.rows(slice(node, node + 1)) for node in range(law.size)]
        return each * (self._nodes // law.size)

    def likeliest(self, count: int) -> list[list[int]]:
        """Return the level's `count` most likely tokens, by rank; PAD where there are not so many."""
        best = top_ids(self._values, count)
        if self._ids is not None:
            best = torch.where(best >= 0, self._ids[best.clamp(min=0)], PAD)
        each: list[list[int]] = best.tolist()
        return each * (self._nodes // len(each))

    def _take(self, found: Logits) -> None:
        self._ids, self._index, self._nodes = found.ids, found.index, len(found.values)
        # one law for all nodes, expanded, is processed once
        self._values = found.values if found.values.stride(0) else found.values[:1]
        if wrong := faults(self._values):
            what = next(iter(wrong.values()))
            raise DrafterError(f"drafter {self._drafter.name!r}: its logits hold {what} at depth {self._depth}")


def _drawn(processing: Processing, laws: _Laws, depth: int, chance: Chance, place: int) -> Draft:
    """Draw a chain; at temperature 0 it is certain."""
    tokens: list[int] = []
    each: list[Law] = []
    for d in range(depth):
        if d:
            laws.grow([0], tokens[-1:])
        each += laws.processed(processing)
        law = each[d]
        tokens.append(int(law.token) if isinstance(law, OneHot) else chance.draw(law, place + d, DRAFT, _nth(d, 0)))
    if processing.temperature == 0:
        return Draft(_chain(tokens))
    return Draft(_chain(tokens), tuple(each), (*((node,) for node in range(depth)), ()))


def _several(drafter: Several, laws: _Laws, depth: int, chance: Chance, place: int) -> Draft:
    """Draw several tokens behind every node, or one behind each sequence's own; equal nodes are one."""
    many, sequences = drafter.options.drafts, drafter.options.form == "sequences"
    tokens: list[int] = []
    parents: list[int] = []
    each: list[Law] = []
    candidates: list[list[int]] = [[]]
    level, standing = [ROOT], [0] * many  # nodes whose laws are known; where among them each sequence stands
    for d in range(depth):
        law = laws.processed(drafter.processing)
        each += law
        asked = standing if sequences else [row for row in range(len(level)) for _ in range(many)]
        first, fresh = len(tokens), dict[tuple[int, int], int]()  # (row of the parent, token) -> place in the new level
        standing = []
        for nth, row in enumerate(asked):
            token = chance.draw(law[row], place + d, DRAFT, _nth(d, nth))
            if (row, token) not in fresh:
                fresh[row, token] = len(fresh)
                tokens.append(token)
                parents.append(level[row])
                candidates.append([])
            standing.append(fresh[row, token])
            candidates[1 + level[row]].append(first + fresh[row, token])
        level = list(range(first, len(tokens)))
        if d + 1 < depth:
            laws.grow([row for row, _ in fresh], tokens[first:])
    return Draft(_tree(tokens, parents), tuple(each), tuple(map(tuple, candidates)))


def _nth(depth: int, nth: int) -> int:
    """Return what tells apart the draws that rounds begun at different rows make for one row.

    A policy may look at drafts that were refused (the mean overlap of a whole block). The draws of the next round must
    not depend on what it has seen, or drafts would no longer follow the law that they are accepted by.
    """
    return DEEPEST * nth + depth


def _ranked(paths: Sequence[tuple[int, ...]], laws: _Laws, depth: int) -> Trees:
    """Return the tree of the tokens at paths of ranks; a rank that no token has ends its paths."""
    children: dict[tuple[int, ...], list[int]] = {}
    for path in paths:
        if len(path) <= depth:
            children.setdefault(path[:-1], []).append(path[-1])
    tokens: list[int] = []
    parents: list[int] = []
    level = [((), ROOT)] if children else list[tuple[tuple[int, ...], int]]()  # (path, node) of those with children
    while level:
        best = laws.likeliest(1 + max(max(children[path]) for path, _ in level))
        above: list[int] = []
        below: list[tuple[tuple[int, ...], int]] = []
        for row, (path, node) in enumerate(level):
            for rank in children[path]:
                if best[row][rank] == PAD:
                    continue
                if (*path, rank) in children:
                    above.append(row)
                    below.append(((*path, rank), len(tokens)))
                tokens.append(best[row][rank])
                parents.append(node)
        level = below
        if level:
            laws.grow(above, [tokens[node] for _, node in level])
    return _tree(tokens, parents)


def _cut(drafter: Drafter, trees: Trees, k: int) -> Trees:
    """Return a text's tree without the nodes at depth k and deeper."""
    if trees.faulty is not None and bool(trees.faulty.any()):
        raise DrafterError(f"drafter {drafter.name!r}: a law in its tree holds NaN")
    tokens: list[int] = []
    parents: list[int] = []
    fresh, depth = {ROOT: ROOT}, {ROOT: -1}  # of the nodes that stay, their new places and how deep they are
    for node, (token, parent) in enumerate(zip(trees.tokens[0].tolist(), trees.parent[0].tolist(), strict=True)):
        if token != PAD and parent in fresh and depth[parent] + 1 < k:
            fresh[node], depth[node] = len(tokens), depth[parent] + 1
            tokens.append(token)
            parents.append(fresh[parent])
    return _tree(tokens, parents)


def _depth(drafter: Drafter, k: int) -> int:
    return min(k, drafter.k) if isinstance(drafter, DeepLaws | Reading | TreeDrafter) else k


def _widths(drafter: Several, depth: int) -> list[int]:
    """Return the most nodes at each depth."""
    many = drafter.options.drafts
    return [many if drafter.options.form == "sequences" else many ** (d + 1) for d in range(depth)]


def _check_size(drafter: Several, depth: int) -> None:
    nodes = sum(_widths(drafter, depth))
    if drafter.options.form == "nodes" and nodes > LARGEST:
        raise DrafterError(
            f"drafter {drafter.name!r}: {drafter.options.drafts} drafts at every node are {nodes} tokens at depth "
            f"{depth}; allowed: {LARGEST}. Draft less deep, fewer at a node, or sequences"
        )


def _chain(tokens: Sequence[int]) -> Trees:
    return _tree(tokens, range(-1, len(tokens) - 1))


def _tree(tokens: Sequence[int], parents: Iterable[int]) -> Trees:
    both: list[Tensor] = [torch.tensor([list(part)], dtype=torch.int64) for part in (tokens, parents)]
    return Trees(*both)


def _check_tree(trees: Trees) -> None:
    """Raise ValueError unless parents stand before their children, and children of one node are different tokens."""
    tokens, parent = trees.tokens[0].tolist(), trees.parent[0].tolist()
    seen = set()
    for node, (token, above) in enumerate(zip(tokens, parent, strict=True)):
        if token == PAD:
            continue
        if token < 0:
            raise ValueError(f"node {node} holds token {token}; allowed: an id, or {PAD} for no node")
        if not ROOT <= above < node or (above != ROOT and tokens[above] == PAD):
            raise ValueError(f"node {node}: its parent is {above}; allowed: a node before it, or {ROOT} for the root")
        if (above, token) in seen:
            raise ValueError(f"node {node}: its parent {above} has another child with token {token}")
        seen.add((above, token))


def _check_sampled(trees: Trees, laws: tuple[Law, ...], candidates: tuple[tuple[int, ...], ...]) -> None:
    """Raise ValueError unless every node is a candidate of its parent, and of no other, and has a law of one row."""
    tokens, parent = trees.tokens[0].tolist(), trees.parent[0].tolist()
    if len(candidates) != 1 + len(tokens):
        raise ValueError(f"{len(candidates)} lists of candidates for the root and {len(tokens)} nodes")
    missing = {node for node, token in enumerate(tokens) if token != PAD}
    for above, children in enumerate(candidates, start=ROOT):
        for node in children:
            if not 0 <= node < len(tokens) or tokens[node] == PAD or parent[node] != above:
                raise ValueError(f"candidate {node} is no child of node {above}")
        missing.difference_update(children)
        if children and (above + 1 >= len(laws) or laws[above + 1].size != 1):
            given = f"one of {laws[above + 1].size} rows" if above + 1 < len(laws) else "none"
            raise ValueError(f"node {above} has candidates and needs a law of one row, got {given}")
    if missing:
        raise ValueError(f"nodes {sorted(missing)} are candidates of no node: they could not be accepted")


def overlaps(each: Draft, law: Dense | OneHot) -> list[float]:
    """Return gamma at the root and at every other node that has children, whether or not the path came there.

    law : the target's, of 1 + M rows. Of sampled drafts the overlap of the first one at each node with the target's
    law, of certain ones the target's mass on the node's children.
    """
    tokens, parents = each.trees.tokens[0].tolist(), each.trees.parent[0].tolist()
    children: dict[int, list[int]] = {}
    for token, parent in zip(tokens, parents, strict=True):
        children.setdefault(parent, []).append(token)
    found = []
    for node, below in children.items():
        here = law.rows(torch.tensor([1 + node]))
        # each token on the law's device
        drafted = torch.tensor(below, device=(here.token if isinstance(here, OneHot) else here.probs).device)
        if each.laws is not None:
            gamma = alpha_gamma(here, each.laws[1 + node], drafted[:1])[1]
            found.append(float(gamma))
        else:
            found.append(min(1.0, sum(float(here.at(token)) for token in drafted.split(1))))
    return found
