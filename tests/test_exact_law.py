"""Replay is exact: its joint law of (text, accepted lengths) is that of real speculative sampling, by enumeration."""

import itertools
from collections import defaultdict

import numpy as np
import pytest

import hedgelab as hl
from hedgelab.token_worlds import random_world

K = 3


def by_outcome(last_accepted):
    """The drafter of the next round, by what the last one accepted (None: first round)."""
    return 0 if last_accepted is not None and last_accepted >= 1 else 1


POLICIES = {"fixed": lambda last_accepted: 1, "by outcome": by_outcome}


@hl.kernel
def _play(params, state, context, rng, probs):
    # state[0, 0]: acceptance of the last round, state[1, 0]: whether there was one
    probs[:] = 0.0
    probs[0 if state[1, 0] == 1.0 and state[0, 0] > 1e-9 else 1] = 1.0


@hl.kernel
def _observe(params, state, context, probs, pick, losses):
    state[0, 0] = 1.0 - losses[pick]
    state[1, 0] = 1.0


BY_OUTCOME = hl.Learner("by-outcome", lambda params, n: np.zeros((2, n)), _play, _observe, feedback="bandit")


def law_of_replay(world, length, policy):
    """Replay every text under every cell of the coins' space; return {(text, accepted lengths): probability}."""
    texts, weights, alphas, gammas, coins = [], [], [], [], []
    for text, probability in zip(*world.paths(length), strict=True):
        alpha, gamma = world.acceptance(text, K)
        cells = []
        for t in range(length):
            edges = np.unique([0.0, 1.0, *alpha[t].ravel()])
            wide = [(low, high) for low, high in itertools.pairwise(edges) if high - low > 1e-14]  # not mere rounding
            cells.append([((low + high) / 2, high - low) for low, high in wide])
        for cell in itertools.product(*cells):
            texts.append(tuple(text.tolist()))
            weights.append(probability * np.prod([width for _, width in cell]))
            coins.extend(coin for coin, _ in cell)
            alphas.append(alpha)
            gammas.append(gamma)
    trace = hl.Trace.from_arrays(
        token=np.concatenate(texts),
        alpha=np.concatenate(alphas),
        gamma=np.concatenate(gammas),
        offsets=np.arange(len(texts) + 1) * length,
        domains=["world"] * len(texts),
        drafters=["a", "b"],
        k=K,
    )
    learner = hl.learner("fixed", drafter=1) if policy == "fixed" else BY_OUTCOME
    run = hl.replay(trace, learner, k=K, coins=coins)
    joint = defaultdict(float)
    ends = np.cumsum(run.sequence_rounds)
    for text, weight, begin, end in zip(texts, weights, ends - run.sequence_rounds, ends, strict=True):
        joint[text, tuple(int(a) for a in run.accepted[begin:end])] += weight
    return joint


def distance(real, replayed):
    return max(abs(real.get(key, 0.0) - replayed.get(key, 0.0)) for key in real.keys() | replayed.keys())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("seed", "kinds", "length"),
    [
        (0, ("chain", "chain"), 4),
        (1, ("chain", "chain"), 4),
        (2, ("chain", "chain"), 4),
        (3, ("head", "tree"), 3),
        (4, ("tree", "head"), 3),
        (5, ("one_hot", "tree"), 4),
        (6, ("recursive", "without_replacement"), 4),
        (7, ("independent", "recursive"), 3),
    ],
)
def test_joint_law_of_text_and_lengths(seed, kinds, length, policy):
    world = random_world(seed, kinds)
    real, replayed = world.decoding_law(length, K, POLICIES[policy]), law_of_replay(world, length, policy)
    assert sum(real.values()) == pytest.approx(1.0, abs=1e-12)
    assert len(real) > 20  # a world rich enough to tell laws apart
    # a trace's float32 holds these alphas exactly, but not those of recursive rejection; coins lie between them anyway
    assert distance(real, replayed) < 1e-12
    text_law = defaultdict(float)
    for (text, _), probability in real.items():
        text_law[text] += probability
    for text, probability in text_law.items():  # and the text has the target's law
        expected = np.prod([world.target(text[:t])[text[t]] for t in range(length)])
        assert probability == pytest.approx(expected, abs=1e-12)


def test_gamma_in_place_of_alpha_would_be_seen(monkeypatch):
    """The comparison can fail: coins against gamma give another joint law."""
    world = random_world(0, ("chain", "chain"))
    real = world.decoding_law(4, K, POLICIES["fixed"])
    original = hl.acceptance.chain

    def gamma_for_alpha(p, q, token):
        _, gamma = original(p, q, token)
        return gamma, gamma

    monkeypatch.setattr(hl.acceptance, "chain", gamma_for_alpha)
    assert distance(real, law_of_replay(world, 4, "fixed")) > 1e-3


def two_state_mat(coin_against):
    """MAT of a case with two states: uniform i.i.d. target on {a, b}; after a, q = p; after b, q = (1, 0); K = 2.

    The token before a round is a Markov chain. Its transitions and the mean committed length come from the first
    rounds of replays over all texts of k + 1 rows and all cells of the coins, so the value is exact.
    """
    move, length = np.zeros((2, 2)), np.zeros(2)
    for before in (0, 1):
        texts = np.array(list(itertools.product((0, 1), repeat=3)))
        cells = np.array(list(itertools.product((0.25, 0.75), repeat=3)))
        texts, cells = np.repeat(texts, len(cells), axis=0), np.tile(cells, (len(texts), 1))
        previous = np.column_stack([np.full(len(texts), before), texts[:, :-1]])
        alpha = np.where(previous == 0, 1.0, texts == 0)
        gamma = np.where(previous == 0, 1.0, 0.5)
        trace = hl.Trace.from_arrays(
            token=texts.ravel(),
            alpha=(alpha if coin_against == "alpha" else gamma).reshape(-1, 1),
            gamma=gamma.reshape(-1, 1),
            offsets=np.arange(len(texts) + 1) * 3,
            domains=["two-state"] * len(texts),
            drafters=["a"],
            k=2,
        )
        run = hl.replay(trace, "fixed", k=2, coins=cells.ravel())
        first = np.cumsum(run.sequence_rounds) - run.sequence_rounds
        committed = run.committed[first]
        length[before] = committed.mean()
        last = texts[np.arange(len(texts)), committed - 1]
        move[before] = np.bincount(last, minlength=2) / len(texts)
    stay = move[1, 0] / (move[1, 0] + move[0, 1])  # stationary probability of a
    return stay * length[0] + (1 - stay) * length[1]


def test_two_state_case_has_mat_31_14():
    assert two_state_mat("alpha") == pytest.approx(31 / 14, abs=1e-12)
    assert two_state_mat("gamma") == pytest.approx(37 / 16, abs=1e-12)  # the wrong coins, and how wrong they are
