"""Several drafted sequences: the numpy rule against the whole sampler, the torch rule against numpy, recorded rows."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hedgelab import acceptance


def path_laws(seed, vocabulary, shape):
    """Laws (V,) after every path, of the target by the path alone and of the drafter by the path: law(path) -> p, q.

    shape : "mixed" for zeros and equal laws here and there, "certain" for one-hot targets, "greedy" for one-hot drafts
    """
    found = {}

    def law(path):
        if path not in found:
            rng = np.random.default_rng([seed, *(token + 1 for token in path)])
            p, q = rng.dirichlet(np.full(vocabulary, 0.7), 2)
            for each in (p, q):
                if rng.random() < 0.3:
                    each[rng.integers(vocabulary)] = 0
                    each /= each.sum()
            if rng.random() < 0.15:
                q = p.copy()
            if shape == "certain":
                p = np.eye(vocabulary)[rng.integers(vocabulary)]
            if shape == "greedy":
                q = np.eye(vocabulary)[rng.integers(vocabulary)]
            found[path] = p, q
        return found[path]

    return law


def round_law(law, vocabulary, k, m, fresh=False):
    """Joint law {(text of k + 1 tokens, accepted drafts): probability}: every set of sequences, every coin, residual.

    fresh : at every node m new drafts are drawn instead. What the round leaves open of the text is the target's.
    """
    joint = defaultdict(float)

    def go_on(path, accepted, chance):
        if len(path) == k + 1:
            joint[path, accepted] += chance
            return
        for token in np.flatnonzero(law(path)[0]):
            go_on((*path, int(token)), accepted, chance * law(path)[0][token])

    def verify(path, alive, drafted, chance):
        """alive : the places in `drafted` of sequences that equal the path so far."""
        depth = len(path)
        if depth == k:
            return go_on(path, k, chance)
        p, q = law(path)
        residual = p
        for place in alive:
            token = drafted[place][depth]
            keep = min(1.0, residual[token] / q[token])
            if keep > 0:
                behind = tuple(s for s in range(len(drafted)) if s in alive and drafted[s][depth] == token)
                decided((*path, token), behind, drafted, chance * keep)
            chance *= 1 - keep
            rest = np.maximum(residual - q, 0)
            if chance <= 0 or not rest.any():
                return None
            residual = rest / rest.sum()
        for token in np.flatnonzero(residual):
            go_on((*path, int(token)), depth, chance * residual[token])
        return None

    def decided(path, behind, drafted, chance):
        if fresh:
            draw_nodes(path, chance)
        else:
            verify(path, behind, drafted, chance)

    def draw_nodes(path, chance):
        depth = len(path)
        if depth == k:
            return verify(path, (), (), chance)
        q = law(path)[1]
        for drafts in itertools.product(np.flatnonzero(q).tolist(), repeat=m):
            verify(path, range(m), [(None,) * depth + (y,) for y in drafts], chance * np.prod(q[list(drafts)]))
        return None

    if fresh:
        draw_nodes((), 1.0)
        return joint
    one = {}
    for sequence in itertools.product(range(vocabulary), repeat=k):
        share = np.prod([law(sequence[:d])[1][sequence[d]] for d in range(k)])
        if share > 0:
            one[sequence] = share
    for drafted in itertools.product(one, repeat=m):
        verify((), tuple(range(m)), drafted, np.prod([one[sequence] for sequence in drafted]))
    return joint


def assert_is_the_sampler(law, joint, k, alpha_gamma):
    """Hold the text's law against p, and alpha and gamma along every text against the definition.

    alpha_gamma : alpha_gamma(p (k, V), q (k, V), path) -> alpha, gamma (k,)
    """
    texts = {}
    for (text, accepted), chance in joint.items():
        texts.setdefault(text, np.zeros(k + 1))[accepted] += chance
    assert sum(map(sum, texts.values())) == pytest.approx(1, abs=1e-12)
    reached = defaultdict(float)  # P(path so far, its depths accepted), and how often one more is
    onward = defaultdict(float)
    for text, by_accepted in texts.items():
        expected = np.prod([law(text[:d])[0][text[d]] for d in range(k + 1)])
        assert by_accepted.sum() == pytest.approx(expected, abs=1e-12)  # lossless, the whole text
        for d in range(k):
            reached[text[:d]] += by_accepted[d:].sum()
            onward[text[:d]] += by_accepted[d + 1 :].sum()
    compared = 0
    for text, by_accepted in texts.items():
        p, q = (np.array([law(text[:d])[i] for d in range(k)]) for i in (0, 1))
        alpha, gamma = alpha_gamma(p, q, np.array(text[:k]))
        for d in range(k):
            so_far = by_accepted[d:].sum()
            if so_far == 0:
                assert alpha[d] == 0
                assert np.isnan(gamma[d])
                continue
            if so_far < 1e-9:
                continue
            # P(position d accepted | depths before accepted, the whole text)
            assert alpha[d] == pytest.approx(by_accepted[d + 1 :].sum() / so_far, abs=1e-6)
            assert so_far * alpha[d] == pytest.approx(by_accepted[d + 1 :].sum(), abs=1e-12)
            assert reached[text[:d]] * gamma[d] == pytest.approx(onward[text[:d]], abs=1e-12)
            compared += 1
    return compared


SIZES = [(2, 3, 3), (3, 2, 3), (4, 2, 2), (3, 3, 2), (4, 1, 3), (2, 3, 1)]


@pytest.mark.parametrize(("vocabulary", "k", "m"), SIZES)
@pytest.mark.parametrize("shape", ["mixed", "certain", "greedy"])
@pytest.mark.parametrize("seed", range(3))
def test_sequences_are_the_enumerated_sampler(vocabulary, k, m, shape, seed):
    law = path_laws(seed, vocabulary, shape)
    joint = round_law(law, vocabulary, k, m)
    assert assert_is_the_sampler(law, joint, k, lambda p, q, path: acceptance.sequences(p, q, path, m)) >= 1


@pytest.mark.parametrize(("vocabulary", "k", "m"), [(4, 3, 3), (3, 3, 3)])
def test_the_largest_enumerations(vocabulary, k, m):
    rng = np.random.default_rng(8)
    sparse = path_laws(int(rng.integers(100)), vocabulary, "mixed")

    def law(path):  # drafters of at most two tokens, so that few sets of sequences are possible
        p, q = sparse(path)
        q = np.where(q >= np.sort(q)[-2], q, 0) if vocabulary == 4 else q
        return p, q / q.sum()

    joint = round_law(law, vocabulary, k, m)
    assert assert_is_the_sampler(law, joint, k, lambda p, q, path: acceptance.sequences(p, q, path, m)) > 20


@pytest.mark.parametrize(("vocabulary", "k", "m"), [(2, 3, 3), (3, 2, 3), (4, 2, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_fresh_drafts_at_every_node_are_recursive_rejection_at_every_depth(vocabulary, k, m, seed):
    law = path_laws(seed, vocabulary, "mixed")

    def alpha_gamma(p, q, path):
        alpha, gamma = acceptance.recursive(p, q, path, m)
        gone = np.cumprod(np.concatenate([[1.0], alpha[:-1]])) == 0  # not reached: the rule gives a number all the same
        return np.where(gone, 0, alpha), np.where(gone, np.nan, gamma)

    assert assert_is_the_sampler(law, round_law(law, vocabulary, k, m, fresh=True), k, alpha_gamma) >= 1
