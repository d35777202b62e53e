"""All hypothesis strategies, and the random traces they are made of."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from hedgelab.storage.columns import ENCODED
from hedgelab.storage.manifest import PATHS, RULES, Drafter, Dropped, Manifest, Model, Processing
from hedgelab.trace import Trace

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8).filter(str.strip)
seeds = st.integers(0, 2**32 - 1)  # of numpy generators: whole arrays are cheaper than an entry at a time
lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6)  # rows of each sequence

STYLES = ("uniform", "binary", "zero", "one", "edges")


def unit_values(rng: np.random.Generator, style: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return float32 values in [0, 1]: anywhere, 0 or 1, all 0, all 1, or what lies next to a boundary."""
    edges = np.array([0, 1, np.nextafter(np.float32(0), 1), np.nextafter(np.float32(1), 0), 0.5], np.float32)
    values = {
        "uniform": lambda: rng.random(shape),
        "binary": lambda: rng.integers(0, 2, shape),
        "zero": lambda: np.zeros(shape),
        "one": lambda: np.ones(shape),
        "edges": lambda: rng.choice(edges, shape),
    }
    return values[style]().astype(np.float32)


def deep_block(
    rng: np.random.Generator, style: str, lengths: Sequence[int], k: int, n: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return alpha, gamma (rows, k, n) and proposed (rows, n) as a trace of these sequence lengths may hold them."""
    rows = sum(lengths)
    alpha, gamma = unit_values(rng, style, (rows, k, n)), unit_values(rng, style, (rows, k, n))
    proposed = rng.integers(0, k + 1, (rows, n))
    first = 0
    for length in lengths:
        for t in range(first, first + length):
            for d in range(min(k, t - first + 1)):
                beyond = d >= proposed[t - d]
                alpha[t, d, beyond] = gamma[t, d, beyond] = 0
                left = (alpha[t - 1, d - 1] == 0 if d else np.zeros(n, bool)) & ~beyond
                left &= rng.random(n) < 0.7  # some kinds stay defined
                alpha[t, d, left], gamma[t, d, left] = 0, np.nan
        first += length
    return alpha, gamma, proposed


@st.composite
def trace_arguments(draw: st.DrawFn, *, layouts: tuple[str, ...] = ("flat", "deep", "mixed")) -> dict[str, Any]:
    """Arguments of `Trace.from_arrays`: 1 to 6 sequences of 1 to 9 rows, 1 to 4 drafters, k from 1 to 5."""
    rng = np.random.default_rng(draw(seeds))
    layout, style = draw(st.sampled_from(layouts)), draw(st.sampled_from(STYLES))
    ends = np.cumsum(draw(lengths))
    rows, s = int(ends[-1]), len(ends)
    n = draw(st.integers(1, 4))
    k = draw(st.integers(1 if layout == "flat" else 2, 5))
    arguments: dict[str, Any] = {
        "token": rng.integers(0, 50, rows),
        "offsets": np.concatenate([[0], ends]),
        "domains": [f"domain {i}" for i in rng.integers(0, 3, s)],
        "drafters": [f"drafter {i}" for i in range(n)],
        "k": k,
    }
    if layout == "flat":
        shape = draw(st.sampled_from([(rows, n), (rows, 1, n)]))
        arguments |= {name: unit_values(rng, style, shape) for name in ("alpha", "gamma")}
    else:
        alpha, gamma, proposed = deep_block(rng, style, np.diff([0, *ends]), k, n)
        arguments |= {"alpha": alpha, "gamma": gamma, "proposed": proposed}
        if layout == "mixed":
            depths = rng.choice([1, k], n)
            flat = depths == 1
            proposed[:, flat] = k
            for block in (alpha, gamma):
                block[:, :, flat] = unit_values(rng, style, (rows, 1, int(flat.sum())))
            arguments["depths"] = depths.tolist()
    if draw(st.booleans()):
        arguments["confidence"] = np.where(rng.random((rows, n)) < 0.3, np.nan, rng.random((rows, n)))
    if draw(st.booleans()):
        arguments["sequence_id"] = rng.choice(2**40, s, replace=False)
    return arguments


def traces(**options: Any) -> st.SearchStrategy[Trace]:
    """Small valid traces in memory; options as `trace_arguments`."""
    return trace_arguments(**options).map(lambda arguments: Trace.from_arrays(**arguments))


# ------------------------------------------------------------------ recordings


def a_model(name: str = "model") -> Model:
    """Return a model with every field set."""
    return Model(name, f"package:{name}", "main", hashlib.sha256(name.encode()).hexdigest(), "float32", "Apache-2.0")


def a_manifest(**changes: Any) -> Manifest:
    """Return the manifest of a recording not begun: two flat and two deep drafters, k = 3, logits, every encoding."""
    law = Processing(0.6, 50, 0.95)
    fields: dict[str, Any] = {
        "format_version": 1,
        "name": "test",
        "path": "own_sample",
        "feedback": "full",
        "k": 3,
        "target": a_model("target"),
        "tokenizer_sha256": "0123456789abcdef" * 4,
        "vocabulary": 100,
        "target_processing": law,
        "drafters": (
            Drafter("lookup", "lookup", "one_hot", 3, law, None, {"longest": 4}),
            Drafter("ngram", "ngram", "chain", 1, law, None, {"orders": [3, 2, 1]}),
            Drafter("suffix", "lookup", "one_hot", 3, law),
            Drafter("small", "causal_lm", "chain", 1, law, a_model("small")),
        ),
        "domains": ("code", "chat"),
        "encodings": {
            "confidence": "fixed16",
            "alpha_flat": "float32",
            "gamma_flat": "fixed16",
            "alpha_deep": "bits",
            "gamma_deep": "fixed16",
        },
        "logits": 2,
        "seed": 7,
        "versions": {"numpy": "2"},
        "licenses": {"target": "Apache-2.0"},
        "settings": {"batch": 4, "rate": 0.5, "names": ["a", "é"], "nested": {"on": True, "none": None}},
        "complete": False,
        "shards": (),
    }
    return Manifest(**{**fields, **changes})


def cumulated(parts: list[int]) -> np.ndarray:
    """Return the offsets of parts of these lengths."""
    return np.concatenate([[0], np.cumsum(parts)]).astype(np.int64)


def shard_columns(
    manifest: Manifest, rng: np.random.Generator, lengths: list[int], first_id: int = 0
) -> dict[str, np.ndarray]:
    """Return random valid columns of one shard, whatever the manifest's drafters, encodings and logits."""
    s, rows, k = len(lengths), sum(lengths), manifest.k
    n, n1, n2 = len(manifest.drafters), len(manifest.flat), len(manifest.deep)
    style = {
        name: "binary"
        if "bits" in (manifest.encodings[f"alpha_{name}"], manifest.encodings[f"gamma_{name}"])
        else "edges"
        for name in ("flat", "deep")
    }
    alpha, gamma, proposed = deep_block(rng, style["deep"], lengths, k, n2)
    if manifest.encodings["gamma_deep"] == "bits":
        gamma = np.nan_to_num(gamma, nan=0)
    prompts = [rng.integers(0, manifest.vocabulary, rng.integers(0, 5)).astype("<i4") for _ in range(s)]
    ids = [f"prompt {first_id + i} é".encode() for i in range(s)]
    columns = {
        "token": rng.integers(0, manifest.vocabulary, rows).astype(np.int32),
        "offsets": cumulated(lengths),
        "sequence_id": np.arange(first_id, first_id + s),
        "domain": rng.integers(0, len(manifest.domains), s).astype(np.int32),
        "prompt_sha256": np.frombuffer(
            b"".join(hashlib.sha256(prompt.tobytes()).digest() for prompt in prompts), np.uint8
        ).reshape(s, 32),
        "prompt_token": np.concatenate([np.empty(0, np.int32), *prompts]),
        "prompt_offsets": cumulated([len(prompt) for prompt in prompts]),
        "prompt_id": np.frombuffer(b"".join(ids), np.uint8),
        "prompt_id_offsets": cumulated([len(name) for name in ids]),
        "first_token": rng.integers(0, manifest.vocabulary, s).astype(np.int32),
        "stop": rng.integers(0, 4, s).astype(np.uint8),
        "target_logprob": -rng.exponential(size=rows).astype(np.float32),
        "target_entropy": rng.random(rows, np.float32),
        "target_top2_margin": rng.exponential(size=rows).astype(np.float32),
        "confidence": np.where(rng.random((rows, n)) < 0.2, np.nan, rng.random((rows, n))).astype(np.float32),
        "alpha_flat": unit_values(rng, style["flat"], (rows, n1)),
        "gamma_flat": unit_values(rng, style["flat"], (rows, n1)),
        "alpha_deep": alpha,
        "gamma_deep": gamma,
        "proposed": proposed.astype(np.int16),
        "match_length": rng.integers(0, 9, (rows, n2)).astype(np.int16),
    }
    if m := manifest.logits:
        records = np.sort(rng.choice(rows, rng.integers(0, rows + 1), replace=False))
        r = len(records)
        columns |= {
            "logit_row": records.astype(np.int64),
            "logit_id": np.array(
                [rng.choice(manifest.vocabulary, m, replace=False) for _ in records], np.int32
            ).reshape(r, m),
            "logit_p": -rng.exponential(size=(r, m)).astype(np.float32),
            "logit_q": -rng.exponential(size=(r, n, m)).astype(np.float32),
            "tail_p": rng.random(r, np.float32),
            "tail_q": rng.random((r, n), np.float32),
        }
    return columns


@st.composite
def recordings(draw: st.DrawFn) -> tuple[Manifest, list[dict[str, np.ndarray]]]:
    """A manifest and the columns of 0 to 3 shards: any mix of flat and deep drafters and of encodings."""
    rng = np.random.default_rng(draw(seeds))
    k = draw(st.integers(1, 4))
    depths = draw(st.lists(st.sampled_from([1, k]), min_size=1, max_size=4))
    law = Processing(draw(st.sampled_from([0.6, 1.0])))
    encodings = {name: draw(st.sampled_from(["float32", "fixed16", "bits"])) for name in ENCODED}
    manifest = a_manifest(
        k=k,
        drafters=tuple(Drafter(f"d{i}", "any", "chain", depth, law) for i, depth in enumerate(depths)),
        encodings={**encodings, "confidence": draw(st.sampled_from(["float32", "fixed16"]))},
        logits=draw(st.sampled_from([0, 1, 3])),
    )
    shards = draw(st.lists(st.lists(st.integers(1, 5), max_size=4), max_size=3))
    firsts = itertools.accumulate((len(shard) for shard in shards), initial=0)
    return manifest, [shard_columns(manifest, rng, shard, first) for shard, first in zip(shards, firsts, strict=False)]


# ------------------------------------------------------------------ manifests

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
).filter(lambda value: "\ud800" not in repr(value))


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Valid manifests, not begun, with every typed field drawn."""
    path = draw(st.sampled_from(PATHS))
    k = draw(st.integers(1, 32767))
    unit = st.floats(0, 1, exclude_min=True)

    def processing() -> Processing:
        return Processing(draw(st.floats(0, 1e3)), draw(st.integers(0, 10**6)), draw(unit))

    def model() -> Model:
        digest = draw(st.sampled_from(["", "0f" * 32]))
        return Model(draw(names), draw(st.text(max_size=5)), "", digest, "bfloat16", draw(st.text(max_size=5)))

    drafters = tuple(
        Drafter(
            name,
            draw(names),
            draw(st.sampled_from(RULES)),
            draw(st.sampled_from([1, k])),
            processing(),
            model() if draw(st.booleans()) else None,
            draw(st.dictionaries(st.text(max_size=5), json_values, max_size=2)),
        )
        for name in draw(st.lists(names, min_size=1, max_size=3, unique=True))
    )
    temperature = {"greedy": 0.0, "own_sample": 0.7, "given": draw(st.floats(0, 2))}[path]
    vocabulary = draw(st.integers(1, 2**31))
    return a_manifest(
        name=draw(names),
        path=path,
        feedback=draw(st.sampled_from(["full", "bandit"])),
        k=k,
        target=model(),
        vocabulary=vocabulary,
        target_processing=Processing(temperature, 0, draw(unit)),
        drafters=drafters,
        domains=tuple(draw(st.lists(names, min_size=1, max_size=3, unique=True))),
        logits=draw(st.integers(0, min(vocabulary, 64))),
        seed=draw(st.integers(0, 2**56 - 1)),
        settings=draw(st.dictionaries(st.text(max_size=5), json_values, max_size=3)),
    )


dropped_records = st.lists(st.builds(Dropped, st.text(max_size=5), names), max_size=2)
