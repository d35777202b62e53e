"""Random draft trees, and twins of what is done with them. The twins share no code with what they check."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import strategies as st

from traces.drafters.base import PAD, Trees


@st.composite
def node_lists(draw, words: int = 4, most: int = 8, deepest: int = 4):
    """One tree as [(token, parent)], parents first, children of one node different."""
    nodes: list[tuple[int, int]] = []
    depth: list[int] = []
    for _ in range(draw(st.integers(0, most))):
        parent = draw(st.integers(-1, len(nodes) - 1))
        level = 0 if parent < 0 else depth[parent] + 1
        free = [v for v in range(words) if (v, parent) not in nodes]
        if free and level < deepest:
            nodes.append((draw(st.sampled_from(free)), parent))
            depth.append(level)
    return nodes


def trees_of(lists, room: int = 0) -> Trees:
    """Trees of a batch, PAD behind the nodes of each and up to `room`."""
    room = max([room, *map(len, lists)])
    tokens = [[v for v, _ in nodes] + [PAD] * (room - len(nodes)) for nodes in lists]
    parent = [[p for _, p in nodes] + [PAD] * (room - len(nodes)) for nodes in lists]
    shape = len(lists), room
    return Trees(
        torch.tensor(tokens, dtype=torch.int64).view(shape), torch.tensor(parent, dtype=torch.int64).view(shape)
    )


def paths_of(nodes) -> list[tuple[int, ...]]:
    """The tokens from the root down to each node."""
    found: list[tuple[int, ...]] = []
    for token, parent in nodes:
        found.append(((*found[parent], token)) if parent >= 0 else (token,))
    return found


def lists_of(trees: Trees) -> list[list[tuple[int, int]]]:
    """The nodes of each text's tree; those of no text may stand behind a place without one."""
    found = []
    for tokens, parents in zip(trees.tokens.tolist(), trees.parent.tolist(), strict=True):
        count = sum(token != PAD for token in tokens)
        assert all(token == PAD for token in tokens[count:])
        found.append(list(zip(tokens[:count], parents[:count], strict=True)))
    return found


def naive_follow(paths, deepest: int, begin: int, depth: int, text, laws):
    """[(alpha, gamma)] at each depth of a round whose tree holds `paths` and whose first draft is for text[begin].

    laws[t] : of text[t]
    """
    found = []
    for d in range(depth):
        so_far, t = tuple(text[begin : begin + d]), begin + d
        children = [path[-1] for path in paths if len(path) == d + 1 and path[:-1] == so_far]
        if d >= deepest:
            found.append((0.0, 0.0))
        elif d and so_far not in paths:
            found.append((0.0, math.nan))
        else:
            found.append((float(text[t] in children), math.fsum(float(laws[t][v]) for v in children)))
    return found


def naive_tree(law_of, width: int, nodes: int, depth: int):
    """(paths, likeliest first; margin): level by level, by lists. law_of(path) -> log-probabilities.

    margin : by how much the choices that decide which nodes there are were decided
    """
    frontier, found, margin = [((), 0.0)], [], math.inf

    def cut(values, size):
        ordered = sorted(values, reverse=True)
        return ordered[size - 1] - ordered[size] if 0 < size < len(ordered) else math.inf

    for _ in range(depth):
        level = []
        for path, chance in frontier:
            law = [float(x) for x in law_of(path)]
            possible = [v for v in range(len(law)) if law[v] > -math.inf]
            margin = min(margin, cut([law[v] for v in possible], width))
            possible.sort(key=lambda v, law=law: -law[v])
            level += [((*path, v), chance + law[v]) for v in possible[:width]]
        margin = min(margin, cut([chance for _, chance in level], width))
        found += level
        frontier = sorted(level, key=lambda pair: -pair[1])[:width]
    margin = min(margin, cut([chance for _, chance in found], nodes))
    return [path for path, _ in sorted(found, key=lambda pair: -pair[1])[:nodes]], margin


def softmax_of(logits) -> np.ndarray:
    """A law in float64."""
    mass = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return mass / mass.sum()
