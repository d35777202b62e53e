"""Token worlds: the sampler of one position, and whole decodings with their replay, enumerated."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hedgelab as hl
from experiments.settings import Arrays, Setting
from hedgelab.token_worlds import KINDS, TokenWorld, random_world, two_state_world

__all__ = ["POLICIES", "positions", "replays", "two_states"]

K = 3  # drafts a round of the replays
POLICIES = ("fixed", "by outcome")
# what the paper speaks of: a draft from q, one from a head fed by its own features, a certain draft, a tree's level
PUBLISHED = ("chain", "head", "one_hot", "tree")


def published(rule: str, p: NDArray[np.float64], law: NDArray[Any]) -> float:
    """Return the acceptance that the claim states: 1 - TV(p, q), or the mass of the children `law` (V,) of a tree."""
    return float(p[law.astype(bool)].sum()) if rule == "tree" else float(1 - 0.5 * np.abs(p - law).sum())


def positions(setting: Setting, seed: int) -> Arrays:
    """Return by kind (kinds,) the largest differences that the first two questions ask about, and the cases looked at.

    probability : of the enumerated sampler's acceptance and what is published; given_output : of p(x) alpha(x) and the
    sampler's P(output x, accepted), and of gamma and its sum over x
    """
    names = tuple(KINDS)
    off = {"probability": np.full(len(names), np.nan), "given_output": np.zeros(len(names))}
    cases = np.zeros(len(names), np.int64)
    for w in range(setting["worlds"]):
        world = random_world(1000 * seed + w, names, setting["vocabulary"])
        prefixes = [tuple(path.tolist()) for n in range(setting["depth"] + 1) for path in world.paths(n)[0]]
        for prefix, (i, drafter) in itertools.product(prefixes, enumerate(world.drafters)):
            p = world.target(prefix)
            for d in range(len(prefix) + 1 if drafter.deep else 1):
                if not drafter.in_tree(prefix, d):
                    continue
                joint = drafter.sampler(p, prefix, d)
                accepted = joint[:, 1].sum()
                for x in np.flatnonzero(p):
                    alpha, gamma = drafter.acceptance(p, prefix, d, int(x))
                    gap = max(abs(p[x] * alpha - joint[x, 1]), abs(gamma - accepted))
                    off["given_output"][i] = max(off["given_output"][i], gap)
                if names[i] in PUBLISHED:
                    gap = abs(accepted - published(drafter.rule, p, drafter.law(prefix, d)))
                    off["probability"][i] = np.fmax(off["probability"][i], gap)
                cases[i] += 1
    return {"kinds": np.array(names), "cases": cases, **off}


def _switch(last: int | None) -> int:
    """Return the drafter of the next round: 0 after a round that accepted something, else 1."""
    return 0 if last else 1


@hl.kernel
def _play(params, state, context, rng, probs):
    probs[:] = 0.0
    probs[0 if state[0, 0] > 0.0 else 1] = 1.0


@hl.kernel
def _observe(params, state, context, probs, pick, losses):
    state[0, 0] = 1.0 if losses[pick] < 1.0 - 1e-9 else 0.0  # the reward is (Y - 1) / k


_BY_OUTCOME = hl.Learner("by-outcome", lambda params, n: np.zeros((1, n)), _play, _observe, feedback="bandit")

Replayed = list[tuple[tuple[int, ...], tuple[int, ...], float]]


def _replayed(
    world: TokenWorld, length: int, k: int, coins: str, policy: str, prefix: tuple[int, ...] = ()
) -> Replayed:
    """Replay every path of `length` tokens after the prefix under every set of coins that the engine can tell apart.

    coins : what they are compared with, "alpha" or "gamma". Returns [(text, accepted of each round, probability)].
    """
    texts, chances, values, uniforms = [], [], [], []
    for path, chance in zip(*world.paths(length, prefix), strict=True):
        both = dict(zip(("alpha", "gamma"), world.acceptance(path, k, prefix), strict=True))
        accepted = np.nan_to_num(both[coins])  # where no such round is: never read
        cells = []
        for row in accepted:
            edges = np.unique(np.concatenate([[0.0, 1.0], row.ravel()]))
            wide = [pair for pair in itertools.pairwise(edges) if pair[1] - pair[0] > 1e-14]  # not mere rounding
            cells.append([((low + high) / 2, high - low) for low, high in wide])
        for cell in itertools.product(*cells):
            coin, width = np.array(cell).T
            texts.append(path)
            chances.append(float(chance * width.prod()))
            values.append(accepted)
            uniforms.append(coin)
    trace = hl.Trace.from_arrays(
        token=np.concatenate(texts),
        alpha=np.concatenate(values),
        gamma=np.concatenate(values),
        offsets=np.arange(len(texts) + 1) * length,
        domains=["world"] * len(texts),
        drafters=[str(i) for i in range(len(world.drafters))],
        k=k,
    )
    learner = hl.learner("fixed", drafter=0) if policy == "fixed" else _BY_OUTCOME
    run = hl.replay(trace, learner, k=k, coins=np.concatenate(uniforms))
    rounds = np.split(run.accepted, np.cumsum(run.sequence_rounds)[:-1])
    return [
        (tuple(text.tolist()), tuple(each.tolist()), chance)
        for text, each, chance in zip(texts, rounds, chances, strict=True)
    ]


def replays(setting: Setting, seed: int) -> Arrays:
    """Return (worlds, policies) total variation between real speculative sampling and its replay."""
    choices: dict[str, Callable[[int | None], int]] = {"fixed": lambda last: 0, "by outcome": _switch}
    distance = np.empty((setting["worlds"], len(POLICIES)))
    for w, (j, policy) in itertools.product(range(setting["worlds"]), enumerate(POLICIES)):
        world = random_world(1000 * seed + 500 + w, setting["kinds"].split())
        law: dict[Any, float] = defaultdict(float)
        for text, accepted, chance in _replayed(world, setting["length"], K, setting["coins"], policy):
            law[text, accepted] += chance
        distance[w, j] = _total_variation(world.decoding_law(setting["length"], K, choices[policy]), law)
    return {"distance": distance}


def _total_variation(one: Mapping[Any, float], other: Mapping[Any, float]) -> float:
    return 0.5 * sum(abs(one.get(key, 0.0) - other.get(key, 0.0)) for key in one.keys() | other.keys())


def _walked(steps: Mapping[int, list[tuple[int, int, float]]]) -> float:
    """Return the stationary mean of committed tokens, steps {token before: [(token after, committed, probability)]}."""
    move, length = np.zeros((len(steps), len(steps))), np.zeros(len(steps))
    for before, outcomes in steps.items():
        for after, committed, chance in outcomes:
            move[before, after] += chance
            length[before] += chance * committed
    values, vectors = np.linalg.eig(move.T)
    stay = np.real(vectors[:, np.argmax(values.real)])
    return float(stay @ length / stay.sum())


def two_states(setting: Setting, seed: int) -> Arrays:
    """Return MAT of the two-state world: of real rounds, and with coins of alpha and of gamma."""
    world, k = two_state_world(), setting["k"]
    real = {
        before: [(tokens[-1], len(tokens), chance) for tokens, chance in world.round_law(0, k, (before,)).items()]
        for before in (0, 1)
    }
    found = {"real": np.array(_walked(real))}
    for coins in ("alpha", "gamma"):
        steps = {
            before: [
                (text[accepted[0]], accepted[0] + 1, chance)
                for text, accepted, chance in _replayed(world, k + 1, k, coins, "fixed", (before,))
            ]
            for before in (0, 1)
        }
        found[coins] = np.array(_walked(steps))
    return found
