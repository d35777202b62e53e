"""Strategies, tiny models and naive twins for the recording side. The twins share no code with what they check."""

from __future__ import annotations

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
