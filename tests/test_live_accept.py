"""What a round commits: its law by enumeration of every outcome, its acceptance against the formulas, its coins."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hedgelab import acceptance
from hedgelab.coins import COIN, DRAFT, TARGET, uniforms
from tests.sizes import few
from tests.strategies_live import (
    Toy,
    World,
    decode,
    dense,
    distance,
    joint,
    law_of_texts,
    nothing,
    outcomes,
    round_of,
)
from tests.strategies_trees import trees_of
from traces.live import accept as accepting
from traces.live import chance as chances
from traces.live.accept import accept
from traces.live.chance import Coins
from traces.live.draft import Draft
from traces.sampling import Dense, OneHot, Reduced, draw, index_of
from traces.trees import PAD

TOYS = {
    "chain": Toy(),
    "greedy chain": Toy(greedy=True),
    "greedy sequences": Toy(many=3, greedy=True),
    "reduced chain": Toy(keeps=(0, 2)),
    "one id": Toy(keeps=(1,)),
    "tree": Toy("tree", 2),
    "whole tree": Toy("tree", 3),
    "sequences": Toy(many=2),
    "reduced sequences": Toy(many=2, keeps=(1, 2)),
    "nodes": Toy("nodes", 2, keeps=(0, 1)),
    "itself": Toy(model="target"),
    "itself, twice": Toy(many=2, model="target"),
    "none": Toy("none"),
}


def always(toy):
    return lambda text, accepted: toy


# --- the law of the text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("name", TOYS)
def test_the_text_is_the_targets(name, greedy):
    """All outcomes of all rounds, to 1e-12."""
    for seed, k in ((0, 1), (1, 2)):
        world = World(seed, 3, greedy)
        assert distance(law_of_texts(world, always(TOYS[name]), k, 3), world.law_of_texts(3)) < 1e-12


@pytest.mark.parametrize(
    ("words", "k", "toy"),
    [(3, 3, Toy()), (2, 3, Toy(many=2)), (2, 2, Toy(many=3)), (2, 2, Toy("nodes", 2)), (2, 1, Toy("nodes", 4))],
)
def test_the_text_is_the_targets_in_longer_rounds(words, k, toy):
    world = World(words + k, words, zeros=0.1)
    assert distance(law_of_texts(world, always(toy), k, 3), world.law_of_texts(3)) < 1e-12


def by_outcome(text, accepted):
    """Which drafter drafts depends on what was committed, and on how much of it was drafted."""
    names = ["chain", "sequences", "tree", "none", "nodes", "greedy chain", "reduced chain"]
    return TOYS[names[(sum(text) + 2 * accepted + len(text)) % len(names)]]


@pytest.mark.parametrize("greedy", [False, True])
def test_mixed_drafters(greedy):
    world = World(7, 3, greedy)
    assert distance(law_of_texts(world, by_outcome, 2, 4), world.law_of_texts(4)) < 1e-12


@pytest.mark.parametrize("policy", [by_outcome, always(TOYS["sequences"]), always(TOYS["chain"])])
def test_a_whole_loop(policy):
    """All at once: no two decisions of a text share a coin, and the loop of rounds is the sum over rounds."""
    world = World(3, 2, zeros=0.1)
    toys = [TOYS["chain"], TOYS["sequences"], TOYS["tree"]]
    mixed = policy if policy is not by_outcome else lambda text, accepted: toys[(sum(text) + accepted) % 3]
    found = joint(lambda chance: decode(world, mixed, 2, 3, chance))
    assert distance(found, world.law_of_texts(3)) < 1e-12


def test_the_target_as_its_own_drafter_is_accepted():
    for name, k in itertools.product(("itself", "itself, twice"), (1, 2, 3)):
        world = World(4, 3)
        accepted = joint(lambda chance, k=k, w=world, t=TOYS[name]: round_of(w, t, (), k, chance)[1])
        assert accepted == {k: pytest.approx(1, abs=1e-12)}


# --- how much is accepted ------------------------------------------------------------------------------------------


def of_rounds(world, toy, k):
    """alpha(path) and gamma(path) at depths 0 .. k - 1 of a round at the text's beginning, from all its outcomes."""
    rounds = joint(lambda chance: round_of(world, toy, (), k, chance))

    def mass(keep):
        return math.fsum(weight for (tokens, accepted), weight in rounds.items() if keep(tokens, accepted))

    def of(path):
        alpha, gamma = [], []
        for d in range(k):
            came = mass(lambda t, a, d=d: a >= d and t[:d] == path[:d])
            here = mass(lambda t, a, d=d: a >= d and t[: d + 1] == path[: d + 1])
            on = mass(lambda t, a, d=d: a > d and t[: d + 1] == path[: d + 1])
            go_on = mass(lambda t, a, d=d: a > d and t[:d] == path[:d])
            alpha.append(on / here if here > 0 else math.nan)
            gamma.append(go_on / came if came > 0 else math.nan)
        return np.array(alpha), np.array(gamma)

    return of


