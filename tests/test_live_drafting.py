"""Drafts that are really drafted, against what the recorder says of them.

The twin of a node's law is the recorder itself: the drafter is driven along a text that ends with the path to that
node, one call a row, and asked for the entry of the round that began where the tree stands.
"""

import math
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hedgelab.coins import DRAFT
from hedgelab.trace import open_trace
from tests.sizes import few, thorough
from tests.strategies_recording import WORDS, tiny_checkpoint, tiny_head, tiny_prompts
from tests.strategies_trees import lists_of, paths_of
from tests.test_collect import LOOKUP, config_of, rows_of, text_of
from traces.collect import build_drafters, collect
from traces.drafters.base import (
    DeepDrafter,
    DeepLaws,
    DrafterError,
    FlatDrafter,
    Logits,
    Prefix,
    Reading,
    TreeDrafter,
    Trees,
)
from traces.kv import Stepper
from traces.live.draft import LARGEST, draft, prepare, room
from traces.sampling import OneHot, process
from traces.targets import load_target
from traces.verify import Verifier

K = 4
PAIRS = [(0.7, 2, K), (1.0, 3, 3)]  # temperature, top-k and k: few enough outcomes to try them all
GREEDY, SOFT = {"temperature": 0.0}, {"temperature": 1.0}

