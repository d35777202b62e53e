"""Several drafted sequences: the numpy rule against the whole sampler, the torch rule against numpy, recorded rows."""

import functools
import itertools
import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hedgelab import acceptance
from hedgelab.storage.manifest import Processing
from hedgelab.trace import open_trace
from tests.sizes import few
from tests.strategies import seeds
from tests.strategies_recording import WORDS, NaiveHead, naive_law, tiny_checkpoint, tiny_head, tiny_prompts
from tests.test_collect import config_of, rows_of, text_of
from traces.acceptance import alpha_gamma as chain_alpha_gamma
from traces.acceptance import several_alpha_gamma
from traces.collect import collect
from traces.config import ConfigError
from traces.sampling import Dense, OneHot, Reduced, index_of, process
from traces.targets import load_target


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


def drawn(rng, law):
    return int(min(np.searchsorted(np.cumsum(law), rng.random(), side="right"), np.flatnonzero(law)[-1]))


def simulate(rng, law, k, m):
    """One text of k + 1 tokens and the accepted drafts of the round that began it: draws and coins, nothing else."""
    drafted = []
    for _ in range(m):
        sequence = ()
        for _ in range(k):
            sequence += (drawn(rng, law(sequence)[1]),)
        drafted.append(sequence)
    text = ()
    while len(text) < k:
        p, q = law(text)
        taken, left = None, p
        for sequence in drafted:
            if sequence[: len(text)] != text:
                continue
            y = sequence[len(text)]
            if rng.random() * q[y] < left[y]:
                taken = y
                break
            left = np.maximum(left - q, 0)
            left = left / left.sum()
        if taken is None:
            text += (drawn(rng, left),)
            break
        text += (taken,)
    accepted = len(text) if taken is not None else len(text) - 1
    while len(text) <= k:
        text += (drawn(rng, law(text)[0]),)
    return text, accepted


@pytest.mark.parametrize(("m", "k"), [(4, 4), (9, 3)])
def test_alpha_and_gamma_of_simulated_rounds(m, k):
    """Path-dependent laws of 6 tokens: off by 4 standard errors with probability 6.3e-5 each, 29 numbers, seed fixed.

    Given the text and that a round goes on, it goes on once more with probability alpha, whatever alpha was before; and
    the tokens are p's.
    """
    rng, vocabulary, rounds = np.random.default_rng(17), 6, few(3000, 300)
    noise = path_laws(3, vocabulary, "mixed")

    @functools.cache
    def law(path):  # the drafter knows something of the target
        p, q = noise(path)
        return p, 0.5 * p + 0.5 * q

    off = {name: [] for d in range(k) for name in (("all", d), ("late", d), ("gamma", d))}
    tokens = [[] for _ in range(k + 1)]
    played = [simulate(rng, law, k, m) for _ in range(rounds)]
    p, q = (np.array([[law(text[:d])[i] for d in range(k)] for text, _ in played]) for i in (0, 1))
    alphas, gammas = acceptance.sequences(p, q, np.array([text[:k] for text, _ in played]), m)
    for (text, accepted), alpha, gamma in zip(played, alphas, gammas, strict=True):
        for d in range(min(accepted + 1, k)):
            off["all", d].append(float(accepted > d) - alpha[d])
            off["gamma", d].append(float(accepted > d) - gamma[d])
            if d and alpha[d - 1] < 0.9:
                off["late", d].append(float(accepted > d) - alpha[d])
        for d, token in enumerate(text):
            chance = law(text[:d])[0]
            tokens[d].append(np.log(chance[token]) - np.sum(chance * np.log(np.maximum(chance, 1e-300))))
    assert {accepted for _, accepted in played} == set(range(k + 1))
    for name, values in [*off.items(), *enumerate(tokens)]:
        if len(values) > 30:
            assert abs(np.mean(values)) <= 4 * np.std(values) / np.sqrt(len(values)), name
    assert sum(len(values) > few(100, 20) for values in off.values()) >= 2 * k


# --- numpy: shapes, extremes, errors -------------------------------------------------------------------------------