def formulas(world, toy, k, path):
    """The same by `hedgelab.acceptance`."""
    p = np.stack([world.target(path[:d]) for d in range(k)])
    if toy.form == "tree":
        children = np.zeros(p.shape, bool)
        for d in range(k):
            children[d, np.argsort(-world.law(toy.model, path[:d]), kind="stable")[: toy.many]] = True
        return acceptance.tree(p, children, path)
    q = np.stack([toy.array(world, path[:d]) for d in range(k)])
    if toy.many == 1:
        return acceptance.chain(p, q, path)
    if toy.form == "nodes":
        return acceptance.recursive(p, q, path, toy.many)
    return acceptance.sequences(p, q, path, toy.many)


ACCEPTED = [
    (3, 2, Toy()), (4, 2, Toy(keeps=(0, 1, 3))), (3, 3, Toy(greedy=True)), (4, 2, Toy("tree", 2)),
    (2, 2, Toy("nodes", 2)), (3, 1, Toy("nodes", 3)), (3, 2, Toy(many=2)), (2, 2, Toy(many=3)), (2, 3, Toy(many=2)),
    (3, 2, Toy(many=2, greedy=True)),
]  # fmt: skip


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize(("words", "k", "toy"), ACCEPTED)
def test_alpha_and_gamma(words, k, toy, greedy):
    """At every depth that a round can come to, on every path, to 1e-12."""
    world, held = World(20 + words, words, greedy, zeros=0.1), 0
    of = of_rounds(world, toy, k)
    for path in world.law_of_texts(k):
        alpha, gamma = of(path)
        expected, of_prefix = formulas(world, toy, k, path)
        seen = ~np.isnan(alpha)
        assert seen[0]
        np.testing.assert_allclose(alpha[seen], expected[seen], rtol=0, atol=1e-12)
        np.testing.assert_allclose(gamma[seen], of_prefix[seen], rtol=0, atol=1e-12)
        held += int(seen.sum())
    assert greedy or held > k


# --- random laws and trees -----------------------------------------------------------------------------------------


@settings(max_examples=few(30, 5))
@given(
    st.integers(0, 2**32 - 1), st.integers(2, 3), st.integers(1, 2), st.booleans(), st.sampled_from([0.0, 0.3, 0.7]),
    st.sampled_from(["chain", "sequences", "nodes", "tree", "greedy chain"]),
)  # fmt: skip
def test_random_worlds(seed, words, k, greedy, zeros, name):
    world = World(seed, words, greedy, zeros)
    assert distance(law_of_texts(world, always(TOYS[name]), k, 2), world.law_of_texts(2)) < 1e-12


@st.composite
def sampled_drafts(draw_from):
    """(V, tree as [(token, parent)], candidates, seed of the laws): children in any order, some drawn repeatedly."""
    words = draw_from(st.sampled_from([2, 4, 300]))
    nodes, candidates = [], [[]]
    for _ in range(draw_from(st.integers(0, 7))):
        parent = draw_from(st.integers(-1, len(nodes) - 1))
        token = draw_from(st.integers(0, words - 1))
        if (token, parent) not in nodes:
            candidates[1 + parent].append(len(nodes))
            nodes.append((token, parent))
            candidates.append([])
    for each in candidates:
        if each:
            each += draw_from(st.lists(st.sampled_from(each), max_size=3))
            each[:] = draw_from(st.permutations(each))
    return words, nodes, candidates, draw_from(st.integers(0, 2**32 - 1))


