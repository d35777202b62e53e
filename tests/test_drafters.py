"""Each kind of drafter against a slow twin, and what it refuses."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from hedgelab.storage.manifest import Processing
from tests.strategies_recording import NaiveNGram, naive_lookup, tiny_checkpoint
from traces.drafters import KINDS, Surroundings
from traces.drafters.base import PAD, DrafterError, Prefix, pad_left
from traces.drafters.causal import Causal
from traces.drafters.exit import EarlyExit
from traces.drafters.exit import Options as ExitOptions
from traces.drafters.lookup import Lookup, SuffixIndex
from traces.drafters.lookup import Options as LookupOptions
from traces.drafters.ngram import NGram, WittenBell
from traces.drafters.ngram import Options as NGramOptions
from traces.targets import load_target
from traces.texts import Texts, TextsError

SOFT = Processing(0.8)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return load_target(str(tiny_checkpoint(tmp_path_factory.mktemp("target"))))


def texts_of(samples, vocabulary=9, sha256="", tokenizer=""):
    """Texts from [(prompt, own, domain)]."""
    token = [v for prompt, own, _ in samples for v in (*prompt, *own)]
    sizes = [len(prompt) + len(own) for prompt, own, _ in samples]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    begin = offsets[:-1] + [len(prompt) for prompt, _, _ in samples]
    domain = np.array([d for _, _, d in samples], np.int64)
    return Texts(np.array(token, np.int32), offsets, begin, domain, ("a", "b"), vocabulary, tokenizer, "t", sha256)


# --- lookup --------------------------------------------------------------------------------------------------------

small = st.integers(0, 3)


@given(st.lists(small, max_size=40), st.integers(1, 4), st.integers(1, 4), st.integers(1, 6))
@example([1, 1, 1, 1], 3, 1, 4)  # a suffix that overlaps its own earlier occurrence
@example([], 2, 1, 3)
def test_lookup_finds_what_trying_every_place_finds(text, longest, shortest, k):
    shortest = min(longest, shortest)
    index = SuffixIndex([], longest, shortest)
    for t, token in enumerate(text):
        assert index.find(k) == naive_lookup(text[:t], longest, shortest, k)
        index.append(token)
    assert index.find(k) == naive_lookup(text, longest, shortest, k)


@given(st.lists(st.lists(small, min_size=1, max_size=9), min_size=1, max_size=4), st.data())
def test_lookup_over_a_batch_that_shrinks(prompts, data):
    drafter = Lookup("x", Processing(0.0), 3, LookupOptions(3, 1))
    tokens = pad_left(prompts)
    drafter.begin(tokens, 99)
    texts = [list(prompt) for prompt in prompts]
    for _ in range(6):
        got = drafter.propose(Prefix(tokens))
        for text, row, match in zip(texts, got.tokens.tolist(), got.match.tolist(), strict=True):
            draft, length = naive_lookup(text, 3, 1, 3)
            assert [token for token in row if token != PAD] == draft
            assert match == length
        fresh = torch.tensor(data.draw(st.lists(small, min_size=len(texts), max_size=len(texts))))
        tokens = torch.cat([tokens, fresh[:, None]], 1)
        texts = [[*text, int(token)] for text, token in zip(texts, fresh, strict=True)]
        if len(texts) > 1 and data.draw(st.booleans()):
            order = data.draw(st.permutations(range(len(texts))))[:-1]
            drafter.keep(torch.tensor(order))
            tokens, texts = tokens[order], [texts[place] for place in order]


def test_lookup_says_what_it_is():
    drafter = Lookup("x", Processing(0.0), 5, LookupOptions(4, 2))
    about = drafter.describe()
    assert (about.depth, about.rule, about.kind) == (5, "one_hot", "lookup")
    with pytest.raises(ValueError, match="at most longest"):
        Lookup("x", Processing(0.0), 5, LookupOptions(2, 3))


# --- n-grams -------------------------------------------------------------------------------------------------------

samples = st.lists(
    st.tuples(
        st.lists(st.integers(0, 8), max_size=4), st.lists(st.integers(0, 8), min_size=1, max_size=12), st.just(0)
    ),
    min_size=1,
    max_size=4,
)


@given(samples, st.integers(1, 4), st.lists(st.lists(st.integers(0, 8), max_size=5), min_size=1, max_size=4))
def test_ngrams_equal_dictionaries(trained, order, contexts):
    model = WittenBell(texts_of(trained), order)
    naive = NaiveNGram([(prompt, own) for prompt, own, _ in trained], order)
    laws = model.law(pad_left([[PAD, *context] for context in contexts]))
    for context, law in zip(contexts, laws.double(), strict=True):
        expected = naive.law(context)
        assert model.ids.tolist() == sorted(expected)  # D4: the map from columns to ids
        np.testing.assert_allclose(law, [expected[v] for v in sorted(expected)], rtol=1e-5)
        assert float(law.sum()) == pytest.approx(1, abs=1e-5)


def test_specialists_count_their_domain_only(target):
    texts = texts_of([([1, 2], [3, 4, 3], 0), ([2], [5, 5], 1)], 50, tokenizer=target.tokenizer_sha256)
    home = NGram("home", SOFT, NGramOptions("", ("a",), 2), texts, target)
    both = NGram("both", SOFT, NGramOptions("", (), 2), texts, target)
    assert home.model.ids.tolist() == [3, 4]
    assert both.model.ids.tolist() == [3, 4, 5]
    assert home.describe().details["training_tokens"] == 3
    with pytest.raises(TextsError, match="no texts of domain c; there are: a, b"):
        texts.select(("c",))
    foreign = dataclasses.replace(texts, tokenizer_sha256="0" * 64, target="Some other model")
    with pytest.raises(DrafterError, match="Some other model"):
        NGram("x", SOFT, NGramOptions(""), foreign, target)


def test_contexts_must_fit_their_keys():
    with pytest.raises(ValueError, match="lower order"):
        WittenBell(texts_of([([], [1], 0)], 2**21), 6)


def test_texts_survive_a_file(tmp_path):
    texts = texts_of([([1, 2], [3, 4, 3], 0), ([], [5, 5], 1)], sha256="f" * 64)
    texts.save(tmp_path / "texts.safetensors")
    again = Texts.load(tmp_path / "texts.safetensors")
    for name in ("token", "offsets", "begin", "domain"):
        np.testing.assert_array_equal(getattr(texts, name), getattr(again, name))
    assert again.domains == ("a", "b")
    (tmp_path / "bad").write_bytes(b"x" * 40)
    with pytest.raises(TextsError, match="bad"):
        Texts.load(tmp_path / "bad")
    with pytest.raises(TextsError, match="neither"):
        Texts.load(tmp_path / "missing")


# --- early exits and other models ----------------------------------------------------------------------------------


@torch.inference_mode()
def test_an_exit_is_norm_and_head_on_a_layer(target):
    ids = torch.tensor([[3, 4, 5, 6]])
    states = target.model(ids, output_hidden_states=True).hidden_states
    drafter = EarlyExit("x", SOFT, ExitOptions(2), target)
    got = drafter.logits(Prefix(ids, tuple(state[:, -1] for state in states))).values
    hidden = states[2][0, -1]
    normed = (
        hidden * torch.rsqrt(hidden.pow(2).mean() + target.model.config.rms_norm_eps) * target.model.model.norm.weight
    )
    torch.testing.assert_close(got[0], target.model.lm_head.weight @ normed, rtol=1e-4, atol=1e-5)
    with pytest.raises(DrafterError, match="has 3, allowed: fewer"):
        EarlyExit("x", SOFT, ExitOptions(3), target)


@torch.inference_mode()
def test_a_second_model_reads_the_whole_text(target, tmp_path):
    folder = tiny_checkpoint(tmp_path, seed=7, layers=2, rows=64)  # D3: padded beyond the tokenizer
    other = load_target(str(folder))
    drafter = Causal("x", SOFT, target, other)
    prompts = [[3, 4, 5, 6, 7], [8, 9]]
    tokens = pad_left(prompts)
    drafter.begin(tokens, 20)
    for step in range(4):
        tokens = torch.cat([tokens, torch.tensor([[10 + step], [20 + step]])], 1)
        got = drafter.logits(Prefix(tokens)).values
        for row, values in zip(tokens.tolist(), got, strict=True):
            whole = other.model(torch.tensor([[token for token in row if token != PAD]])).logits[0, -1]
            torch.testing.assert_close(values, whole[: len(values)], rtol=1e-4, atol=1e-4)


def test_other_tokenizers_are_refused_by_content(target, tmp_path):
    swapped = load_target(str(tiny_checkpoint(tmp_path / "swapped", swap=True)))
    assert swapped.vocabulary == target.vocabulary  # equal sizes say nothing
    with pytest.raises(DrafterError) as caught:  # D7
        Causal("x", SOFT, target, swapped)
    assert target.info.name in str(caught.value)
    assert "swapped" in str(caught.value)


def test_every_kind_is_registered():
    certain = {"dynamic-tree", "lookup", "retrieval", "tree"}
    sampled = {"causal", "exit", "head", "medusa", "ngram", "retrieval-chain", "several", "truncated"}
    assert set(KINDS) == certain | sampled


def test_paths_begin_at_the_configuration(target, tmp_path):
    texts = texts_of([([1], [2, 3], 0)], 50, tokenizer=target.tokenizer_sha256)
    texts.save(tmp_path / "some.safetensors")
    made = KINDS["ngram"].make("n", SOFT, NGramOptions("some.safetensors"), Surroundings(target, 4, tmp_path))
    assert made.describe().details["vocabulary"] == 2
