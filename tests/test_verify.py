"""Trees tried on a target in one step, against every path run alone; and what stays in the cache."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sizes import few
from tests.strategies_trees import lists_of, node_lists, paths_of, trees_of
from traces.drafters.base import PAD, Trees, pad_left
from traces.kv import Stepper
from traces.targets import load_target
from traces.trees import chain, walk
from traces.verify import Verifier, VerifyError

WORDS = 40
REAL = "smollm2-135m"


def model_of(name):
    """A tiny model: rotary positions and grouped heads, query norms, or learnt positions."""
    import transformers as hf

    size = {
        "vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 96, "initializer_range": 0.25,
        "pad_token_id": 1,
    }  # fmt: skip
    kinds = {
        "llama": (hf.LlamaForCausalLM, lambda: hf.LlamaConfig(**size)),
        "qwen3": (hf.Qwen3ForCausalLM, lambda: hf.Qwen3Config(**size, head_dim=8)),
        "gpt2": (
            hf.GPT2LMHeadModel,
            lambda: hf.GPT2Config(
                vocab_size=WORDS, n_embd=32, n_layer=2, n_head=4, n_positions=96, initializer_range=0.25
            ),
        ),
        "windowed": (hf.MistralForCausalLM, lambda: hf.MistralConfig(**size, sliding_window=4)),
        "bloom": (hf.BloomForCausalLM, lambda: hf.BloomConfig(vocab_size=WORDS, hidden_size=32, n_layer=1, n_head=2)),
        "mamba": (
            hf.MambaForCausalLM,
            lambda: hf.MambaConfig(vocab_size=WORDS, hidden_size=16, num_hidden_layers=1, state_size=4),
        ),
    }
    kind, config = kinds[name]
    torch.manual_seed(3)
    return kind(config()).eval().requires_grad_(False)


MODELS = {name: model_of(name) for name in ("llama", "qwen3", "gpt2")}


@torch.inference_mode()
def alone(model, text):
    """Logits (V,) behind a text, without any cache, mask or padding."""
    return model(torch.tensor([text])).logits[0, -1]


def assert_same(got, expected, margin=1e-3):
    """Within 1e-4, and the same argmax where it leads by more than the margin."""
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    first, second = expected.topk(2).values.tolist()
    assert first - second <= margin or int(got.argmax()) == int(expected.argmax())


def assert_verified(model, texts, token, trees, logits):
    """Hold every node's logits against its path run alone."""
    for row, nodes in enumerate(lists_of(trees)):
        text = [*texts[row], int(token[row])]
        assert_same(logits[row, 0], alone(model, text))
        for node, path in enumerate(paths_of(nodes)):
            assert_same(logits[row, 1 + node], alone(model, [*text, *path]))


prompts = st.lists(st.lists(st.integers(2, WORDS - 1), min_size=1, max_size=6), min_size=1, max_size=3)


@pytest.mark.parametrize("name", list(MODELS))
@settings(max_examples=few(12, 3))
@given(prompts, st.data())
def test_every_node_is_a_text_of_its_own(name, texts, data):
    """Several rounds: trees of different sizes, accepted paths of different lengths, texts that end."""
    model, texts = MODELS[name], [list(text) for text in texts]
    verifier = Verifier(model, nodes=10)
    first = verifier.begin(pad_left(texts), 40)
    for row, text in enumerate(texts):
        assert_same(first[row], alone(model, text))
    for _ in range(3):
        token = torch.tensor([data.draw(st.integers(0, WORDS - 1)) for _ in texts])
        lists = [data.draw(node_lists(WORDS, most=8)) for _ in texts]
        trees = trees_of(lists, data.draw(st.integers(0, 10)))
        assert_verified(model, texts, token, trees, verifier.verify(token, trees))
        chosen = []  # a node of each text, or none: the path to it is accepted
        for nodes in lists:
            path, node = [], data.draw(st.integers(-1, len(nodes) - 1))
            while node >= 0:
                path, node = [node, *path], nodes[node][1]
            chosen.append(path)
        padded = [path + [PAD] * (max(map(len, chosen)) - len(path)) for path in chosen]
        verifier.accept(torch.tensor(padded, dtype=torch.int64))
        for row, path in enumerate(chosen):
            texts[row] += [int(token[row]), *(lists[row][node][0] for node in path)]
        if data.draw(st.booleans()):  # going on one token at a time
            token = torch.tensor([data.draw(st.integers(0, WORDS - 1)) for _ in texts])
            logits = verifier.step(token)
            for row in range(len(texts)):
                texts[row].append(int(token[row]))
                assert_same(logits[row], alone(model, texts[row]))
        if len(texts) > 1 and data.draw(st.booleans()):
            order = data.draw(st.permutations(range(len(texts))))[:-1]
            verifier.keep(torch.tensor(order))
            texts = [texts[place] for place in order]