def naive_accept(nodes, candidates, p, q, seed, place):
    """(path, token) by dictionaries and loops, from hedgelab's uniforms. q None: certain drafts."""

    def uniform(stream, position, nth=0):
        return float(uniforms(seed, stream, 5, position, 1, nth * 65536)[0])

    at, path = -1, []
    while True:
        row, law = place + len(path), dict(enumerate(map(float, p[1 + at])))
        found = None
        for nth, node in enumerate(candidates[1 + at] if q is not None else []):
            y = nodes[node][0]
            other = q[1 + at]
            if uniform(COIN, row, nth) < min(1.0, law[y] / float(other[y])):
                found = node
                break
            rest = {v: max(weight - float(other[v]), 0.0) for v, weight in law.items()}
            scale = sum(rest.values())
            law = {v: weight / scale for v, weight in rest.items()} if scale > 0 else law
        if found is None:
            aim, edges = uniform(TARGET, row + 1) * sum(law.values()), itertools.accumulate(law.values())
            token = next(v for v, edge in zip(law, edges, strict=True) if aim < edge)
            if q is None:
                found = next((n for n, pair in enumerate(nodes) if pair == (token, at)), None)
            if found is None:
                return path, token
        path.append(found)
        at = found


def random_laws(rng, rows, words, above):
    """Laws (rows, words) float32; only tokens above 0 in `above` (rows, words) must be possible."""
    weights = rng.random((rows, words)) ** 3 * (rng.random((rows, words)) < 0.7) + above
    weights[weights.sum(1) == 0, 0] = 1
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


@settings(max_examples=few(200, 20))
@given(sampled_drafts(), st.sampled_from(["dense", "reduced", "certain"]), st.booleans())
def test_against_naive(tree, shape, padded):
    """Path and token, coin for coin, float32 laws, trees with places without nodes."""
    words, nodes, candidates, seed = tree
    rng = np.random.default_rng(seed)
    drawn = np.zeros((1 + len(nodes), words))
    for token, parent in nodes:
        drawn[1 + parent, token] = 0.3
    p, q = random_laws(rng, *drawn.shape, 0 * drawn), random_laws(rng, *drawn.shape, drawn)
    trees = trees_of([nodes], len(nodes) + padded)
    rows = torch.from_numpy(np.concatenate([p, p[:1] * np.nan]) if padded else p)
    if shape == "certain":
        one = Draft(trees)
    else:
        ids = torch.arange(words)
        each = []
        for row in q:
            law = torch.from_numpy(row)[None]
            if shape == "reduced":
                kept = ids[law[0] > 0]
                each.append(Reduced(law[:, kept], kept, index_of(kept, words)))
            else:
                each.append(Dense(law, law.sum(-1)))
        one = Draft(trees, tuple(each), (*map(tuple, candidates), *[()] * padded))
    got = accept(one, Dense(rows, rows.sum(-1)), Coins(seed, 5), 60)
    assert got == naive_accept(nodes, candidates, p, None if shape == "certain" else q, seed, 60)


# --- coins ---------------------------------------------------------------------------------------------------------


class Bernoulli:
    """Reads a uniform off what `Coins.accept` says, by bisection."""

    def __init__(self, coins, place, nth):
        self.ask = lambda chance: coins.accept(chance, place, nth)

    def value(self):
        low, high = 0.0, 1.0  # refused at low, accepted at high
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if self.ask(middle) else (middle, high)
        return high


def test_coins_are_those_of_recordings_and_replays():
    coins = Coins(9, 4, replicate=2)
    law = dense(np.random.default_rng(0).dirichlet(np.ones(1000))[None])
    for place in [*range(0, 70), 300, 3, 64, 2**31]:
        coin = float(uniforms(9, COIN, 4, place, 1, 2)[0])
        assert not coins.accept(coin, place)
        assert coins.accept(np.nextafter(coin, 1), place)
        own = torch.from_numpy(uniforms(9, TARGET, 4, place + 1, 1))
        assert coins.draw(law, place, TARGET) == int(draw(law, own))
    first = torch.from_numpy(uniforms(9, TARGET, 4, 0, 1))
    assert coins.draw(law, -1, TARGET) == int(draw(law, first))


