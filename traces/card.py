"""The tables of a trace card: what was recorded, what was cut or dropped, how each drafter fares in each domain."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hedgelab.oracles import expected_fixed_rounds
from hedgelab.trace import Trace

__all__ = ["card"]


def card(trace: Trace, k: int = 5) -> str:
    """Return the tables of a trace's card as Markdown.

    MAT is walked: tokens / expected rounds of the drafter alone at draft length k, or at the trace's own if that is
    shorter.
    """
    return "\n".join([*_facts(trace), "", *_texts(trace), "", *_drafters(trace, min(k, trace.k))]) + "\n"


def _table(header: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(header) + " |"
    yield "| --- |" + " ---: |" * (len(header) - 1)
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def _facts(trace: Trace) -> Iterator[str]:
    manifest, facts = trace.manifest, trace.describe()
    how = manifest.target_processing
    yield f"### `{manifest.name}`"
    yield ""
    yield (
        f"{trace.sequences} texts, {trace.rows} tokens, {len(trace.drafters)} drafters, k = {trace.k}; "
        f"target {manifest.target.name} ({manifest.target.dtype}), "
        f"temperature {how.temperature:g}, top-k {how.top_k or 'off'}, top-p {how.top_p:g}; "
        f"{facts['bytes'] / 1e6:.2f} MB; cut at a loop: {facts['cuts']}; dropped: {len(facts['dropped'])}."
    )
    for record in facts["dropped"]:
        yield f"- dropped `{record['prompt_id']}`: {record['reason']}"


def _texts(trace: Trace) -> Iterator[str]:
    lengths = np.diff(trace.offsets)
    rows = []
    for domain in trace.manifest.domains:
        here = trace.domains == domain
        if not here.any():
            continue
        stops = trace.stop[here]
        rows.append(
            [
                domain,
                str(len(set(trace.prompt_ids[here]))),
                str(lengths[here].sum()),
                f"{np.median(lengths[here]):.0f}",
                *(str((stops == stop).sum()) for stop in ("length", "eos", "loop")),
            ]
        )
    yield from _table(["domain", "prompts", "tokens", "median", "to the limit", "ended by EOS", "cut at a loop"], rows)


def _drafters(trace: Trace, k: int) -> Iterator[str]:
    fixed = expected_fixed_rounds(trace, k=k).rounds
    tokens = np.diff(trace.offsets)
    domains = [domain for domain in trace.manifest.domains if (trace.domains == domain).any()]
    rows = []
    for i, name in enumerate(trace.drafters):
        cells = []
        for domain in domains:
            here = trace.domains == domain
            mask = np.repeat(here, tokens)
            acceptance = float(trace.gamma[mask, 0, i].mean())
            cells.append(f"{acceptance:.2f} / {tokens[here].sum() / fixed[here, i].sum():.2f}")
        rows.append([name, *cells])
    yield f"Mean acceptance probability of the first draft / MAT of the drafter alone (k = {k}):"
    yield ""
    yield from _table(["drafter", *domains], rows)