def test_one_sequence_is_the_chain_and_one_depth_is_recursive_rejection():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5), (2, 7, 3))
    token = rng.integers(0, 5, (7, 3))
    for got, want in zip(acceptance.sequences(p, q, token, 1), acceptance.chain(p, q, token), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-14)
    for m in (2, 5, 16):
        got = acceptance.sequences(p[:, :1], q[:, :1], token[:, :1], m)
        for value, want in zip(got, acceptance.recursive(p[:, 0], q[:, 0], token[:, 0], m), strict=True):
            np.testing.assert_allclose(value[:, 0], want, atol=1e-14)


def test_more_sequences_are_accepted_more_and_fresh_drafts_most():
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(6), (2, 40, 4))
    token = rng.integers(0, 6, (40, 4))
    before = np.zeros((40, 4))
    for m in (1, 2, 3, 8):
        alpha, _ = acceptance.sequences(p, q, token, m)
        fresh, _ = acceptance.recursive(p, q, token, m)
        reach, of_fresh = np.cumprod(alpha, axis=1), np.cumprod(fresh, axis=1)
        assert (before <= reach + 1e-12).all()
        assert (reach <= of_fresh + 1e-12).all()
        assert m == 1 or (reach < of_fresh - 1e-6).any()
        before = reach


def test_equal_laws_certain_laws_and_paths_that_nobody_drafts():
    same = np.array([[0.6, 0.3, 0.1]] * 3)
    for m in (1, 3, 40):
        for value in acceptance.sequences(same, same, [2, 0, 1], m):
            np.testing.assert_allclose(value, 1, atol=1e-12)
    one = np.eye(3)
    alpha, gamma = acceptance.sequences(same, one[[0, 0, 1]], [0, 1, 1], 5)  # equal drafts are one draft
    np.testing.assert_allclose(alpha, [1, 0, 0], atol=1e-14)
    np.testing.assert_allclose(gamma, [0.6, 0.6, np.nan], atol=1e-14)
    alpha, gamma = acceptance.sequences(one[[0, 1, 2]], same, [0, 1, 2], 2)  # a certain target
    np.testing.assert_allclose(alpha, gamma, atol=1e-14)
    # .6 and a second chance; then the second one survived an accepted first one with probability .6, and so on
    two = 0.6 / (1 - 0.4**2) * 0.6
    assert alpha[:2] == pytest.approx([1 - 0.4**2, 0.3 + two * 0.7 * 0.3], abs=1e-12)
    for tiny in (1e-12, 1e-300, 5e-324):
        alpha, gamma = acceptance.sequences([[tiny, 1.0]] * 2, [[0.5, 0.5]] * 2, [0, 0], 16)
        np.testing.assert_allclose(alpha, 1)
        alpha, gamma = acceptance.sequences([[0.5, 0.5]] * 2, [[tiny, 1.0]] * 2, [0, 0], 16)
        assert np.isfinite(alpha).all()
        assert alpha[0] > 0
        assert 0 < gamma[1] <= 1


def test_sequences_broadcast():
    rng = np.random.default_rng(2)
    p, q = rng.dirichlet(np.ones(4), (5, 1, 3)), rng.dirichlet(np.ones(4), (2, 1))
    token = rng.integers(0, 4, (5, 2, 3))
    alpha, gamma = acceptance.sequences(p, q, token, 3)
    assert alpha.shape == gamma.shape == (5, 2, 3)
    one = acceptance.sequences(p[4, 0], np.tile(q[1], (3, 1)), token[4, 1], 3)
    np.testing.assert_allclose(alpha[4, 1], one[0], atol=1e-15)
    np.testing.assert_allclose(gamma[4, 1], one[1], atol=1e-15)
    assert acceptance.sequences(p, q, token, 2000)[0].max() <= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.5, 0.5], [0.5, 0.5], 0, 2), "axis of depths"),
        (([[0.5, 0.5]], [[0.5, 0.5]], [0], 0), "drafts must be a whole number of at least 1, got 0"),
        (([[0.5, 0.5]], [[0.5, 0.5]], [0], True), "drafts must be"),
        (([[0.5, 0.5]], [[0.5, 0.6]], [0], 2), r"q\[0\] sums to 1.1"),
        (([[0.5, 0.5]], [[0.5, 0.5]], [2], 2), r"token must lie in \[0, 1\]"),
        (([[0.0, 1.0]], [[0.5, 0.5]], [0], 2), "probability 0 under p"),
    ],
)
def test_what_sequences_refuse(arguments, words):
    with pytest.raises(ValueError, match=words):
        acceptance.sequences(*arguments)


