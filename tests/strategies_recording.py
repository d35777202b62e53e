"""Strategies, tiny models and naive twins for the recording side. The twins share no code with what they check."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import torch
from hypothesis import strategies as st

WORDS = 50  # ids of the tiny tokenizer; id 0 ends a text
TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"

logit = st.one_of(
    st.integers(-3, 3).map(float),  # ties
    st.floats(-20, 20, width=32),
    st.just(-math.inf),
)


def logit_rows(width: int = 7, rows: int = 3):
    """Rows of logits with ties and -inf, at least one entry of each row finite."""
    row = st.lists(logit, min_size=width, max_size=width).filter(lambda r: max(r) > -math.inf)
    return st.lists(row, min_size=1, max_size=rows)


processings = st.tuples(
    st.sampled_from([0.0, 0.3, 0.6, 1.0, 1.7]),
    st.sampled_from([0, 1, 2, 3, 5, 100]),
    st.sampled_from([1.0, 0.95, 0.8, 0.5, 0.1]),
)


def naive_law(logits, temperature: float, top_k: int = 0, top_p: float = 1.0):
    """The processed law in float64, and how near the nucleus' edge was to another decision."""
    logits = [float(x) for x in logits]
    order = sorted(range(len(logits)), key=lambda v: (-logits[v], v))
    if temperature == 0:
        return np.eye(len(logits))[order[0]], math.inf
    if top_k:
        order = order[:top_k]
    peak = logits[order[0]]
    weight = {v: math.exp((logits[v] - peak) / temperature) for v in order}
    total = math.fsum(weight.values())
    nearest, kept, mass = math.inf, [], 0.0
    for v in order:
        kept.append(v)
        mass += weight[v] / total
        if top_p < 1:
            nearest = min(nearest, abs(mass - top_p))
            if mass >= top_p:
                break
    law = np.zeros(len(logits))
    for v in kept:
        law[v] = weight[v]
    return law / law.sum(), nearest


def naive_alpha_gamma(p, q, token):
    """alpha and gamma by their definition, in float64."""
    return min(1.0, q[token] / p[token]), sum(min(a, b) for a, b in zip(p, q, strict=True))


def naive_lookup(text, longest, shortest, k):
    """Longest suffix, most recent earlier occurrence, by trying every place."""
    for n in range(longest, shortest - 1, -1):
        if len(text) < n:
            continue
        suffix = text[len(text) - n :]
        for end in range(len(text) - 1, n - 1, -1):
            if text[end - n : end] == suffix:
                return text[end : end + k], n
    return [], 0


class NaiveNGram:
    """Interpolated Witten-Bell by dictionaries and recursion."""

    def __init__(self, texts, order):
        self.order = order
        self.count = defaultdict(Counter)
        self.vocabulary = set()
        for prompt, own in texts:
            whole = [*prompt, *own]
            for t in range(len(prompt), len(whole)):
                self.vocabulary.add(whole[t])
                for n in range(order):
                    if n <= t:
                        self.count[tuple(whole[t - n : t])][whole[t]] += 1

    def law(self, text):
        return {v: self._chance(v, min(self.order - 1, len(text)), text) for v in self.vocabulary}

    def _chance(self, v, n, text):
        lower = self._chance(v, n - 1, text) if n else 1 / len(self.vocabulary)
        seen = self.count.get(tuple(text[len(text) - n :]))
        if not seen:
            return lower
        return (seen[v] + len(seen) * lower) / (sum(seen.values()) + len(seen))


def tiny_checkpoint(folder: Path, *, seed=0, layers=3, rows=WORDS, context=96, sharp=1.0, swap=False) -> Path:
    """Write a random Llama of a few thousand weights and its word-level tokenizer.

    rows : width of the logits, at least WORDS. sharp : scale of the logits. swap : exchange two tokens' ids.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=rows, hidden_size=32, intermediate_size=48, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=context, initializer_range=0.25, eos_token_id=0, bos_token_id=1,
        pad_token_id=1, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        model.lm_head.weight.mul_(sharp)
    model.save_pretrained(folder)
    words = ["<end>", "<unk>", *(f"w{i}" for i in range(2, WORDS))]
    if swap:
        words[5], words[6] = words[6], words[5]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", unk_token="<unk>")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    return folder


def tiny_prompts(file: Path, count: int, longest: int = 9, domains=("a", "b")) -> Path:
    """Write `count` prompts a domain of random words in the collector's own format."""
    import json

    rng = np.random.default_rng(5)
    lines = []
    for domain in domains:
        for i in range(count):
            words = " ".join(f"w{w}" for w in rng.integers(2, WORDS, rng.integers(1, longest + 1)))
            message = {"role": "user", "content": words}
            lines.append(json.dumps({"id": f"{domain}{i}", "domain": domain, "entity": "", "messages": [message]}))
    file.write_text("\n".join(lines) + "\n")
    return file


