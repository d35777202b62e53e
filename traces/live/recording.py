"""A trace of what was decoded: every drafter's scores on every row, written batch by batch.

It is the trace that `python -m traces collect` would have made of the same texts: they are samples of p whatever the
policy was, so any other policy replays on it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from hedgelab.storage.manifest import Dropped
from hedgelab.storage.recording import TraceWriter
from traces.collect import Job, facts_of, manifest_of
from traces.decode import Decoder
from traces.live.results import Decoded, Run

__all__ = ["Recorder"]


class Recorder:
    """Writes texts as they are decoded with `keep=True`; use it in a `with` statement.

    document : what the manifest keeps as the configuration, how texts were decoded included. What was written before
    an interruption is a readable trace, not complete. Raises TraceError for a folder that is not empty.
    """

    def __init__(self, out: Path, decoder: Decoder, jobs: Sequence[Job], document: dict[str, Any], device: str) -> None:
        names = dict.fromkeys(job.prompt.domain for job in jobs)
        names |= dict.fromkeys(job.then.prompt.domain for job in jobs if job.then is not None)
        self.domains = tuple(names)
        config = decoder.config
        manifest = manifest_of(config, document, decoder.target, decoder.drafters, self.domains, jobs, device)
        self._decoder, self._writer = decoder, TraceWriter(out, manifest)

    @property
    def written(self) -> int:
        """Batches written."""
        return self._writer.done

    def write(self, texts: Sequence[Decoded]) -> None:
        """Write a batch of texts as one shard. Those without a row, or on which a drafter failed, are left out."""
        kept, dropped = [], []
        for text in texts:
            if text.dropped:
                dropped.append(Dropped(text.job.prompt.id, "; ".join(f"{n}: {w}" for n, w in text.dropped.items())))
            elif text.rows == 0:
                reason = f"no row: its text ended with the first token ({text.stop})"
                dropped.append(Dropped(text.job.prompt.id, reason))
            else:
                kept.append(text)
        arrays = facts_of([t.job for t in kept], [t.tokens for t in kept], [t.stop for t in kept], self.domains)
        for name, values in (
            ("target_logprob", [t.logprob for t in kept]),
            ("target_entropy", [t.entropy for t in kept]),
            ("target_top2_margin", [t.margin for t in kept]),
        ):
            arrays[name] = np.concatenate([*values, np.empty(0, np.float32)])
        for name, empty in texts[0].scores.columns.items():
            arrays[name] = np.concatenate([*(t.scores.columns[name][: t.rows] for t in kept), empty[:0]])
        self._writer.write(arrays, cuts=sum(text.stop == "loop" for text in kept), dropped=dropped)

    def finish(self, run: Run) -> None:
        """Mark the trace complete."""
        self._writer.finish(run.clock.measured(self._decoder.target))

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._writer.close()
