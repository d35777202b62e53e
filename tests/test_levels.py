"""Nodes read level by level, behind a text and behind its unread last token, against the whole text read alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sizes import few
from tests.strategies_trees import node_lists, paths_of, trees_of
from tests.test_verify import MODELS, WORDS, alone, assert_same, model_of, prompts
from traces.drafters.base import PAD, Trees, pad_left
from traces.kv import Stepper
from traces.levels import VerifyError, cut_short
from traces.trees import chain
from traces.verify import Verifier


@torch.inference_mode()
def states_alone(model, text):
    """Hidden states (H,) after each layer at a text's last token, without any cache, mask or padding."""
    return [state[0, -1] for state in model(torch.tensor([text]), output_hidden_states=True).hidden_states]


def levels_of(nodes):
    """[(node, place of its parent in the level before)] of each level of a tree [(token, parent)]."""
    levels: list[list[tuple[int, int]]] = []
    depths: list[int] = []
    for node, (_, parent) in enumerate(nodes):
        depths.append(depths[parent] + 1 if parent >= 0 else 0)
        if depths[-1] == len(levels):
            levels.append([])
        above = [other for other, _ in levels[depths[-1] - 1]].index(parent) if parent >= 0 else 0
        levels[depths[-1]].append((node, above))
    return levels


def grown(grow, nodes):
    """What `grow` returns for each node of a tree, by node."""
    found = {}
    for level in levels_of(nodes):
        parent, tokens = (
            torch.tensor([above for _, above in level]),
            torch.tensor([nodes[node][0] for node, _ in level]),
        )
        found |= {node: row for (node, _), row in zip(level, grow(parent, tokens), strict=True)}
    return found


def moved(model, texts, data, **options):
    """A verifier that has read texts by rounds that accepted drafts of different lengths; the texts grow with it."""
    verifier = Verifier(model, 10, **options)
    verifier.begin(pad_left(texts), 60)
    for _ in range(2):
        counts = [data.draw(st.integers(0, 3)) for _ in texts]
        drafts = torch.tensor([[data.draw(st.integers(0, WORDS - 1)) for _ in range(4)] for _ in texts])
        verifier.verify(drafts[:, 0], chain(drafts[:, 1:]))
        path = [[d if d < count else PAD for d in range(max(counts))] for count in counts]
        verifier.accept(torch.tensor(path, dtype=torch.int64).view(len(texts), max(counts)))
        for text, own, count in zip(texts, drafts.tolist(), counts, strict=True):
            text += own[: 1 + count]
    return verifier


@pytest.mark.parametrize("name", list(MODELS))
@settings(max_examples=few(15, 3))
@given(prompts, st.data())
def test_the_first_layers_say_what_the_whole_model_says_there(name, texts, data):
    """At the last token, which the model has not read, and at nodes; and reading them changes no bit of what follows.

    Texts of a batch have different ends, and each is read behind with another number of layers.
    """
    model, texts = MODELS[name], [list(text) for text in texts]
    verifier = moved(model, texts, data)
    token = torch.tensor([data.draw(st.integers(0, WORDS - 1)) for _ in texts])
    lists = [data.draw(node_lists(WORDS, most=8)) for _ in texts]
    for row, nodes in enumerate(lists):
        layers, text = verifier.layers(row, int(token[row])), [*texts[row], int(token[row])]
        for _ in range(2):
            layer = data.draw(st.integers(0, model.config.num_hidden_layers - 1))
            root = layers.root(layer)
            assert root.shape == (1, 32)
            torch.testing.assert_close(root[0], states_alone(model, text)[layer], rtol=1e-4, atol=1e-4)
            found = grown(lambda parent, tokens, at=layers, layer=layer: at.grow(layer, parent, tokens), nodes)
            assert len(found) == len(nodes)
            assert layers.root(layer) is root  # known; and the tree stays
            layers.root((layer + 1) % 2)  # another depth begins anew
            for node, path in enumerate(paths_of(nodes)):
                expected = states_alone(model, [*text, *path])[layer]
                torch.testing.assert_close(found[node], expected, rtol=1e-4, atol=1e-4)
    trees = trees_of(lists)
    plain = moved_again(model, texts)
    read, without = verifier.verify(token, trees), plain.verify(token, trees)
    for row, nodes in enumerate(lists):
        text = [*texts[row], int(token[row])]
        assert_same(read[row, 0], alone(model, text))
        assert_same(without[row, 0], read[row, 0])
        for node, path in enumerate(paths_of(nodes)):
            assert_same(read[row, 1 + node], alone(model, [*text, *path]))


