"""Draft trees: following a path down them, growing them, and static ones as recorded."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from hedgelab.trace import open_trace
from tests.strategies_recording import (
    WORDS,
    NaiveHead,
    NaiveNGram,
    logit_rows,
    naive_law,
    tiny_checkpoint,
    tiny_head,
    tiny_prompts,
)
from tests.strategies_trees import lists_of, naive_follow, naive_tree, node_lists, paths_of, softmax_of, trees_of
from tests.test_collect import config_of, rows_of, text_of
from traces.collect import build_drafters, collect
from traces.config import ConfigError
from traces.drafters.base import PAD, DrafterError
from traces.sampling import Dense, OneHot, top_ids
from traces.targets import load_target
from traces.texts import Texts
from traces.trees import Followed, chain, depths_of, grow, likeliest_paths, lineage_of, walk

K = 4
WARM = {"temperature": 1.0}

# --- ranks ---------------------------------------------------------------------------------------------------------


@given(logit_rows(), st.integers(1, 9), st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
@example([[0.0, -math.inf, 0.0]], 2, torch.bfloat16)
@example([[1.0, 1.0, 1.0]], 2, torch.float32)
def test_ranks_are_a_stable_sort(rows, count, dtype):
    logits = torch.tensor(rows, dtype=dtype)
    for row, got in zip(logits.tolist(), top_ids(logits, count).tolist(), strict=True):
        order = sorted((v for v in range(len(row)) if row[v] > -math.inf), key=lambda v, row=row: (-row[v], v))
        assert got == (order + [PAD] * count)[:count]


# --- shapes --------------------------------------------------------------------------------------------------------


@given(st.lists(node_lists(), min_size=1, max_size=3), st.integers(0, 3))
def test_depths_and_lineages_are_those_of_the_paths(lists, more):
    trees = trees_of(lists, max(map(len, lists)) + more)
    real = trees.tokens != PAD
    lineage = lineage_of(trees.parent)
    for row, nodes in enumerate(lists):
        paths = paths_of(nodes)
        depths = [len(path) - 1 for path in paths] + [-1] * (trees.tokens.shape[1] - len(paths))
        assert depths_of(trees.parent, real)[row].tolist() == depths
        for a, b in itertools.product(range(len(paths)), repeat=2):
            assert bool(lineage[row, a, b]) == (paths[a][: len(paths[b])] == paths[b])


@given(st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4), st.integers(1, 30), st.integers(1, 4))
@example([0.5, 0.5], 9, 3)
@example([0.1, 0.9, 0.1], 12, 3)
def test_likeliest_paths_are_the_first_of_all(shares, nodes, depth):
    every = [path for n in range(1, depth + 1) for path in itertools.product(range(len(shares)), repeat=n)]
    every.sort(key=lambda path: (-math.prod(shares[rank] for rank in path), len(path), path))
    assert likeliest_paths(shares, nodes, depth) == every[:nodes]


@given(node_lists(most=12), st.data())
def test_a_walk_goes_down_while_children_hold_what_is_drawn(nodes, data):
    trees = trees_of([nodes, []], len(nodes) + 1)
    drawn = [data.draw(st.integers(0, 3)) for _ in range(len(nodes) + 2)]
    text, expected = (), []
    paths = paths_of(nodes)
    while (text := (*text, drawn[expected[-1] + 1 if expected else 0])) in paths:
        expected.append(paths.index(text))
    found = walk(trees, torch.tensor([drawn, [PAD] * len(drawn)]))
    assert found.tolist() == [expected, [PAD] * len(expected)]


def test_a_chain_has_one_child_a_node():
    drafts = torch.tensor([[5, 6, 5], [7, PAD, PAD]])
    trees = chain(drafts)
    assert lists_of(trees) == [[(5, -1), (6, 0), (5, 1)], [(7, -1)]]
    assert walk(trees, torch.tensor([[5, 6, 9, 5], [7, PAD, 3, 3]])).tolist() == [[0, 1], [0, PAD]]


# --- following -----------------------------------------------------------------------------------------------------


@given(st.data())
def test_following_is_walking_each_round_alone(data):
    """Texts that end, trees of different sizes, laws that are certain or not."""
    texts, k, steps, certain = data.draw(
        st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.booleans())
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    followed, alive = Followed(texts, k), list(range(texts))
    histories = [[] for _ in range(texts)]  # (tree, law, token) of each row
    for _ in range(steps):
        lists = [data.draw(node_lists(deepest=k)) for _ in alive]
        laws = rng.dirichlet(np.ones(4), len(alive)).astype(np.float32)
        tokens = rng.integers(0, 4, len(alive))
        if certain:
            laws = np.eye(4, dtype=np.float32)[tokens]
        token = torch.tensor(tokens)
        target = OneHot(token) if certain else Dense(torch.tensor(laws), torch.ones(len(alive)))
        alpha, gamma = followed.step(trees_of(lists, data.draw(st.integers(0, 9))), target, token)
        for place, text in enumerate(alive):
            history = histories[text]
            history.append((lists[place], laws[place], int(tokens[place])))
            t = len(history) - 1
            assert followed.deepest[place] == max(map(len, paths_of(lists[place])), default=0)
            for d in range(k):
                if d > t:
                    assert (alpha[place, d], gamma[place, d]) == (0, 0)
                    continue
                paths = paths_of(history[t - d][0])
                own = naive_follow(
                    paths, max(map(len, paths), default=0), t - d, d + 1, [row[2] for row in history],
                    [row[1] for row in history],
                )  # fmt: skip
                assert float(alpha[place, d]) == own[d][0]
                np.testing.assert_allclose(float(gamma[place, d]), own[d][1], atol=1e-6)
        if len(alive) > 1 and data.draw(st.booleans()):
            order = data.draw(st.permutations(range(len(alive))))[:-1]
            followed.keep(torch.tensor(order))
            alive = [alive[place] for place in order]


# --- growing -------------------------------------------------------------------------------------------------------


def law_of_path(seed, path, words):
    """Log-probabilities with many ties and some zeros, of a node that is known by its path."""
    rng = np.random.default_rng([seed, len(path), *path])
    law = -rng.integers(0, 5, words) / 2.0
    law[rng.random(words) < 0.15] = -math.inf
    return law


def grown(seeds, words, width, nodes, depth, law=law_of_path):
    """`grow` over laws that each text looks up by the paths of the nodes that it is asked about."""
    above = [[()] for _ in seeds]

    def expand(d, parent, token):
        if d:
            for i in range(len(seeds)):
                above[i] = [(*above[i][p], v) for p, v in zip(parent[i].tolist(), token[i].tolist(), strict=True)]
        rows = [[law(seed, path, words) for path in above[i]] for i, seed in enumerate(seeds)]
        return torch.tensor(np.array(rows), dtype=torch.float32)

    return grow(expand, width, nodes, depth)


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=3), st.integers(1, 6), st.integers(1, 5), st.integers(1, 20),
    st.integers(1, 4),
)  # fmt: skip
def test_growing_is_growing_by_lists(seeds, words, width, nodes, depth):
    """Ties too: halves are exact, so equal sums are equal."""
    trees = grown(seeds, words, width, nodes, depth)
    assert not trees.faulty.any()
    for row, (seed, found) in enumerate(zip(seeds, lists_of(trees), strict=True)):
        expected, _ = naive_tree(lambda path, seed=seed: law_of_path(seed, path, words), width, nodes, depth)
        assert paths_of(found) == expected
        first = max(law_of_path(seed, (), words))
        assert float(trees.confidence[row]) == pytest.approx(math.exp(first), rel=1e-6)
        # a smaller budget is the beginning of a larger one
        assert lists_of(grown([seed], words, width, max(1, nodes // 2), depth))[0] == found[: max(1, nodes // 2)]


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 20))
def test_heads_that_do_not_see_each_other_give_the_likeliest_products(seed, width, nodes):
    """One law a depth, whatever was drafted before: with no more nodes a level than are expanded, none is missed."""
    laws = torch.log_softmax(torch.randn(1, 3, 5, generator=torch.Generator().manual_seed(seed)), -1)
    trees = grow(lambda d, parent, token: laws[:, d : d + 1], width, nodes, 3)
    table = laws[0].double().tolist()
    expected, margin = naive_tree(lambda path: table[len(path)], width, nodes, 3)
    assert margin < 1e-6 or sorted(paths_of(lists_of(trees)[0])) == sorted(expected)


def test_a_law_of_nan_is_a_fault_where_its_node_exists():
    def spoiled(seed, path, words):
        if path == (1,) and seed == 7:
            return np.full(words, math.nan)
        return np.array([-0.5, -1.0, -math.inf])

    assert grown([5, 7], 3, 2, 6, 2, spoiled).faulty.tolist() == [False, True]
    assert grown([7], 3, 1, 6, 2, spoiled).faulty.tolist() == [False]  # the node was never expanded

    def narrow(seed, path, words):  # one token behind the root: the second place to expand holds no node
        return (
            np.array([-math.inf, 0.0, -math.inf]) if path == () else np.full(words, math.nan if path == (0,) else -1.0)
        )

    assert grown([5], 3, 2, 6, 2, narrow).faulty.tolist() == [False]
    nothing = grown([5], 3, 2, 6, 2, lambda seed, path, words: np.full(words, math.nan))
    assert (nothing.faulty.tolist(), lists_of(nothing)) == ([True], [[]])


# --- static trees as recorded --------------------------------------------------------------------------------------

IDS = sorted({0, *range(3, WORDS, 2)})
PATHS = [[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 0, 1]]  # leaves on every level; no deeper than 3
OVER = [
    {"name": "deep", "kind": "head", "options": {"checkpoint": "deep"}},
    {"name": "ngram", "kind": "ngram", "options": {"texts": "train", "order": 3}},
    {"name": "exit", "kind": "exit", "options": {"layer": 2}},
]
STATIC = [{"name": f"{d['name']}-tree", "kind": "tree", "options": {"over": d["name"], "nodes": 9}} for d in OVER]
GIVEN = [{"name": "given", "kind": "tree", "options": {"over": "deep", "paths": PATHS}}]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a tiny target, a head, prompts, and texts to count n-grams from."""
    folder = tmp_path_factory.mktemp("trees")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    tiny_prompts(folder / "prompts.jsonl", 5)
    tiny_prompts(folder / "few.jsonl", 2)
    tiny_head(folder / "deep", load_target(str(folder / "target")), "eagle", (0, 2, 3), IDS)
    tiny_head(folder / "cut", load_target(str(folder / "target")), "truncated", (2,), IDS)
    how = {"temperature": 1.0}
    lookup = {"name": "lookup", "kind": "lookup"}
    collect(config_of(folder, how, how, drafters=[lookup], k=1, max_new_tokens=30), {}, folder / "train")
    return folder