# --- torch ---------------------------------------------------------------------------------------------------------

V, KEPT = 9, [1, 2, 5, 7, 8]
HOWS = [Processing(1.0), Processing(0.7, 3), Processing(1.3, 0, 0.8), Processing(0.0)]


def wide(law, row):
    """One row of a law over all ids, float64, scaled."""
    if isinstance(law, OneHot):
        return np.eye(V)[int(law.token[row])]
    out = np.zeros(V)
    out[slice(None) if isinstance(law, Dense) else law.ids.numpy()] = law.probs[row].double().numpy()
    return out / out.sum()


def logits(rng, *shape):
    """Logits with ties, wide gaps and some ids of probability 0."""
    values = rng.choice([1.0, 3.0, 9.0]) * np.round(rng.normal(size=shape), 1)
    values[..., 1:] = np.where(rng.random((*shape[:-1], shape[-1] - 1)) < 0.15, -np.inf, values[..., 1:])
    return torch.tensor(values, dtype=torch.float32)


@given(
    seeds, st.sampled_from(HOWS), st.sampled_from(HOWS), st.booleans(), st.booleans(), st.integers(1, 16),
    st.integers(1, 4),
)  # fmt: skip
@example(5, HOWS[0], HOWS[3], False, True, 16, 3)
@example(6, HOWS[3], HOWS[0], True, False, 16, 3)
@settings(max_examples=few(60, 5))
def test_torch_equals_numpy_on_every_round_of_a_text(seed, p_how, q_how, reduced, flat, m, k):
    rng = np.random.default_rng(seed)
    batch, rows, ids = 3, k + 3, torch.tensor(KEPT)
    index = index_of(ids, V)
    fresh = torch.zeros(batch, 1, m, dtype=torch.float64)
    fresh[..., -1] = 1
    survivors = fresh[:, :0]
    laws, tokens, got = [], [], []
    for t in range(rows):
        begun = min(t + 1, k)
        p = process(logits(rng, batch, V), p_how)
        depths = 1 if flat else begun
        values = logits(rng, batch * depths, len(KEPT) if reduced else V)
        q = process(values, q_how, ids, index) if reduced else process(values, q_how)
        assert isinstance(q, OneHot if q_how.temperature == 0 else Reduced if reduced else Dense)
        token = torch.empty(batch, dtype=torch.int64)
        for b in range(batch):
            chance = wide(p, b)
            drafted = chance * (wide(q, b * depths) > 0)  # mostly a token that can be drafted
            chance = drafted if drafted.any() and rng.random() < 0.8 else chance
            token[b] = int(rng.choice(V, p=chance / chance.sum()))
        survivors = torch.cat([fresh, survivors], 1)[:, :k]
        alpha, gamma, survivors = several_alpha_gamma(p, q, token, survivors)
        assert alpha.dtype == gamma.dtype == torch.float32
        assert alpha.shape == gamma.shape == (batch, begun)
        laws.append((p, q, depths))
        tokens.append(token)
        got.append((alpha, gamma))
    for start in range(rows - k + 1):
        for b in range(batch):
            through = range(start, start + k)
            p = np.array([wide(laws[t][0], b) for t in through])
            q = np.array([wide(laws[t][1], b * laws[t][2] + (0 if flat else t - start)) for t in through])
            want = acceptance.sequences(p, q, [int(tokens[t][b]) for t in through], m)
            for which in (0, 1):
                have = [float(got[t][which][b, t - start]) for t in through]
                np.testing.assert_allclose(have, want[which], atol=3e-6)