def moved_again(model, texts):
    """A verifier that has just read the same texts, one behind padding."""
    verifier = Verifier(model, 10)
    verifier.begin(pad_left(texts), 60)
    return verifier


@torch.inference_mode()
@pytest.mark.parametrize("name", list(MODELS))
def test_reading_first_layers_changes_no_bit_of_the_verifier(name):
    """The same rounds with and without; also where more nodes were grown than the tree verified then has."""
    model, found = MODELS[name], []
    for layered in (False, True):
        verifier = Verifier(model, 6, hidden=True)
        verifier.begin(pad_left([[5, 6, 7], [8]]), 20)
        seen = []
        for turn in range(4):
            token = torch.tensor([3 + turn, 4])
            if layered:
                for row in range(2):
                    layers = verifier.layers(row, int(token[row]))
                    layers.grow(1, torch.tensor([0, 0, 0]), torch.tensor([9, 10, 11]))
                    layers.grow(1, torch.tensor([2, 0]), torch.tensor([12, 13]))
            trees = chain(torch.tensor([[10 + turn, 11], [12, 13]])[:, : 2 - turn % 2])
            seen += [verifier.verify(token, trees), *verifier.hidden]
            verifier.accept(torch.tensor([[0, PAD], [0, 1]])[:, : 2 - turn % 2])
        verifier.keep(torch.tensor([1]))
        seen.append(verifier.step(torch.tensor([5])))
        found.append(seen)
    for plain, layered in zip(*found, strict=True):
        assert torch.equal(plain, layered)


@pytest.mark.parametrize("name", list(MODELS))
@settings(max_examples=few(15, 3))
@given(prompts, st.data())
def test_levels_are_texts_of_their_own(name, texts, data):
    """Behind every text of a batch, with a stepper and with a verifier; steps go on with the same bits."""
    model, texts = MODELS[name], [list(text) for text in texts]
    stepper, plain = Stepper(model, nodes=8), Stepper(model)
    others = [moved(model, own := [list(text) for text in texts], data), own]
    stepper.begin(pad_left(texts), 40)
    plain.begin(pad_left(texts), 40)
    for _ in range(2):
        token = torch.tensor([data.draw(st.integers(0, WORDS - 1)) for _ in texts])
        assert torch.equal(stepper.step(token), plain.step(token))
        others[0].step(token)
        for row, value in enumerate(token.tolist()):
            texts[row].append(value)
            others[1][row].append(value)
        for row in range(len(texts)):
            nodes = data.draw(node_lists(WORDS, most=8))
            for levels, text in ((stepper.levels(row), texts[row]), (others[0].levels(row), others[1][row])):
                found = grown(levels.grow, nodes)
                for node, path in enumerate(paths_of(nodes)):
                    assert_same(found[node], alone(model, [*text, *path]))


@pytest.mark.parametrize("name", list(MODELS))
@settings(max_examples=few(15, 3))
@given(st.lists(st.integers(2, WORDS - 1), min_size=1, max_size=6), st.data())
def test_an_accepted_path_is_read(name, text, data):
    """What was accepted is not read again, and what was not is gone."""
    model, text = MODELS[name], list(text)
    stepper = Stepper(model, nodes=8)
    stepper.begin(torch.tensor([text]), 40)
    for _ in range(3):
        nodes, levels = data.draw(node_lists(WORDS, most=8)), stepper.levels()
        grown(levels.grow, nodes)
        order = [node for level in levels_of(nodes) for node, _ in level]  # as they were read
        path, node = [], data.draw(st.integers(-1, len(nodes) - 1))
        while node >= 0:
            path, node = [node, *path], nodes[node][1]
        levels.accept([order.index(node) for node in path])
        text += [nodes[node][0] for node in path]
        tokens = [data.draw(st.integers(0, WORDS - 1)) for _ in range(data.draw(st.integers(1, 3)))]
        for behind, logits in enumerate(stepper.read(torch.tensor([tokens]))[0], 1):
            assert_same(logits, alone(model, [*text, *tokens[:behind]]))
        text += tokens
        with pytest.raises(VerifyError, match="moved on"):
            levels.grow(torch.tensor([0]), torch.tensor([5]))