@pytest.fixture(scope="module")
def target(home):
    return load_target(str(home / "target"))


class Behind:
    """Logits (WORDS,) in float64 of each drafter behind text[: first + 1] and other tokens, whatever the text says."""

    def __init__(self, home, target):
        self.target, self.head = target, NaiveHead(home / "deep", target, "eagle", (0, 2, 3))
        texts = Texts.load(home / "train")
        spans = zip(texts.offsets[:-1], texts.begin, texts.offsets[1:], strict=True)
        self.counted = NaiveNGram([(texts.token[a:b].tolist(), texts.token[b:c].tolist()) for a, b, c in spans], 3)

    def read(self, text):
        self.text, self.known = text, self.head.read(text)

    def deep(self, first, tokens):
        wide = np.full(WORDS, -math.inf)
        text = [*self.text[: first + 1], *tokens]
        wide[self.head.ids] = self.head.draft(text, first, len(tokens) + 1, *self.known)[-1]
        return wide

    def ngram(self, first, tokens):
        wide = np.full(WORDS, -math.inf)
        for v, chance in self.counted.law([*self.text[: first + 1], *tokens]).items():
            wide[v] = math.log(chance)
        return wide

    def exit(self, first, tokens):
        model, ids = self.target.model, torch.tensor([[*self.text[: first + 1], *tokens]])
        state = model(ids, output_hidden_states=True).hidden_states[2][0, -1]
        return model.lm_head(model.model.norm(state))[:WORDS].double().numpy()