@given(seeds, st.sampled_from(HOWS), st.sampled_from(HOWS), st.booleans())
@settings(max_examples=few(30, 5))
def test_one_draft_is_the_chain_bit_for_bit(seed, p_how, q_how, reduced):
    rng, ids = np.random.default_rng(seed), torch.tensor(KEPT)
    p = process(logits(rng, 4, V), p_how)
    values = logits(rng, 8, len(KEPT) if reduced else V)
    q = process(values, q_how, ids, index_of(ids, V)) if reduced else process(values, q_how)
    token = torch.tensor([int(wide(p, b).argmax()) for b in range(4)])
    alpha, gamma, after = several_alpha_gamma(p, q, token, torch.ones(4, 2, 1, dtype=torch.float64))
    want = chain_alpha_gamma(p, q, token)
    assert torch.equal(alpha.flatten(), want[0])
    assert torch.equal(gamma.flatten(), want[1])
    assert torch.equal(after[..., 0] > 0, alpha > 0)


def test_equal_laws_are_accepted_exactly_on_the_full_vocabulary():
    values = torch.randn(2, 49152, generator=torch.Generator().manual_seed(0)) * 4
    law = process(values, Processing(1.0))
    survivors = torch.zeros(2, 3, 16, dtype=torch.float64)
    survivors[..., -1] = 1
    for _ in range(3):
        alpha, gamma, survivors = several_alpha_gamma(law, law, law.probs.argmax(-1), survivors)
        assert bool((alpha == 1).all())
        assert bool((gamma == 1).all())
        torch.testing.assert_close(survivors.sum(-1), torch.ones(2, 3, dtype=torch.float64))


# --- recorded ------------------------------------------------------------------------------------------------------

IDS = sorted({0, *range(3, WORDS, 2)})
MADE = {"deep": ("eagle", (0, 2, 3)), "cut": ("truncated", (2,))}
OVER = [
    {"name": "deep", "kind": "head", "options": {"checkpoint": "deep"}},
    {"name": "cut", "kind": "truncated", "options": {"checkpoint": "cut"}},
]
READ = [(over, drafts, form) for over in MADE for drafts, form in ((4, "nodes"), (4, "sequences"), (1, "nodes"))]


def several(over, drafts, form, how):
    options = {"over": over, "drafts": drafts, "form": form}
    return {"name": f"{over}-{drafts}-{form}", "kind": "several", "processing": how, "options": options}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    tiny_prompts(folder / "prompts.jsonl", 6)
    target = load_target(str(folder / "target"))
    for name, (kind, taps) in MADE.items():
        tiny_head(folder / name, target, kind, taps, IDS)
    return folder


def slow_rounds(home, target, trace, p_how, q_how):
    """Yield (over, row, p (D, V), q (D, V), path (D,), how near a cut was) of every round: one by one, float64."""
    heads = {name: NaiveHead(home / name, target, *MADE[name]) for name in MADE}
    for s, begin, end in rows_of(trace):
        prompt, own = text_of(trace, s)
        text = [*prompt, *own]
        with torch.inference_mode():
            logits = target.model(torch.tensor([text])).logits[0, :, :WORDS].double().numpy()
        laws = [naive_law(row, **p_how) for row in logits]
        for name, head in heads.items():
            known = head.read(text)
            for row in range(begin, end):
                first, depth = len(prompt) + row - begin, min(trace.k, end - row)
                if name == "deep":
                    drafted = head.draft(text, first, depth, *known)
                else:  # its law depends on the prefix alone
                    drafted = [head.draft(text, first + d, 1, *known)[0] for d in range(depth)]
                q = np.full((depth, WORDS), -math.inf)
                q[:, head.ids] = drafted
                q, edges = zip(*(naive_law(values, **q_how) for values in q), strict=True)
                if q_how["temperature"] == 0:
                    edges = [np.diff(np.sort(values)[-2:])[0] for values in drafted]
                p = np.array([laws[first + d][0] for d in range(depth)])
                near = min(*edges, *(laws[first + d][1] for d in range(depth)))
                yield name, row, p, np.array(q), text[first + 1 : first + 1 + depth], near