def test_no_two_decisions_share_a_uniform(monkeypatch):
    """Streams, replicates, places and nth; only the target's own uniforms are the same in all replicates."""
    seen = {}
    monkeypatch.setattr(chances, "draw", lambda law, uniform: seen["now"].append(float(uniform)) or torch.tensor([0]))
    found = {}
    for replicate in (0, 1, 2**16 - 1):
        coins = Coins(1, 2, replicate)
        for stream, place, nth in itertools.product((TARGET, DRAFT), range(5), (0, 1, 2, 64, 2**16 - 1)):
            seen["now"] = []
            coins.draw(OneHot(torch.tensor([0])), place, stream, nth)
            found[0 if stream == TARGET else replicate, stream, place, nth] = seen["now"][0]
        for place, nth in itertools.product(range(5), (0, 1, 2, 64, 2**16 - 1)):
            found[replicate, COIN, place, nth] = Bernoulli(coins, place, nth).value()
    assert len(found) == 7 * 25
    values = sorted(found.values())
    # 175 uniforms: two of them within 1e-9 by chance once in 30,000 seeds
    assert min(b - a for a, b in itertools.pairwise(values)) > 1e-9


def test_uniforms_are_fetched_in_blocks(monkeypatch):
    calls = []
    monkeypatch.setattr(chances, "uniforms", lambda *given: calls.append(given) or uniforms(*given))
    coins = Coins(0, 0)
    law = dense(np.array([[0.5, 0.5]]))
    for row in range(256):  # a round at every row, three drafts deep
        for d in range(3):
            coins.draw(law, row + d, DRAFT, d)
            coins.accept(0.5, row + d)
        coins.draw(law, row, TARGET)
    assert len(calls) <= 4 * 6 + 8


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: Coins(0, 0, 2**16), r"replicate must lie in \[0, 65536\), got 65536"),
        (lambda: Coins(0, 0, -1), "replicate must lie"),
        (lambda: Coins(0, 0).accept(0.5, 0, 2**16), r"nth must lie in \[0, 65536\), got 65536"),
        (lambda: Coins(0, 0).accept(0.5, -1), "start must lie"),
        (lambda: Coins(0, 0).draw(OneHot(torch.tensor([1])), 0, 3), r"stream is 3; allowed: 0 \(COIN\)"),
        (lambda: Coins(0, 0).draw(OneHot(torch.tensor([1, 2])), 4, TARGET), "place 4: .* one row, this one has 2"),
    ],
)
def test_bad_questions(ask, message):
    with pytest.raises(ValueError, match=message):
        ask()


@pytest.mark.parametrize("name", ["tree", "whole tree", "none", "mixed"])
def test_certain_drafts_change_no_token(name):
    """Coin for coin the text of plain sampling."""
    mixed = ["tree", "none", "whole tree"]
    policy = always(TOYS[name]) if name != "mixed" else lambda text, a: TOYS[mixed[(len(text) + a) % 3]]
    for sequence in range(few(20, 5)):
        world = World(sequence, 5)
        plain: tuple[int, ...] = ()
        for t in range(20):
            uniform = torch.from_numpy(uniforms(8, TARGET, sequence, t + 1, 1))
            plain += (int(draw(world.target_laws([plain]), uniform)),)
        assert decode(world, policy, 3, 20, Coins(8, sequence, replicate=3)) == plain


@pytest.mark.parametrize("policy", [always(TOYS["sequences"]), by_outcome])
def test_real_coins_give_the_targets_law(policy):
    """Frequencies f of all texts against their probabilities p. By Chernoff n KL(f, p) exceeds x with probability at
    most 2 exp(-x) in one text; a right sampler fails here for one seed in a million."""
    world, texts = World(5, 3, zeros=0.2), few(1000, 100)
    law, count = world.law_of_texts(3), {}
    for sequence in range(texts):
        text = decode(world, policy, 2, 3, Coins(0, sequence))
        count[text] = count.get(text, 0) + 1
    assert count.keys() <= law.keys()
    for text, p in law.items():
        f = count.get(text, 0) / texts
        surprise = sum(a * math.log(a / b) for a, b in ((f, p), (1 - f, 1 - p)) if a > 0)
        assert texts * surprise < math.log(2 * len(law) / 1e-6)