@torch.inference_mode()
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("kind", [Stepper, Verifier])
def test_tokens_read_at_once_are_read_one_by_one(name, kind):
    """Texts behind padding; the states, too."""
    model, made = MODELS[name], [kind(MODELS[name], nodes=3, hidden=True) for _ in range(2)]
    for each in made:
        each.begin(pad_left([[5, 6, 7], [8]]), 12)
    for tokens in ([[3, 4], [9, 10]], [[11], [12]], [[13, 14, 15], [16, 17, 18]]):
        logits, hidden = made[0].read(torch.tensor(tokens)), made[0].hidden
        for place in range(len(tokens[0])):
            torch.testing.assert_close(
                logits[:, place], made[1].step(torch.tensor(tokens)[:, place]), rtol=1e-4, atol=1e-4
            )
            for whole, state in zip(hidden, made[1].hidden, strict=True):
                torch.testing.assert_close(whole[:, place], state, rtol=1e-4, atol=1e-4)
    assert_same(made[0].step(torch.tensor([2, 3]))[1], alone(model, [8, 9, 10, 12, 16, 17, 18, 3]))


@torch.inference_mode()
def test_only_the_states_of_taps_are_kept():
    model, found = MODELS["llama"], []
    for taps in ((), (0, 2)):
        verifier = Verifier(model, 4, hidden=True, taps=taps)
        verifier.begin(pad_left([[5, 6], [7]]), 12)
        verifier.verify(torch.tensor([3, 4]), chain(torch.tensor([[8, 9], [10, 11]])))
        found.append(verifier)
    assert (found[0].states, found[1].hidden, set(found[1].states)) == ({}, (), {0, 2})
    for tap, state in found[1].states.items():
        assert torch.equal(state, found[0].hidden[tap])
    found[1].accept(torch.tensor([[0], [0]]))
    found[1].step(torch.tensor([3, 4]))
    torch.testing.assert_close(found[1].states[2][0], states_alone(model, [5, 6, 3, 8, 3])[2], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_cut_short_shares_its_weights_and_leaves_it_whole(name):
    model, text = MODELS[name], torch.tensor([[5, 6, 7]])
    before = model(text, output_hidden_states=True)
    cut = cut_short(model, 1)
    weights = {id(weight) for weight in model.parameters()}
    assert {id(weight) for weight in cut.parameters()} < weights
    torch.testing.assert_close(cut(text).last_hidden_state, before.hidden_states[1], rtol=0, atol=0)
    again = model(text, output_hidden_states=True)
    assert torch.equal(again.logits, before.logits)
    assert len(again.hidden_states) == len(before.hidden_states) == model.config.num_hidden_layers + 1
    for layer in (-1, model.config.num_hidden_layers):
        with pytest.raises(VerifyError, match=f"{layer} of {model.config.num_hidden_layers} layers of .*; allowed: 0"):
            cut_short(model, layer)
    with pytest.raises(VerifyError, match="no stack of 1 layers"):
        cut_short(model_of("mamba"), 0)


# --- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_nothing_is_read_beyond_the_context(name):
    """Up to the last position all goes well, places without a node included; learnt positions end there."""
    model, context = MODELS[name], 96
    text = [2 + i % 30 for i in range(context - 3)]
    verifier = Verifier(model, 4, context=context)
    verifier.begin(pad_left([text, [5, 6]]), context)
    trees = Trees(torch.tensor([[7, 8, PAD, PAD], [7, 8, 9, 10]]), torch.tensor([[-1, 0, -1, -1], [-1, 0, 1, 2]]))
    logits = verifier.verify(torch.tensor([3, 3]), trees)
    assert_same(logits[0, 2], alone(model, [*text, 3, 7, 8]))
    verifier.accept(torch.tensor([[0], [0]]))
    trees = Trees(torch.tensor([[PAD, PAD], [7, 8]]), torch.tensor([[-1, -1], [-1, 0]]))
    assert_same(verifier.verify(torch.tensor([8, 8]), trees)[0, 0], alone(model, [*text, 3, 7, 8]))
    verifier.accept(torch.empty(2, 0, dtype=torch.int64))
    with pytest.raises(VerifyError, match="a node at position 96; the model reads 96 tokens"):
        verifier.verify(torch.tensor([3, 3]), chain(torch.empty(2, 0, dtype=torch.int64)))
    stepper = Stepper(model, nodes=4, context=context)
    stepper.begin(torch.tensor([[*text, 3, 7]]), context)
    levels = stepper.levels()
    levels.grow(torch.tensor([0]), torch.tensor([8]))
    with pytest.raises(VerifyError, match="a node at position 96; the model reads 96 tokens"):
        levels.grow(torch.tensor([0]), torch.tensor([8]))


def test_there_must_be_room():
    verifier = Verifier(MODELS["llama"], 4)
    verifier.begin(torch.tensor([[5, 6]]), 3)
    verifier.step(torch.tensor([7]))
    with pytest.raises(VerifyError, match="8 columns of texts and trees; room was made for 7"):
        verifier.verify(torch.tensor([8]), chain(torch.tensor([[1, 2, 3, 4]])))
    layers = verifier.layers(0, 8)
    layers.grow(1, torch.tensor([0]), torch.tensor([5]))
    with pytest.raises(VerifyError, match="a tree of 5 nodes; room was made for 4"):
        layers.grow(1, torch.tensor([0] * 3), torch.tensor([1, 2, 3]))


def test_nodes_must_hang_on_the_level_before():
    stepper = Stepper(MODELS["llama"], nodes=8)
    stepper.begin(pad_left([[5, 6], [7]]), 9)
    levels = stepper.levels(1)
    for parent, tokens in (([1], [5]), ([-1], [5]), ([0], [5, 6]), ([], [])):
        with pytest.raises(VerifyError, match=f"{len(tokens)} nodes behind nodes .*; the level before has 1"):
            levels.grow(torch.tensor(parent, dtype=torch.int64), torch.tensor(tokens, dtype=torch.int64))
    levels.grow(torch.tensor([0, 0]), torch.tensor([5, 6]))
    with pytest.raises(VerifyError, match="no nodes can be accepted here"):  # of two texts
        levels.accept([0])
    stepper.keep(torch.tensor([1]))
    with pytest.raises(VerifyError, match="moved on"):
        levels.grow(torch.tensor([0]), torch.tensor([5]))
    levels = stepper.levels()
    levels.grow(torch.tensor([0, 0]), torch.tensor([5, 6]))
    levels.grow(torch.tensor([1]), torch.tensor([7]))
    for path in ([0, 2], [2], [0, 1], [3], [-1]):
        with pytest.raises(VerifyError, match=r"path .*: node -?\d does not follow there"):
            levels.accept(path)
    levels.accept([1, 2])
    with pytest.raises(VerifyError, match="MistralForCausalLM: draft trees need plain attention layers"):
        Stepper(model_of("windowed"), nodes=2).levels()


def test_layers_and_trees_do_not_mix():
    verifier = Verifier(MODELS["llama"], 4)
    verifier.begin(torch.tensor([[5, 6]]), 9)
    layers = verifier.layers(0, 7)
    layers.grow(1, torch.tensor([0]), torch.tensor([8]))
    with pytest.raises(VerifyError, match=r"2 layers asked for behind nodes read with 1; ask for root\(2\)"):
        layers.grow(2, torch.tensor([0]), torch.tensor([8]))
    verifier.verify(torch.tensor([7]), chain(torch.tensor([[8]])))
    for late in (lambda: layers.grow(1, torch.tensor([0]), torch.tensor([8])), lambda: layers.root(2)):
        with pytest.raises(VerifyError, match="moved on"):
            late()
    for late in (lambda: verifier.layers(0, 7), lambda: verifier.levels(0)):
        with pytest.raises(VerifyError, match="a tree was verified whose path is not yet accepted"):
            late()
