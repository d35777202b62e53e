"""The tables of a trace card: what was recorded, what was cut or dropped, how each drafter fares in each domain, and
whether specialists win at home."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hedgelab.finding import home_advantage
from hedgelab.matrix import acceptance_matrix
from hedgelab.sheets import Sheet
from hedgelab.trace import Trace

__all__ = ["card"]


def card(trace: Trace, k: int = 5) -> str:
    """Return the tables of a trace's card as Markdown.

    k : draft length of the walked MAT, or the trace's own if that is shorter. Acceptance, MAT and the finding are
    explained in `hedgelab.matrix` and `hedgelab.finding`; in the tables the best of a domain is bold, a specialist at
    home in italics.
    """
    return "\n".join([*_facts(trace), "", *_texts(trace), "", *_drafters(trace, min(k, trace.k))]) + "\n"


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
    header = ["domain", "prompts", "tokens", "median", "to the limit", "ended by EOS", "cut at a loop"]
    yield from Sheet("", header, rows).markdown()


def _drafters(trace: Trace, k: int) -> Iterator[str]:
    matrix = acceptance_matrix(trace, k)
    for of in ("acceptance", "mat"):
        yield from matrix.sheet(of).markdown()
        yield ""
    yield from home_advantage(matrix).markdown()