@torch.inference_mode()
def test_every_node_on_the_real_target():
    target = load_target(REAL)
    asked = ["Name three rivers in Europe.", "Write a SQL query that counts the rows of the table loans, please."]
    texts = [target.encode_chat([{"role": "user", "content": text}]) for text in asked]
    verifier = Verifier(target.model, nodes=12, hidden=True)
    likely = verifier.begin(pad_left(texts), 80).topk(3).indices
    token = likely[:, 0]
    # children of all kinds: likely ones, the same token on several levels, an id of no use here
    lists = []
    for best, second, third in likely.tolist():
        lists.append([(best, -1), (second, -1), (third, -1), (second, 0), (second, 3), (7, 3), (best, 1)])
    trees = trees_of([lists[0], lists[1][:5]])
    logits = verifier.verify(token, trees)
    assert_verified(target.model, texts, token, trees, logits)
    seen = target.model(
        torch.tensor([[*texts[0], int(token[0]), *paths_of(lists[0])[4]]]), output_hidden_states=True
    ).hidden_states
    for got, expected in zip(verifier.hidden, seen, strict=True):
        scale = expected[0, -1].abs().max()
        torch.testing.assert_close(got[0, 5] / scale, expected[0, -1] / scale, rtol=0, atol=1e-4)
    verifier.accept(torch.tensor([[0, 3, 4], [1, PAD, PAD]]))
    texts = [
        [*texts[0], int(token[0]), *paths_of(lists[0])[4]],
        [*texts[1], int(token[1]), *paths_of(lists[1])[1]],
    ]
    for _ in range(3):  # decoding goes on as it would from a fresh prefix
        token = torch.stack([alone(target.model, text) for text in texts]).argmax(-1)
        logits = verifier.step(token)
        texts = [[*text, int(token[row])] for row, text in enumerate(texts)]
        for row, text in enumerate(texts):
            assert_same(logits[row], alone(target.model, text))