# --- the rule's edges ----------------------------------------------------------------------------------------------


class Says:
    """A `Chance` with fixed answers; keeps what it was asked."""

    def __init__(self, *answers):
        self.answers, self.chances, self.laws = list(answers), [], []

    def accept(self, chance, place, nth=0):
        self.chances.append((chance, place, nth))
        return self.answers.pop(0)

    def draw(self, law, place, stream, nth=0):
        assert (stream, nth) == (TARGET, 0)
        self.laws.append((law, place))
        return 0


def chain_of(tokens, laws):
    nodes = [(token, node - 1) for node, token in enumerate(tokens)]
    return Draft(trees_of([nodes]), tuple(laws), (*((node,) for node in range(len(tokens))), ()))


def test_accepted_drafts_cost_no_residual(monkeypatch):
    monkeypatch.setattr(accepting, "_residual", lambda *given: pytest.fail("a residual was made"))
    p = dense(np.array([[0.5, 0.5], [0.25, 0.75], [0.1, 0.9]]))
    says = Says(True, True)
    assert accept(chain_of([0, 1], [p.rows(slice(0, 1)), dense(np.array([[0.1, 0.9]]))]), p, says, 7) == ([0, 1], 0)
    assert says.chances == [(1.0, 7, 0), (0.75 / 0.9, 8, 0)]
    assert says.laws[0][0].probs.tolist() == [[0.1, 0.9]]
    assert says.laws[0][1] == 9


def test_equal_laws_leave_the_law():
    """C3: no residual mass."""
    p = dense(np.array([[0.5, 0.25, 0.25]] * 2))
    says = Says(False)
    assert accept(chain_of([0], [p.rows(slice(0, 1))]), p, says, 0) == ([], 0)
    assert says.laws[0][0].probs.tolist() == [[0.5, 0.25, 0.25]]


def test_float32_laws_that_are_equal_are_accepted():
    """C1: the very same float32 row as p and as q gives 1, although its sum is not exactly 1."""
    law = torch.softmax(torch.randn(1, 5000, generator=torch.Generator().manual_seed(0)), -1)
    p = Dense(law.repeat(2, 1), law.sum(-1).repeat(2))
    says = Says(True)
    accept(chain_of([17], [Dense(law, law.sum(-1))]), p, says, 0)
    assert says.chances == [(1.0, 0, 0)]


def test_laws_stay_as_they_were():
    p, q = dense(np.array([[0.5, 0.5], [0.5, 0.5]])), dense(np.array([[0.25, 0.75]]))
    accept(chain_of([1], [q]), p, Says(False), 0)
    assert p.probs.tolist() == [[0.5, 0.5]] * 2
    assert q.probs.tolist() == [[0.25, 0.75]]


def test_what_is_not_reached_is_not_read():
    p = dense(np.array([[0.5, 0.5], [math.nan, math.nan]]))
    assert accept(chain_of([1], [dense(np.array([[0.25, 0.75]]))]), p, Says(False), 0) == ([], 0)
    assert accept(Draft(trees_of([[(1, -1)]])), p, Says(), 0) == ([], 0)


GOOD = [0.5, 0.5, 0.0]
ROW_3 = [  # behind a first draft that is accepted
    ([math.nan, 0.5, 0.5], "row 3: the target's law holds NaN"),
    ([0.6, 0.5, -0.1], "row 3: the target's law holds -0.1"),
    ([0.0, 0.0, 0.0], "row 3: the target's law sums to 0.0, not to 1"),
    ([0.5, 0.5, 0.5], "row 3: the target's law sums to 1.5, not to 1"),
    ([0.5, math.inf, 0.5], "row 3: the target's law sums to inf, not to 1"),
]