def static_tree(law, ranks):
    """(token paths, margin): every node of a static tree really computed, off the path too."""
    tokens, margin = {(): ()}, math.inf
    for path in sorted(ranks, key=len):
        values = law(tokens[path[:-1]])
        order = sorted(range(len(values)), key=lambda v, values=values: (-values[v], v))
        at = path[-1]
        near = [abs(values[order[at]] - values[order[other]]) for other in (at - 1, at + 1) if other >= 0]
        margin = min([margin, *(gap for gap in near if gap > 1e-12)])  # exact ties are decided by id
        tokens[path] = (*tokens[path[:-1]], order[at])
    return [found for path, found in tokens.items() if path], margin


@pytest.mark.parametrize("p_how", [{"temperature": 0.8}, {"temperature": 0.0}])
@torch.inference_mode()
def test_static_trees_are_those_that_are_wholly_built(home, tmp_path, target, p_how):
    """alpha exactly, gamma within 1e-5; NaN where the path has left a tree, 0 behind its deepest node."""
    config = config_of(
        home, p_how, {"temperature": 1.2}, drafters=OVER + STATIC + GIVEN, max_new_tokens=11, batch=3,
        prompts={"file": "few.jsonl"},
    )  # fmt: skip
    collect(config, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    assert trace.check() == []
    compared = near = 0
    seen, behind = set(), Behind(home, target)
    for s, begin, end in rows_of(trace):
        prompt, own = text_of(trace, s)
        text = [*prompt, *own]
        logits = target.model(torch.tensor([text])).logits[0, :, :WORDS].double().numpy()
        laws = [None, *(naive_law(row, **p_how)[0] for row in logits)]  # laws[t] is of text[t]
        behind.read(text)
        for row in range(begin, end):
            first = len(prompt) + row - begin
            for i, about in enumerate(trace.manifest.drafters):
                if about.kind != "tree":
                    continue
                ranks = [tuple(path) for path in about.details["paths"]]
                law = partial(getattr(behind, about.details["over"]), first)
                paths, margin = static_tree(law, ranks)
                if margin < 1e-5:
                    near += 1
                    continue
                deepest = max(map(len, ranks))
                assert trace.proposed[row, i] == deepest
                followed = naive_follow(paths, deepest, first + 1, min(trace.k, end - row), text, laws)
                for d, (alpha, gamma) in enumerate(followed):
                    assert trace.alpha[row + d, d, i] == alpha, (about.name, row, d)
                    np.testing.assert_allclose(trace.gamma[row + d, d, i], gamma, atol=1e-5)
                    compared += 1
                    seen.add((about.name, d, alpha, math.isnan(gamma)))
                sure = max(softmax_of(law(())))
                assert float(trace.confidence[row, i]) == pytest.approx(sure, abs=1e-4)
    assert compared > 300
    assert near < compared / 30
    for name in ("deep-tree", "exit-tree", "ngram-tree", "given"):
        assert {(name, 0, 1.0, False), (name, 0, 0.0, False), (name, 1, 0.0, True)} <= seen
    assert ("given", 3, 0.0, True) not in seen  # behind its deepest node gamma is 0


@pytest.mark.parametrize("options", [{"nodes": 5}, {"paths": PATHS}, {"nodes": 9, "shares": [0.9, 0.05]}])
def test_a_model_follows_its_own_tree_to_the_end(home, tmp_path, options):
    """Greedy, the argmax path is in any tree that holds (0, 0, ...): every draft of its rank is accepted."""
    how = {"temperature": 0.0}
    drafters = [
        {"name": "self", "kind": "causal", "options": {"model": "target"}},
        {"name": "own", "kind": "tree", "options": {"over": "self", **options}},
    ]
    collect(config_of(home, how, how, drafters=drafters, max_new_tokens=12), {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    paths = trace.manifest.drafters[1].details["paths"]
    full = max(len(path) for path in paths if not any(path))
    assert full > 1
    for _, begin, end in rows_of(trace):
        for t in range(begin, end):
            for d in range(min(full, t - begin + 1)):
                assert (trace.alpha[t, d, 1], trace.gamma[t, d, 1]) == (1, 1)


def test_drafts_of_one_token_are_the_first_level(home, tmp_path):
    how = {"temperature": 0.9}
    for k in (1, K):
        collect(config_of(home, how, how, drafters=OVER + STATIC + GIVEN, max_new_tokens=9, k=k), {}, tmp_path / str(k))
    one, deep = open_trace(tmp_path / "1"), open_trace(tmp_path / str(K))
    assert one.check() == []
    assert {about.depth for about in one.manifest.drafters} == {1}
    assert max(len(path) for about in one.manifest.drafters[3:] for path in about.details["paths"]) == 1
    for i in range(3, 7):
        if i < 6:  # nine paths of one rank each where `deep` has fewer on the first level
            assert (one.alpha[:, 0, i] >= deep.alpha[:, 0, i]).all()
        else:
            np.testing.assert_array_equal(one.alpha[:, 0, i], deep.alpha[:, 0, i])
            np.testing.assert_allclose(one.gamma[:, 0, i], deep.gamma[:, 0, i], atol=1e-6)


def test_what_a_tree_may_be_read_from(home, target):
    def made(*entries):
        return build_drafters(config_of(home, WARM, WARM, drafters=[OVER[0], *entries]), target)

    lookup = {"name": "lookup", "kind": "lookup"}
    for over, others, words in (
        ("nobody", (), "names 'nobody', which is no drafter listed before it; allowed: deep"),
        ("lookup", (lookup,), "names 'lookup', which has no laws to read; allowed: deep"),
        ("x", (), "names 'x', which is no drafter listed before it"),
        (
            "other",
            ({"name": "other", "kind": "tree", "options": {"over": "deep"}},),
            "names 'other', which has no laws",
        ),
    ):
        with pytest.raises(DrafterError, match=f"drafter 'x': over {words}"):
            made(*others, {"name": "x", "kind": "tree", "options": {"over": over}})
    for paths, words in (
        ([[0], [1, 0]], r"paths hold \[1, 0\] without its beginning"),
        ([[0, 1, 2, 3, 4, 5]], "without its beginning"),  # deeper than k, too
        ([[0], []], "an empty one"),
    ):
        with pytest.raises(DrafterError, match=words):
            made({"name": "x", "kind": "tree", "options": {"over": "deep", "paths": paths}})
    with pytest.raises(DrafterError, match="allowed temperature: 0"):
        made({"name": "x", "kind": "tree", "processing": {"temperature": 1.0}, "options": {"over": "deep"}})
    with pytest.raises(ConfigError, match=r"shares\[1\]: is 1"):
        made({"name": "x", "kind": "tree", "options": {"over": "deep", "shares": [0.5, 1.0]}})