@pytest.mark.parametrize(
    ("p_how", "q_how"),
    [
        ({"temperature": 0.8}, {"temperature": 1.2}),
        ({"temperature": 1.6}, {"temperature": 0.9, "top_k": 9}),  # EOS comes often: texts end early, rows move
        ({"temperature": 0.9}, {"temperature": 0.0}),
        ({"temperature": 0.0}, {"temperature": 0.8}),
        ({"temperature": 0.0}, {"temperature": 0.0}),
    ],
)
def test_recorded_rounds_are_those_of_a_slow_run(home, tmp_path, p_how, q_how):
    """Both forms over laws with and without depths, with a processing of their own; within 2e-4."""
    how = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}  # of the drafters that are read: another one
    drafters = [*OVER, *(several(*read, {"top_k": 0, "top_p": 1.0, **q_how}) for read in READ)]
    collect(config_of(home, p_how, how, drafters=drafters, max_new_tokens=13, batch=4), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.check() == []
    compared = near = unreachable = 0
    for over, row, p, q, path, edge in slow_rounds(home, load_target(str(home / "target")), trace, p_how, q_how):
        if edge < 2e-5:
            near += 1
            continue
        for drafts, form in ((4, "nodes"), (4, "sequences"), (1, "nodes")):
            i = trace.drafters.index(f"{over}-{drafts}-{form}")
            certain = q_how["temperature"] == 0
            rule = acceptance.recursive if form == "nodes" and not certain else acceptance.sequences
            want = rule(p, q, path, drafts)
            for values, expected in zip((trace.alpha, trace.gamma), want, strict=True):
                got = [float(values[row + d, d, i]) for d in range(len(path))]
                np.testing.assert_allclose(got, expected, atol=2e-4, err_msg=f"{over} {form} {row}")
            compared += len(path)
            unreachable += np.isnan(want[1]).sum()
    assert compared > 500
    assert near < compared / 60
    assert unreachable > 0
    assert (trace.proposed[:, -3:] == trace.k).all()


def test_one_draft_at_every_node_is_recorded_like_the_drafter_itself(home, tmp_path):
    how = {"temperature": 0.9}
    drafters = [*OVER, several("deep", 1, "nodes", how), several("cut", 1, "nodes", how)]
    collect(config_of(home, {"temperature": 0.8}, how, drafters=drafters, max_new_tokens=12), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    for _, begin, end in rows_of(trace):
        for t in range(begin, end):
            begun = min(t - begin + 1, trace.k)
            for values in (trace.alpha, trace.gamma):
                np.testing.assert_array_equal(values[t, :begun, 2], values[t, :begun, 0])
                np.testing.assert_array_equal(values[t, :begun, 3], np.repeat(values[t, :1, 1], begun))
    np.testing.assert_array_equal(trace.confidence[:, 2:], trace.confidence[:, :2])


def test_the_manifest_says_what_was_drafted_and_options_are_checked(home, tmp_path):
    how = {"temperature": 0.5}
    drafters = [OVER[0], several("deep", 16, "sequences", how), several("deep", 2, "nodes", {"temperature": 0.0})]
    config = config_of(home, {"temperature": 1.0}, how, drafters=drafters, max_new_tokens=4, k=3)
    collect(config, {}, tmp_path / "t")
    about = open_trace(tmp_path / "t").manifest.drafters[1]
    assert (about.kind, about.rule, about.depth) == ("several", "recursive", 3)
    assert about.processing.temperature == 0.5
    assert about.details == {"over": "deep", "drafts": 16, "form": "sequences"}
    for wrong, words in (({"drafts": 17}, "drafts"), ({"drafts": 0}, "drafts"), ({"form": "tree"}, "nodes")):
        entry = several("deep", 2, "nodes", how)
        entry["options"] |= wrong
        with pytest.raises(ConfigError, match=words):
            config_of(home, how, how, drafters=[OVER[0], entry])