LAWS = [
    {"name": "ngram", "kind": "ngram", "options": {"texts": "train", "order": 3}},
    {"name": "chain", "kind": "retrieval-chain", "options": {"texts": "train", "longest": 4}},
    {"name": "exit", "kind": "exit", "options": {"layer": 2}},
    {"name": "small", "kind": "causal", "options": {"model": "small"}},
    {"name": "cut", "kind": "truncated", "options": {"checkpoint": "cut"}},
    {"name": "deep", "kind": "head", "options": {"checkpoint": "deep"}},
    {"name": "ahead", "kind": "medusa", "options": {"checkpoint": "ahead"}},
]
SHAPES = [
    *LOOKUP,
    {"name": "rest", "kind": "retrieval", "processing": GREEDY, "options": {"texts": "train", "nodes": 9}},
    {"name": "grown", "kind": "dynamic-tree", "processing": GREEDY,
     "options": {"checkpoint": "deep", "width": 3, "nodes": 9}},
    {"name": "spread", "kind": "dynamic-tree", "processing": GREEDY,
     "options": {"checkpoint": "ahead", "width": 2, "nodes": 7}},
]  # fmt: skip
OVER = ["ngram", "chain", "exit", "small", "cut", "deep", "ahead"]
TREES = [
    {"name": f"tree-{name}", "kind": "tree", "processing": GREEDY, "options": {"over": name, "nodes": 30}}
    for name in OVER
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with two tiny models, prompts, texts, and untrained heads over the ids that the texts are made of."""
    folder = tmp_path_factory.mktemp("drafting")
    tiny_checkpoint(folder / "target", rows=WORDS + 6)
    near_checkpoint(folder / "small", folder / "target")
    tiny_prompts(folder / "prompts.jsonl", 3)
    tiny_prompts(folder / "few.jsonl", 1)
    collect(config_of(folder, SOFT, GREEDY, drafters=LOOKUP, k=1, max_new_tokens=40), {}, folder / "train")
    ids = np.unique(open_trace(folder / "train").token)
    target = load_target(str(folder / "target"))
    tiny_head(folder / "deep", target, "eagle", (0, 2, 3), ids)
    tiny_head(folder / "cut", target, "truncated", (2,), ids)
    tiny_head(folder / "ahead", target, "medusa", (1, 3), ids, depth=3)
    return folder


def near_checkpoint(folder, other):
    """Write a model that often says what another one says."""
    tiny_checkpoint(folder, rows=WORDS + 6)
    target = load_target(str(other))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in target.model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.02)
    target.model.save_pretrained(folder)


@pytest.fixture(scope="module")
def target(home):
    return load_target(str(home / "target"))


def drafters_of(home, target, *names, processing=(1.0, 0), extra=()):
    """Drafters of these names, and those that they read, built anew."""
    how = {"temperature": processing[0], "top_k": processing[1]}
    listed = [*LAWS, *SHAPES, *TREES, *extra]
    wanted = {*names, *(entry["options"].get("over") for entry in listed if entry["name"] in names)}
    chosen = config_of(home, SOFT, how, drafters=[entry for entry in listed if entry["name"] in wanted], k=K)
    return {drafter.name: drafter for drafter in build_drafters(chosen, target)}


def made(home, target, name, **how):
    return drafters_of(home, target, name, **how)[name]


class Text:
    """A text with what the target knows along it; its first `width` tokens are the prompt."""

    def __init__(self, target, tokens, width):
        self.tokens, self.width, self.target = torch.tensor([tokens]), width, target
        stepper = Stepper(target.model, True, range(4))
        stepper.begin(self.tokens[:, :width], len(tokens))
        self.states = stepper.prompt_states
        self.prefixes = {}
        before = [self.states[layer][:, -1] for layer in range(4)]
        for end in range(width + 1, len(tokens) + 1):
            stepper.step(self.tokens[:, end - 1])
            self.prefixes[end] = Prefix(self.tokens[:, :end], stepper.hidden, before)
            before = stepper.hidden

    def calls(self, drafter, capacity=40):
        """Yield (number of tokens read, what the drafter's call returned, or that of what it reads), row by row."""
        drafter = drafter.over if isinstance(drafter, Reading) else drafter
        drafter.begin(self.tokens[:, : self.width], capacity, self.states)
        for end, prefix in self.prefixes.items():
            yield end, called(drafter, prefix)


def called(drafter, prefix):
    if isinstance(drafter, FlatDrafter | DeepLaws):
        return drafter.logits(prefix)
    return drafter.propose(prefix) if isinstance(drafter, DeepDrafter) else drafter.trees(prefix)


class WholeLayers:
    """The target's layers at nodes, by reading the whole text with the path to each."""

    def __init__(self, target, tokens):
        self.target, self.tokens, self.level = target, tokens, {}

    def _states(self, layer, paths):
        with torch.inference_mode():
            whole = torch.tensor([[*self.tokens, *path] for path in paths])
            return self.target.model(whole, output_hidden_states=True).hidden_states[layer][:, -1]

    def root(self, layer):
        return self._states(layer, [()])

    def grow(self, layer, parent, tokens):
        above = self.level.get(layer, [()])
        self.level[layer] = [(*above[p], v) for p, v in zip(parent.tolist(), tokens.tolist(), strict=True)]
        return self._states(layer, self.level[layer])


class Recorder:
    """Laws (W,) of a round that began behind some tokens and has drafted a path, as the recorder would see them."""

    def __init__(self, drafter, target, tokens, width):
        self.drafter, self.target, self.tokens, self.width, self.known = drafter, target, list(tokens), width, {}
        self.laws = {}

    def logits(self, path):
        path = tuple(path)
        if path not in self.known:
            *_, (_, found) = Text(self.target, [*self.tokens, *path], self.width).calls(self.drafter)
            values = found.values if isinstance(self.drafter, FlatDrafter) else found.values[:, len(path)]
            self.known[path] = Logits(values, found.ids, found.index)
        return self.known[path]

    def law(self, path, processing):
        """{token: probability} of what may follow a path."""
        if path not in self.laws:
            self.laws[path] = self._law(path, processing)
        return self.laws[path]

    def _law(self, path, processing):
        found = self.logits(path)
        law = process(found.values, processing, found.ids, found.index)
        if isinstance(law, OneHot):
            return {int(law.token): 1.0}
        ids = range(law.probs.shape[1]) if found.ids is None else found.ids.tolist()
        return {v: q for v, q in zip(ids, law.probs[0].tolist(), strict=True) if q > 0}


def softmax(values):
    return torch.softmax(values.double(), -1)


def at(drafter, text, end):
    """Drive a drafter along a text to `end` tokens; return what its call there gave."""
    for reached, found in text.calls(drafter):
        if reached == end:
            return found
    raise AssertionError(end)


# --- the law at a node ---------------------------------------------------------------------------------------------

NAMES = [entry["name"] for entry in LAWS]
SOME = ["ngram", "small", "cut", "deep"]  # one of each way to grow branches
token = st.integers(2, WORDS - 1)
levels = st.lists(st.lists(st.tuples(st.integers(0, 9), token), min_size=1, max_size=3), min_size=1, max_size=K - 1)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=few(3, 2), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(token, min_size=1, max_size=5), st.lists(token, min_size=1, max_size=6), levels, st.integers(0, 2**32 - 1)
)
def test_a_node_has_the_recorders_law(home, target, name, prompt, own, levels, seed):
    """Chains and bushes; a node drawn at random behind any node of the level before, siblings beside it."""
    tokens = [*prompt, *own]
    drafter = made(home, target, name)
    prepare([drafter], K)
    drafter.prepare(9)
    text = Text(target, tokens, len(prompt))
    twin = Recorder(made(home, target, name), target, tokens, len(prompt))
    at(drafter, text, len(tokens))
    branches = drafter.branches(text.prefixes[len(tokens)], WholeLayers(target, tokens))
    above = [()]
    for depth, level in enumerate(levels, 1):
        parents = [place % len(above) for place, _ in level]
        above = [(*above[p], v) for p, (_, v) in zip(parents, level, strict=True)]
        parent, fresh = torch.tensor(parents), torch.tensor([v for _, v in level])
        if isinstance(drafter, DeepLaws) and depth >= drafter.k:
            with pytest.raises(DrafterError, match=f"{name}.*no head for depth {depth}"):
                branches.grow(parent, fresh)
            return
        found = branches.grow(parent, fresh)
        assert len(found.values) == len(level)
        for path, values in zip(above, found.values, strict=True):
            expected = twin.logits(path)
            assert (found.ids is None) == (expected.ids is None)
            torch.testing.assert_close(softmax(values), softmax(expected.values[0]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_what_grew_leaves_no_trace(home, target, name):
    """Bits of all later calls, against a drafter that was made ready alike and never grew; near those of a recorder."""
    trained = open_trace(home / "train")  # a text that is looked up in itself: every lost match shows
    tokens = [*text_of(trained, 0)[0], *text_of(trained, 0)[1][:8]]
    text, quiet = Text(target, tokens, len(tokens) - 8), []
    plain = [found.values for _, found in text.calls(made(home, target, name))]
    for grows in (False, True):
        drafter = made(home, target, name)
        drafter.prepare(6)
        for step, (end, found) in enumerate(text.calls(drafter)):
            if not grows:
                quiet.append(found.values)
                continue
            assert torch.equal(found.values, quiet[step])
            torch.testing.assert_close(softmax(found.values), softmax(plain[step]), rtol=1e-4, atol=1e-6)
            branches = drafter.branches(text.prefixes[end], WholeLayers(target, tokens[:end]))
            branches.grow(torch.tensor([0, 0, 0]), torch.tensor([30, 40, 41]))
            branches.grow(torch.tensor([2, 0]), torch.tensor([3, 17]))


@pytest.mark.parametrize("name", ["deep", "ahead"])
def test_one_round_is_enough_to_draft(home, target, name):
    """A drafter that follows its latest round alone says the same of it."""
    text = Text(target, [3, 9, 12, 5, 7, 20, 31], 3)
    one, every = (made(home, target, name) for _ in range(2))
    one.prepare(3, rounds=1)
    for (end, found), (_, whole) in zip(text.calls(one), text.calls(every), strict=True):
        assert found.values.shape[1] == 1
        torch.testing.assert_close(found.values[:, 0], whole.values[:, 0], rtol=1e-4, atol=1e-5)
        node = one.branches(text.prefixes[end], None).grow(torch.tensor([0]), torch.tensor([9]))
        again = every.branches(text.prefixes[end], None) if name == "ahead" else None
        if again:
            torch.testing.assert_close(node.values, again.grow(torch.tensor([0]), torch.tensor([9])).values)


# --- drafts against recorded acceptances ---------------------------------------------------------------------------


def accepted_along(drafted, path):
    """Whether each token of a path is a node behind the one before, up to the first that is not."""
    paths = set(paths_of(lists_of(drafted.trees)[0]))
    found = []
    for d in range(len(path)):
        found.append(tuple(path[: d + 1]) in paths)
        if not found[-1]:
            break
    return found


def test_certain_drafts_are_those_recorded(home, target, tmp_path):
    """Every kind with certain drafts, every row and depth: alpha is 1 where the path's token was drafted behind it."""
    drafters = [*LAWS, *SHAPES, *TREES]
    listed = config_of(
        home, {"temperature": 0.5}, GREEDY, drafters=drafters, max_new_tokens=18, prompts={"file": "few.jsonl"}
    )
    collect(listed, {}, tmp_path / "t")
    trace = open_trace(tmp_path / "t")
    seen = defaultdict(set)
    for s, begin, end in rows_of(trace):
        prompt, own = text_of(trace, s)
        text = Text(target, [*prompt, *own[:-1]], len(prompt))
        drafters = {drafter.name: drafter for drafter in build_drafters(listed, target)}
        prepare(drafters.values(), K)
        for i, name in enumerate(trace.drafters):
            drafter = drafters[name]
            chance = Drawn()
            for row, (read, found) in enumerate(text.calls(drafter, 60), begin):
                layers = WholeLayers(target, text.tokens[0, :read].tolist())
                one = draft(drafter, found, text.prefixes[read], K, chance, row - begin, layers)
                assert (one.laws, one.candidates, one.trees.tokens.shape[0]) == (None, None, 1)
                path = trace.token[row : min(end, row + K)].tolist()
                got = accepted_along(one, path)
                assert got == [trace.alpha[row + d, d, i] == 1 for d in range(len(got))], (name, s, row)
                seen[name].add(sum(got))
            assert not chance.asked
    assert all(len(seen[name]) > 1 for name in trace.drafters), seen
    assert all(max(seen[f"tree-{name}"]) >= 2 for name in OVER), seen


@pytest.mark.parametrize("name", NAMES)
def test_a_trees_nodes_are_the_recorders_ranks(home, target, name):
    """Off the path, too: every node holds the token of its rank in the law behind its parent."""
    shape = [[0], [1], [2], [0, 1], [1, 0], [2, 0], [2, 2], [0, 1, 0], [1, 0, 0], [2, 0, 1], [2, 2, 1]]
    extra = [{"name": "t", "kind": "tree", "processing": GREEDY, "options": {"over": name, "paths": shape}}]
    tokens, width = [3, 9, 12, 5, 7, 20], 3
    text, drafters = Text(target, tokens, width), drafters_of(home, target, "t", extra=extra)
    prepare(drafters.values(), K)
    twin, found = Recorder(made(home, target, name), target, tokens, width), at(drafters["t"], text, 6)
    one = draft(drafters["t"], found, text.prefixes[6], K, Drawn(), 0, WholeLayers(target, tokens))
    expected = {(): ()}  # path of ranks -> of tokens, where there are so many
    for path in map(tuple, shape):
        if path[:-1] in expected:
            above = expected[path[:-1]]
            logits = twin.logits(above)
            best = torch.argsort(logits.values[0], descending=True, stable=True)[path[-1]]
            if logits.values[0, best] > -math.inf:
                expected[path] = (*above, int(best if logits.ids is None else logits.ids[best]))
    assert sorted([(), *paths_of(lists_of(one.trees)[0])]) == sorted(expected.values())
    assert max(map(len, expected)) == 3


# --- drawn drafts --------------------------------------------------------------------------------------------------


class Drawn:
    """All outcomes of what is drawn, one a run: follows `script`, then first ones; notes the probability."""

    def __init__(self, script=()):
        self.script, self.chance, self.asked, self.branches = list(script), 1.0, [], []

    def draw(self, law, place, stream, nth=0):
        assert stream == DRAFT
        self.asked.append((place, nth))
        ids = range(law.probs.shape[1]) if getattr(law, "ids", None) is None else law.ids.tolist()
        able = [(v, q) for v, q in zip(ids, law.probs[0].double().tolist(), strict=True) if q > 0]
        step = len(self.branches)
        self.branches.append(len(able))
        taken, q = able[self.script[step] if step < len(self.script) else 0]
        self.chance *= q
        return taken


def outcomes(run):
    """Yield (probability, result, chance) over all that a run may draw."""
    script = []
    while script is not None:
        chance = Drawn(script)
        result = run(chance)
        yield chance.chance, result, chance
        assert len(set(chance.asked)) == len(chance.asked)  # no coin is used twice
        script += [0] * (len(chance.branches) - len(script))
        while script and script[-1] + 1 == chance.branches[len(script) - 1]:
            script.pop()
        if not script:
            return
        script[-1] += 1


def drawn(home, target, name, k, processing, extra, run_of):
    """Hold the joint law of drafts against the recorder's laws. run_of(draft) -> [(path, token), ..] drawn there."""
    tokens, width = [3, 9, 12, 5, 7, 20], 3
    text = Text(target, tokens, width)
    drafters = drafters_of(home, target, name, processing=processing, extra=extra)
    drafter = drafters[name]
    prepare(drafters.values(), K)
    over = drafter.over.name if isinstance(drafter, Reading) else name
    twin = Recorder(made(home, target, over, processing=processing), target, tokens, width)
    found, prefix = at(drafter, text, len(tokens)), text.prefixes[6]
    whole = 0.0

    def run(chance):
        return draft(drafter, found, prefix, k, chance, 11, WholeLayers(target, tokens))

    for chance, one, asked in outcomes(run):
        expected = math.prod(twin.law(path, drafter.processing).get(v, 0.0) for path, v in run_of(one))
        assert chance == pytest.approx(expected, rel=1e-4)
        assert all(place == 11 + len(path) for (place, _), (path, _) in zip(asked.asked, run_of(one), strict=True))
        whole += chance
        assert_sound(one, twin, drafter.processing)
    assert whole == pytest.approx(1, abs=1e-5)


def assert_sound(one, twin, processing):
    """Laws stand where there are candidates; those are children, and all children are candidates."""
    nodes = lists_of(one.trees)[0]
    paths = [(), *paths_of(nodes)]
    assert len(set(paths)) == len(paths)
    assert len(one.candidates) == len(paths)
    for place, (path, children) in enumerate(zip(paths, one.candidates, strict=True)):
        assert set(children) == {i for i, (_, parent) in enumerate(nodes) if parent == place - 1}
        if children:
            law = one.laws[place]
            assert law.size == 1
            for v, q in twin.law(path, processing).items():
                assert float(law.at(torch.tensor([v]))) == pytest.approx(q, rel=1e-3, abs=1e-6)


def as_sequences(one):
    """The sequences drawn, from candidates alone: [(path, token)] level by level."""
    nodes, found = lists_of(one.trees)[0], []
    paths = {-1: (), **dict(enumerate(paths_of(nodes)))}
    standing = [-1] * len(one.candidates[0])
    while any(one.candidates[1 + node] for node in standing):
        queues, moved = {node: list(one.candidates[1 + node]) for node in set(standing)}, []
        for node in standing:
            child = queues[node].pop(0)
            found.append((paths[node], nodes[child][0]))
            moved.append(child)
        assert not any(queues.values())
        standing = moved
    return found


def as_nodes(one):
    """Every candidate of every node: [(path, token)] level by level."""
    nodes = lists_of(one.trees)[0]
    paths = [(), *paths_of(nodes)]
    drawn_at = [(path, nodes[child][0]) for path, row in zip(paths, one.candidates, strict=True) for child in row]
    return sorted(drawn_at, key=lambda pair: len(pair[0]))


@pytest.mark.parametrize(
    ("name", "temperature", "top_k", "k"),
    [*((name, *PAIRS[0]) for name in thorough(NAMES, SOME)), ("ngram", *PAIRS[1])],
)
def test_chains_are_drawn_from_the_recorders_laws(home, target, name, temperature, top_k, k):
    def run_of(one):
        assert all(len(children) <= 1 for children in one.candidates)
        nodes = lists_of(one.trees)[0]
        assert [parent for _, parent in nodes] == list(range(-1, len(nodes) - 1))
        assert len(nodes) == (3 if name == "ahead" else k)  # there are three heads
        return as_nodes(one)

    drawn(home, target, name, k, (temperature, top_k), (), run_of)


@pytest.mark.parametrize("form", ["sequences", "nodes"])
@pytest.mark.parametrize("name", thorough(NAMES, SOME))
def test_several_are_drawn_from_the_recorders_laws(home, target, name, form):
    extra = [{"name": "many", "kind": "several", "options": {"over": name, "drafts": 2, "form": form}}]
    drawn(home, target, "many", 2, (1.0, 2), extra, as_sequences if form == "sequences" else as_nodes)


def test_sequences_go_on_alone(home, target):
    """Three sequences, three deep: equal ones share nodes, each goes on with a draw of its own."""
    extra = [{"name": "many", "kind": "several", "options": {"over": "ngram", "drafts": 3}}]
    drawn(home, target, "many", 3, (1.0, 2), extra, as_sequences)


def test_certain_several_are_one_chain(home, target):
    extra = [{"name": "many", "kind": "several", "options": {"over": "deep", "drafts": 3}}]
    drafters = drafters_of(home, target, "deep", "many", processing=(0.0, 0), extra=extra)
    prepare(drafters.values(), K)
    text = Text(target, [3, 9, 12, 5], 3)
    found = at(drafters["deep"], text, 4)
    one, chain = (draft(drafters[name], found, text.prefixes[4], K, Drawn(), 0) for name in ("many", "deep"))
    assert lists_of(one.trees) == lists_of(chain.trees)
    assert one.laws is one.candidates is None


# --- edges ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "lookup", "rest", "grown", "tree-deep"])
@pytest.mark.parametrize("k", [0, 1])
def test_short_drafts(home, target, name, k):
    """Nothing for k = 0; one level for k = 1, which needs no branches."""
    drafter = made(home, target, name)
    text = Text(target, [3, 9, 12, 3, 9], 3)
    found = at(drafter, text, 5)
    one = draft(drafter, found, text.prefixes[5], k, Drawn(), 0)
    nodes = lists_of(one.trees)[0]
    assert one.trees.tokens.dtype == one.trees.parent.dtype == torch.int64
    assert (len(nodes) > 0) == (k > 0)
    assert all(parent == -1 for _, parent in nodes)


def test_trees_are_cut_and_lose_their_empty_places(home, target):
    class Fixed(TreeDrafter):
        name, k = "fixed", 3

        def __init__(self):
            pass

        def describe(self):
            raise NotImplementedError

        def trees(self, prefix):
            raise NotImplementedError

    trees = Trees(torch.tensor([[5, -1, 7, 5, 8, 9, -1]]), torch.tensor([[-1, -1, 0, -1, 2, 3, -1]]))
    trees.tokens[0, 3] = 6
    prefix = Prefix(torch.tensor([[1]]))
    by_depth = [lists_of(draft(Fixed(), trees, prefix, k, Drawn(), 0).trees)[0] for k in (1, 2, 3)]
    assert by_depth[0] == [(5, -1), (6, -1)]
    assert by_depth[1] == [(5, -1), (7, 0), (6, -1), (9, 2)]
    assert by_depth[2] == [(5, -1), (7, 0), (6, -1), (8, 1), (9, 2)]
    faulty = Trees(trees.tokens, trees.parent, faulty=torch.tensor([True]))
    with pytest.raises(DrafterError, match=r"'fixed'.*NaN"):
        draft(Fixed(), faulty, prefix, 3, Drawn(), 0)


def test_ranks_that_no_token_has_end_their_paths(home, target):
    """With two possible tokens everywhere a tree of ranks 0 to 2 has nodes of the first two."""

    class Two(FlatDrafter):
        kind = "two"

        def describe(self):
            raise NotImplementedError

        def logits(self, prefix):
            raise NotImplementedError

        def branches(self, prefix, layers):
            return self

        def grow(self, parent, tokens):
            return Logits(torch.tensor([[0.0, -math.inf, 1.0]]).expand(len(tokens), -1))

    shape = {"over": "ngram", "paths": [[0], [1], [2], [2, 0], [1, 0], [1, 1], [1, 2], [1, 1, 0]]}
    extra = [{"name": "t", "kind": "tree", "processing": GREEDY, "options": shape}]
    tree = made(home, target, "t", extra=extra)
    tree.over = Two("two", tree.processing)
    one = draft(tree, tree.over.grow(None, [0]), Prefix(torch.tensor([[1]])), K, Drawn(), 0)
    expected = [(2,), (0,), (0, 2), (0, 0), (0, 0, 2)]  # the likeliest is token 2, behind it comes 0
    assert sorted(paths_of(lists_of(one.trees)[0])) == sorted(expected)


@pytest.mark.parametrize("name", ["ngram", "tree-ngram"])
def test_laws_that_are_none_are_named(home, target, name):
    """At the root, and at a node."""
    drafter = made(home, target, name)
    text = Text(target, [3, 9, 12, 5], 3)
    law = drafter.over if isinstance(drafter, Reading) else drafter
    found = at(law, text, 4)
    bad = Logits(torch.full_like(found.values, math.nan), found.ids, found.index)
    with pytest.raises(DrafterError, match=f"{name}.*NaN at depth 0"):
        draft(drafter, bad, text.prefixes[4], K, Drawn(), 0)
    law.behind = lambda tokens: bad
    with pytest.raises(DrafterError, match=f"{name}.*NaN at depth 1"):
        draft(drafter, found, text.prefixes[4], K, Drawn(), 0)


def test_too_many_fresh_drafts_are_refused(home, target):
    extra = [
        {"name": "many", "kind": "several", "options": {"over": "ngram", "drafts": 4, "form": "nodes"}},
        {"name": "few", "kind": "several", "options": {"over": "ngram", "drafts": 16}},
    ]
    drafters = drafters_of(home, target, "many", "few", extra=extra)
    text = Text(target, [3, 9, 12, 5], 3)
    found = at(drafters["ngram"], text, 4)
    with pytest.raises(DrafterError, match=f"'many'.*340 tokens at depth 4; allowed: {LARGEST}"):
        draft(drafters["many"], found, text.prefixes[4], K, Drawn(), 0)
    assert len(lists_of(draft(drafters["many"], found, text.prefixes[4], 3, Drawn(), 0).trees)[0]) == 3
    assert lists_of(draft(drafters["few"], found, text.prefixes[4], K, Drawn(), 0).trees)
    assert (room(drafters["many"], 3), room(drafters["few"], 3), room(drafters["ngram"], 3)) == (20, 32, 2)


@pytest.mark.parametrize("name", ["exit", "cut"])
def test_drafters_on_the_targets_layers_ask_for_them(home, target, name):
    drafter = made(home, target, name)
    text = Text(target, [3, 9, 12, 5], 3)
    at(drafter, text, 4)
    with pytest.raises(DrafterError, match=f"{name}.*the target's layers"):
        drafter.branches(text.prefixes[4], None)


@pytest.mark.parametrize("name", ["exit", "cut", "tree-exit", "tree-cut"])
def test_the_verifiers_own_layers_draft_the_same(home, target, name):
    """Read over the verifier's cache, between its passes, or by reading the whole text for each node."""
    tokens, width = [3, 9, 12, 5, 7, 20, 31], 3
    text, drafter = Text(target, tokens, width), made(home, target, name, processing=(0.0, 0))
    prepare([drafter], K)
    verifier = Verifier(target.model, 30)
    verifier.begin(text.tokens[:, :width], 40)
    for end, found in text.calls(drafter):
        each = [verifier.layers(0, tokens[end - 1]), WholeLayers(target, tokens[:end])]
        one, other = (draft(drafter, found, text.prefixes[end], K, Drawn(), 0, layers) for layers in each)
        assert lists_of(one.trees) == lists_of(other.trees)
        verifier.step(text.tokens[:, end - 1])