@pytest.mark.parametrize(("law", "message"), ROW_3)
@pytest.mark.parametrize("form", ["sampled", "certain", "leaf"])
def test_no_token_of_a_row_without_a_law(law, message, form):
    """C4: neither accepted nor drawn, at an inner node and at a leaf, whatever the coins say."""
    q = [dense(np.array([GOOD]))] * 2
    one = {
        "sampled": chain_of([0, 1], q), "certain": Draft(trees_of([[(0, -1), (1, 0)]])), "leaf": chain_of([0], q[:1])
    }[form]  # fmt: skip
    rows = np.array([GOOD, law, GOOD])[: one.trees.tokens.shape[1] + 1]
    says = Says(True, True)
    with pytest.raises(ValueError, match=message):
        accept(one, dense(rows), says, 2)
    assert len(says.chances) <= 1


def test_a_target_without_a_token():
    with pytest.raises(ValueError, match="row 6: the target has no law"):
        accept(nothing(), OneHot(torch.tensor([PAD])), Says(), 6)


@pytest.mark.parametrize(
    ("token", "q", "answers", "message"),
    [
        (2, dense(np.array([GOOD])), [], "row 4: draft 2 has probability 0.0 under the law"),
        (1, dense(np.array([[0.5, math.nan, 0.5]])), [], "row 4: draft 1 has probability nan"),
        (1, dense(np.array([[math.nan, 0.5, 0.5]])), [False], "row 4: the draft's law holds NaN"),
        (1, OneHot(torch.tensor([PAD])), [], "row 4: draft 1 has probability 0.0"),
        (1, Reduced(torch.ones(1, 1), torch.tensor([0]), index_of(torch.tensor([0]), 3)), [], "row 4: draft 1 has pr"),
        (1, dense(np.array([[0.5, 0.5]])), [False], "row 4: .* over 3 ids, its draft's 2"),
        (3, dense(np.array([[0.25] * 4])), [True], "row 4: draft 3 is no id of a vocabulary of 3"),
    ],
)
def test_drafts_that_their_law_cannot_have_drawn(token, q, answers, message):
    with pytest.raises(ValueError, match=message):
        accept(chain_of([token], [q]), dense(np.array([GOOD, GOOD])), Says(*answers), 4)


def test_laws_of_another_tree():
    with pytest.raises(ValueError, match="the target has 2 laws; a draft of 0 nodes needs 1"):
        accept(nothing(), OneHot(torch.tensor([1, 2])), Says(), 0)


ONE = OneHot(torch.tensor([1]))
TWO = trees_of([[(1, -1), (1, 0)]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((trees_of([[], []]),), "of one text"),
        ((TWO, (ONE, ONE)), "one of the two is missing"),
        ((trees_of([[(1, 0)]]),), "node 0: its parent is 0"),
        ((trees_of([[(PAD, -1), (1, 0)]]),), "node 1: its parent is 0"),
        ((trees_of([[(-2, -1)]]),), "node 0 holds token -2"),
        ((trees_of([[(1, -1), (1, -1)]]),), "node 1: its parent -1 has another child with token 1"),
        ((TWO, (ONE, ONE), ((0,), (1,))), "2 lists of candidates for the root and 2 nodes"),
        ((TWO, (ONE, ONE), ((0,), (0,), ())), "candidate 0 is no child of node 0"),
        ((TWO, (ONE, ONE), ((0,), (2,), ())), "candidate 2 is no child of node 0"),
        ((TWO, (ONE,), ((0,), (1,), ())), "node 0 has candidates and needs a law of one row, got none"),
        ((TWO, (ONE, OneHot(torch.tensor([1, 1]))), ((0,), (1,), ())), "got one of 2 rows"),
        ((TWO, (ONE, ONE), ((0,), (), ())), r"nodes \[1\] are candidates of no node"),
    ],
)
def test_drafts_that_are_none(given, message):
    with pytest.raises(ValueError, match=message):
        Draft(*given)


def test_enumeration_sees_everything():
    """The tool itself: a chance of its own, and a coin asked twice."""
    law = dense(np.array([[0.25, 0.0, 0.75]]))

    def run(chance):
        first = chance.draw(law, 0, DRAFT)
        return first, chance.accept(0.5 if first else 1.0, 0), chance.accept(0.0, 1)

    assert sorted(outcomes(run)) == [
        (0.25, (0, True, False)), (0.375, (2, False, False)), (0.375, (2, True, False))
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="asked twice"):
        joint(lambda chance: [chance.draw(law, 0, DRAFT) for _ in range(2)])