def tiny_head(folder: Path, target, kind: str, taps, ids, *, depth=1, seed=3, last_token=True, **changes) -> Path:
    """Write a checkpoint with random weights: a head that was never trained, but whose every part matters."""
    from traces.checkpoints import Card, map_hash, save_head, weights_of
    from traces.heads import Head

    ids = torch.as_tensor(ids, dtype=torch.int64)
    head = Head(target, kind, taps, ids, seed, depth=depth, last_token=last_token)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in head.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.1)
    weights = weights_of(head)
    card = Card(
        format_version=1, name="tiny", kind=kind, taps=tuple(taps), width=len(ids), vocabulary_sha256=map_hash(ids),
        weights_sha256=hashlib.sha256(weights).hexdigest(), target=target.info.name, target_sha256=target.info.sha256,
        tokenizer_sha256=target.tokenizer_sha256, texts_sha256=(), domains=("a",), temperature=1.0, depth=depth,
        steps=0, seed=seed, training_texts=0, training_tokens=0, tokens_seen=0, heldout_texts=0, heldout_tokens=0,
        acceptance=(),
    )  # fmt: skip
    if kind == "medusa":
        card = dataclasses.replace(card, settings={"last_token": last_token})
    folder.mkdir(parents=True, exist_ok=True)
    save_head(folder, weights, dataclasses.replace(card, **changes))
    return folder


class NaiveHead:
    """A checkpoint in float64 numpy: one text, one round, one token at a time."""

    def __init__(self, folder: Path, target, kind: str, taps):
        from safetensors.numpy import load_file

        self.kind, self.taps, self.target = kind, taps, target
        tensors = load_file(folder / "head.safetensors")
        self.w = {name.removeprefix("weights."): value.astype(np.float64) for name, value in tensors.items()}
        for name, scale in tensors.items():  # of matrices in int8
            if name.startswith("scale."):
                self.w[name.removeprefix("scale.")] *= scale[:, None].astype(np.float64)
        self.ids = tensors["vocabulary"].astype(int)
        model, config = target.model, target.model.config
        self.embedding = model.model.embed_tokens.weight.double().numpy()
        self.norm = model.model.norm.weight.double().numpy()
        self.rows = model.lm_head.weight.double().numpy()[self.ids]
        self.heads, self.groups = config.num_attention_heads, config.num_key_value_heads
        self.size, self.eps = config.hidden_size // config.num_attention_heads, config.rms_norm_eps
        self.theta = config.rope_parameters["rope_theta"]

    @torch.inference_mode()
    def states(self, text):
        """The target's states after each token of a text, one for each tap."""
        hidden = self.target.model(torch.tensor([text]), output_hidden_states=True).hidden_states
        return [[hidden[tap][0, t].double().numpy() for tap in self.taps] for t in range(len(text))]

    def read(self, text):
        """The target's states after each token of a text, and the keys that rounds find there when they begin."""
        states, keys = self.states(text), []
        for t in range(len(text)):
            self._layer(self._inputs(text, t, self._known(states, t)), t, keys)
        return states, keys

    def draft(self, text, begin, depth, states, keys):
        """Logits over the ids at each depth of a round whose prefix ends with text[begin] and that drafts the text."""
        keys, laws, feature = keys[:begin], [], self._known(states, begin)
        for t in range(begin, begin + depth):
            feature = self._layer(self._inputs(text, t, feature), t, keys)
            laws.append(self.rows @ (self._rms(feature, self.eps) * self.norm))
        return laws

    def draft_alone(self, text, begin, depth, states, keys):
        """The most likely tokens drafted by a round that sees text[: begin + 1] and then its own drafts alone.

        Returns the tokens and, for each, by how much its logit leads.
        """
        text, keys, feature = list(text[: begin + 1]), keys[:begin], self._known(states, begin)
        leads = []
        for t in range(begin, begin + depth):
            feature = self._layer(self._inputs(text, t, feature), t, keys)
            logits = self.rows @ (self._rms(feature, self.eps) * self.norm)
            second, first = np.sort(logits)[-2:]
            leads.append(first - second)
            text.append(int(self.ids[logits.argmax()]))
            if self.kind == "truncated":  # the target's first layers read the draft
                feature = self.states(text)[-1][0]
        return text[begin + 1 :], leads

    def _known(self, states, t):
        """The feature that the target gives a round beginning at t."""
        if self.kind == "truncated":
            return states[t][0]
        before = states[t - 1] if t else [np.zeros(len(self.norm))] * len(self.taps)
        return self.w["fuse.weight"] @ np.concatenate([self._rms(state) for state in before])

    def _inputs(self, text, t, feature):
        if self.kind == "truncated":
            return self.w["adapt.weight"] @ feature
        return self.w["join.weight"] @ np.concatenate([self._rms(self.embedding[text[t]]), self._rms(feature)])

    def _layer(self, x, position, keys):
        h = self._rms(x, self.eps) * self.w["layer.input_layernorm.weight"]
        q, k, v = (
            (self.w[f"layer.self_attn.{part}_proj.weight"] @ h).reshape(-1, self.size) for part in ("q", "k", "v")
        )
        keys.append((np.array([self._turn(row, position) for row in k]), v))
        mixed = []
        for head in range(self.heads):
            group = head // (self.heads // self.groups)
            score = np.array([self._turn(q[head], position) @ key[group] for key, _ in keys]) / math.sqrt(self.size)
            weight = np.exp(score - score.max())
            weight /= weight.sum()
            mixed.append(sum(share * value[group] for share, (_, value) in zip(weight, keys, strict=True)))
        x = x + self.w["layer.self_attn.o_proj.weight"] @ np.concatenate(mixed)
        h = self._rms(x, self.eps) * self.w["layer.post_attention_layernorm.weight"]
        gate, up = (self.w[f"layer.mlp.{part}_proj.weight"] @ h for part in ("gate", "up"))
        return x + self.w["layer.mlp.down_proj.weight"] @ (gate / (1 + np.exp(-gate)) * up)

    def _turn(self, row, position):
        half = self.size // 2
        angle = position / self.theta ** (np.arange(half) * 2 / self.size)
        a, b = row[:half], row[half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)])

    @staticmethod
    def _rms(x, eps=1e-6):
        return x / np.sqrt((x * x).mean() + eps)