@torch.inference_mode()
@pytest.mark.parametrize("name", list(MODELS))
def test_a_chain_is_read_as_one_token_after_another(name):
    model, prompt = MODELS[name], [[5, 6, 7], [8]]
    stepper, verifier = Stepper(model, hidden=True), Verifier(model, nodes=4, hidden=True)
    torch.testing.assert_close(verifier.begin(pad_left(prompt), 12), stepper.begin(pad_left(prompt), 12))
    drafts = torch.tensor([[9, 10, 11, 12], [13, 14, PAD, PAD]])
    token = torch.tensor([3, 4])
    logits, hidden = verifier.verify(token, chain(drafts)), list(verifier.hidden)
    read = torch.cat([token[:, None], drafts.clamp(min=0)], 1)
    for place in range(5):
        expected = stepper.step(read[:, place])
        for row in range(2 if place < 3 else 1):
            torch.testing.assert_close(logits[row, place], expected[row], rtol=1e-4, atol=1e-4)
            for got, state in zip(hidden, stepper.hidden, strict=True):
                torch.testing.assert_close(got[row, place], state[row], rtol=1e-4, atol=1e-4)
    verifier.accept(torch.tensor([[0, 1, 2, 3], [0, 1, PAD, PAD]]))
    verifier.step(torch.tensor([5, 5]))
    assert verifier.hidden[0].shape == (2, 32)
    for row, text in enumerate(([*prompt[0], 3, 9, 10, 11, 12, 5], [*prompt[1], 4, 13, 14, 5])):
        states = model(torch.tensor([text]), output_hidden_states=True).hidden_states
        torch.testing.assert_close(verifier.hidden[-1][row], states[-1][0, -1], rtol=1e-4, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_decoding_with_trees_writes_what_greedy_decoding_writes(name):
    """Trees that hold the next greedy tokens here and there: no draft is lost, and none too many accepted."""
    model, starts = MODELS[name], [[5, 6, 7, 8], [9]]
    greedy = [list(start) for start in starts]
    for text in greedy:
        for _ in range(30):
            text.append(int(alone(model, text).argmax()))
    rng = np.random.default_rng(1)
    verifier = Verifier(model, nodes=8)
    token = verifier.begin(pad_left(starts), 60).argmax(-1)
    texts, lengths = [list(start) for start in starts], []
    for _ in range(8):
        lists = []
        for row, text in enumerate(texts):
            ahead = greedy[row][len(text) + 1 :]
            wrong = [(int(v), -1) for v in {int(v) for v in rng.integers(0, WORDS, 3)} - {ahead[0]}]
            right = [(v, -1 if not d else len(wrong) + d - 1) for d, v in enumerate(ahead[: rng.integers(0, 4)])]
            lists.append(wrong + right)
        trees = trees_of(lists)
        drawn = verifier.verify(token, trees).argmax(-1)
        path = walk(trees, drawn)
        verifier.accept(path)
        for row in range(2):
            nodes = [node for node in path[row].tolist() if node != PAD]
            assert len(nodes) == sum(parent >= 0 or v == greedy[row][len(texts[row]) + 1] for v, parent in lists[row])
            texts[row] += [int(token[row]), *(lists[row][node][0] for node in nodes)]
            token[row] = drawn[row, nodes[-1] + 1 if nodes else 0]
            lengths.append(len(nodes))
    assert len(set(lengths)) > 2
    for row, text in enumerate(texts):
        assert text == greedy[row][: len(text)]


@torch.inference_mode()
def test_texts_take_room_for_their_own_tokens_alone():
    """Each accepts all of every second chain and none of the others, so in sum both are short."""
    model, texts = MODELS["llama"], [[5, 6, 7], [8, 9]]
    verifier = Verifier(model, nodes=4)
    verifier.begin(pad_left(texts), 3 + 3 * (5 + 1))
    for turn in range(6):
        path = torch.full((2, 4), PAD)
        path[turn % 2] = torch.arange(4)
        logits = verifier.verify(torch.tensor([3, 4]), chain(torch.tensor([[10, 11, 12, 13]] * 2)))
        verifier.accept(path)
        for row in range(2):
            accepted = turn % 2 == row
            texts[row] += [3 + row, *([10, 11, 12, 13] if accepted else [])]
            assert_same(logits[row, 4 if accepted else 0], alone(model, texts[row]))


def test_models_that_do_not_heed_a_trees_mask_are_refused():
    for name in ("windowed", "bloom", "mamba"):
        model = model_of(name)
        with pytest.raises(VerifyError, match=f"{type(model).__name__}: draft trees need plain attention layers"):
            Verifier(model, nodes=4)


def test_paths_must_lead_down_the_trees():
    verifier = Verifier(MODELS["llama"], nodes=4)
    verifier.begin(pad_left([[5, 6], [7]]), 12)
    with pytest.raises(VerifyError, match="no tree was verified"):
        verifier.accept(torch.tensor([[0], [0]]))
    with pytest.raises(VerifyError, match="trees of 5 nodes; this verifier was made for 4"):
        verifier.verify(torch.tensor([3, 3]), chain(torch.tensor([[1, 2, 3, 4, 5]] * 2)))
    trees = Trees(torch.tensor([[3, 4, 5], [3, PAD, PAD]]), torch.tensor([[-1, 0, -1], [-1, 0, 0]]))
    verifier.verify(torch.tensor([3, 3]), trees)
    for path, words in (
        ([[0, 2], [0, PAD]], "path of text 0: node 2 does not follow at depth 1"),
        ([[1], [0]], "path of text 0: node 1 does not follow at depth 0"),
        ([[0, 1], [0, 1]], "path of text 1: node 1 does not follow at depth 1"),  # there is none
        ([[PAD, 0], [0, PAD]], "path of text 0: node 0 does not follow at depth 1"),
        ([[0], [3]], "path names node 3; the trees have 3"),
    ):
        with pytest.raises(VerifyError, match=words):
            verifier.accept(torch.tensor(path))
    verifier.accept(torch.tensor([[0, 1], [0, PAD]]))
    with pytest.raises(VerifyError, match="no tree was verified"):
        verifier.accept(torch.tensor([[0], [0]]))
