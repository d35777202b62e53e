"""Replay is exact: its joint law of (text, accepted lengths) is that of real speculative sampling, by enumeration."""

import itertools
from collections import defaultdict
from functools import cache

import numpy as np
import pytest

import hedgelab as hl

VOCABULARY, K, LENGTH, DRAFTERS = 3, 3, 4, 2


TARGET_LAWS = (
    [0.5, 0.25, 0.25],
    [0.25, 0.5, 0.25],
    [0.25, 0.25, 0.5],
    [0.5, 0.5, 0.0],
    [0.0, 0.5, 0.5],
    [1.0, 0.0, 0.0],
)


def random_world(seed):
    """Return law(model, prefix): random, prefix-dependent; model 0 is the target. Some entries are 0, some laws
    equal p.

    Entries of p are powers of two and those of q multiples of 1/64: a trace's float32 then holds every alpha
    exactly, and the comparison can be to 1e-12.
    """

    @cache
    def law(model, prefix):
        rng = np.random.default_rng([seed, model, *[token + 1 for token in prefix]])
        if model == 0:
            return np.array(TARGET_LAWS[min(rng.integers(16) // 3, 5)])
        if rng.random() < 0.1:
            return law(0, prefix)
        return rng.multinomial(64, rng.dirichlet([0.7] * VOCABULARY)) / 64

    return law


def next_drafter(policy, last_accepted):
    """The drafter of the next round: fixed, or by what the last round accepted (None: first round)."""
    if policy == "fixed":
        return 1
    return 0 if last_accepted is not None and last_accepted >= 1 else 1


def law_of_real_decoding(law, policy):
    """Enumerate drafts, coins, residual samples and bonus tokens; return {(text, accepted lengths): probability}."""
    joint = defaultdict(float)

    def round_from(prefix, lengths, probability):
        if len(prefix) == LENGTH:
            joint[prefix, lengths] += probability
            return
        drafter = 1 + next_drafter(policy, lengths[-1] if lengths else None)
        draft_from(prefix, lengths, probability, drafter, 0)

    def draft_from(prefix, lengths, probability, drafter, accepted):
        if len(prefix) == LENGTH:  # the limit fell inside the drafts
            joint[prefix, (*lengths, accepted)] += probability
            return
        p = law(0, prefix)
        if accepted == K:  # all accepted: a bonus token from the target
            for token in np.flatnonzero(p):
                round_from((*prefix, int(token)), (*lengths, accepted), probability * p[token])
            return
        q = law(drafter, prefix)
        residual = np.maximum(p - q, 0)
        for draft in np.flatnonzero(q):
            keep = min(1.0, p[draft] / q[draft])
            if keep > 0:
                draft_from((*prefix, int(draft)), lengths, probability * q[draft] * keep, drafter, accepted + 1)
            if keep < 1:
                corrected = residual / residual.sum()
                for token in np.flatnonzero(corrected):
                    round_from(
                        (*prefix, int(token)),
                        (*lengths, accepted),
                        probability * q[draft] * (1 - keep) * corrected[token],
                    )

    round_from((), (), 1.0)
    return joint


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


def law_of_replay(law, policy):
    """Replay every text under every cell of the coins' space; return {(text, accepted lengths): probability}."""
    texts, weights, alphas, gammas, coins = [], [], [], [], []
    for text in itertools.product(range(VOCABULARY), repeat=LENGTH):
        probability = np.prod([law(0, text[:t])[text[t]] for t in range(LENGTH)])
        if probability == 0:
            continue
        alpha, gamma = np.empty((2, LENGTH, DRAFTERS))
        for t in range(LENGTH):
            for i in range(DRAFTERS):
                alpha[t, i], gamma[t, i] = hl.acceptance.chain(law(0, text[:t]), law(1 + i, text[:t]), text[t])
        cells = []
        for t in range(LENGTH):
            edges = np.unique([0.0, 1.0, *alpha[t]])
            cells.append([((low + high) / 2, high - low) for low, high in itertools.pairwise(edges)])
        for cell in itertools.product(*cells):
            texts.append(text)
            weights.append(probability * np.prod([width for _, width in cell]))
            coins.extend(coin for coin, _ in cell)
            alphas.append(alpha)
            gammas.append(gamma)
    trace = hl.Trace.from_arrays(
        token=np.concatenate(texts),
        alpha=np.concatenate(alphas),
        gamma=np.concatenate(gammas),
        offsets=np.arange(len(texts) + 1) * LENGTH,
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


@pytest.mark.parametrize("policy", ["fixed", "by outcome"])
@pytest.mark.parametrize("seed", range(3))
def test_joint_law_of_text_and_lengths(policy, seed):
    law = random_world(seed)
    real, replayed = law_of_real_decoding(law, policy), law_of_replay(law, policy)
    assert sum(real.values()) == pytest.approx(1.0, abs=1e-12)
    assert len(real) > 60  # a world rich enough to tell laws apart
    assert max(abs(real[key] - replayed[key]) for key in real.keys() | replayed.keys()) < 1e-12
    text_law = defaultdict(float)
    for (text, _), probability in real.items():
        text_law[text] += probability
    for text, probability in text_law.items():  # and the text has the target's law
        assert probability == pytest.approx(np.prod([law(0, text[:t])[text[t]] for t in range(LENGTH)]), abs=1e-12)


def test_gamma_in_place_of_alpha_would_be_seen(monkeypatch):
    """The comparison can fail: coins against gamma give another joint law."""
    law = random_world(0)
    real = law_of_real_decoding(law, "fixed")
    original = hl.acceptance.chain

    def gamma_for_alpha(p, q, token):
        _, gamma = original(p, q, token)
        return gamma, gamma

    monkeypatch.setattr(hl.acceptance, "chain", gamma_for_alpha)
    wrong = law_of_replay(law, "fixed")
    assert max(abs(real[key] - wrong[key]) for key in real.keys() | wrong.keys()) > 1e-3


def two_state_mat(coin_against):
    """MAT of theory.md's test case: uniform i.i.d. target on {a, b}; after a, q = p; after b, q = (1, 0); K = 2.

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