def naive_of(folder: Path, target):
    """The naive twin of a checkpoint of any kind, by its card."""
    from traces.checkpoints import read_card

    card = read_card(folder)
    if card.kind == "medusa":
        return NaiveMedusa(folder, target, card.taps, card.settings["last_token"])
    return NaiveHead(folder, target, card.kind, card.taps)


class NaiveMedusa:
    """Medusa heads in float64 numpy: one text, one round, one depth at a time. Used like `NaiveHead`."""

    def __init__(self, folder: Path, target, taps, last_token=True):
        from safetensors.numpy import load_file

        tensors = load_file(folder / "head.safetensors")
        self.target, self.taps, self.last_token = target, taps, last_token
        self.ids = tensors["vocabulary"].astype(int)
        self.w = {}
        for name, value in tensors.items():
            if name.startswith("weights."):
                scale = tensors.get(name.replace("weights.", "scale.", 1), np.ones(len(value)))
                self.w[name.removeprefix("weights.")] = (value.T * scale.astype(np.float64)).T
        self.depth = sum(name.endswith(".bias") for name in self.w)
        model = target.model
        self.embedding = model.model.embed_tokens.weight.double().numpy()
        self.norm, self.eps = model.model.norm.weight.double().numpy(), model.config.rms_norm_eps
        self.rows = model.lm_head.weight.double().numpy()[self.ids]
        self.normed = taps[-1] == model.config.num_hidden_layers

    def read(self, text):
        """The target's states after each token of a text, one for each tap; heads keep no keys."""
        with torch.inference_mode():
            hidden = self.target.model(torch.tensor([text]), output_hidden_states=True).hidden_states
        return [[hidden[tap][0, t].double().numpy() for tap in self.taps] for t in range(len(text))], None

    def draft(self, text, begin, depth, states, keys):
        """Logits over the ids at each depth of a round whose prefix ends with text[begin]; as deep as there are heads.

        The target has read the text before that token.
        """
        others = [self._rms(state, 1e-6) for state in states[begin - 1][:-1]]
        start = states[begin - 1][-1].copy()
        if others:
            start += self.w["fuse.weight"] @ np.concatenate(others)
        if self.last_token:
            start += self.w["join.weight"] @ self._rms(self.embedding[text[begin]], 1e-6)
        laws = []
        for d in range(min(depth, self.depth)):
            inner = self.w[f"blocks.{d}.weight"] @ start + self.w[f"blocks.{d}.bias"]
            out = start + inner / (1 + np.exp(-inner))
            laws.append(self.rows @ (out if self.normed else self._rms(out, self.eps) * self.norm))
        return laws

    def draft_alone(self, text, begin, depth, states, keys):
        """The most likely token of each head, and by how much its logit leads."""
        drafted, leads = [], []
        for logits in self.draft(text[: begin + 1], begin, depth, states, keys):
            second, first = np.sort(logits)[-2:]
            drafted.append(int(self.ids[logits.argmax()]))
            leads.append(first - second)
        return drafted, leads

    @staticmethod
    def _rms(x, eps):
        return x / np.sqrt((x * x).mean() + eps)
