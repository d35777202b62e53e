"""What decoding gives: texts with their rounds, and what a run of them took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hedgelab.metrics import RoundLog
from traces.collect import Clock, Job
from traces.live.text import Scores

__all__ = ["CLOSE", "DecodeError", "Decoded", "Fact", "Round", "Run", "decoded"]

CLOSE = 1e-3  # top-2 margin of logits below which passes of other shapes may round to another argmax
Round = tuple[int, int, int, int, int, int]  # pick, start, accepted, raw, committed, proposed: see `Decoded`
Fact = tuple[float, float, float]  # margin, logprob, entropy of the target at a row


class DecodeError(RuntimeError):
    """A text cannot be decoded, or not on; the message names the text, the row and the model."""


@dataclass
class Decoded:
    """One text. R rounds, T rows.

    tokens : written, the first one (which no round makes) included. stop : why it ended, as in a trace
    picks, starts, accepted, raw, committed, proposed : (R,) of each round. picks : -1 where nobody drafted. accepted :
        drafts on the path, cut at the text's end; raw : before that cut. proposed : how deep the draft was
    margin, logprob, entropy : (T,) of the target at each row; () where neither greedy nor kept. scores : of all
        drafters, where rows were evaluated
    dropped : drafters that failed and were left out, with the reason
    """

    job: Job
    tokens: list[int]
    stop: str
    picks: NDArray[np.int64]
    starts: NDArray[np.int64]
    accepted: NDArray[np.int64]
    raw: NDArray[np.int64]
    committed: NDArray[np.int64]
    proposed: NDArray[np.int64]
    margin: NDArray[np.float32]
    logprob: NDArray[np.float32]
    entropy: NDArray[np.float32]
    scores: Scores
    dropped: dict[str, str]

    @property
    def rows(self) -> int:
        """Tokens that rounds committed: all but the first."""
        return len(self.tokens) - 1


def decoded(
    job: Job, tokens: list[int], stop: str, rounds: Sequence[Round], facts: Sequence[Fact], scores: Scores,
    dropped: dict[str, str],
) -> Decoded:  # fmt: skip
    """Return a text from its rounds and facts, one after another."""
    picks, starts, accepted, raw, committed, proposed = np.array(rounds, np.int64).reshape(-1, 6).T
    margin, logprob, entropy = np.array(facts, np.float32).reshape(-1, 3).T
    return Decoded(
        job, tokens, stop, picks, starts, accepted, raw, committed, proposed, margin, logprob, entropy, scores, dropped
    )


@dataclass
class Run:
    """Texts decoded with one policy.

    seconds : wall seconds by part: prefill, target, draft, evaluate, learn. wall, cpu : of the whole, loading left out
    refused : second turns of conversations that could not be decoded, with the reason
    """

    policy: str
    drafters: tuple[str, ...]
    texts: list[Decoded]
    clock: Clock
    wall: float = 0.0
    cpu: float = 0.0
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Tokens that rounds committed, the first token of each text left out."""
        return sum(text.rows for text in self.texts)

    @property
    def rounds(self) -> int:
        """Rounds of all texts."""
        return sum(len(text.picks) for text in self.texts)

    @property
    def log(self) -> RoundLog:
        """The rounds of all texts, for `hedgelab.metrics`."""
        texts = self.texts
        return RoundLog.of_rounds(
            proposed=np.concatenate([text.proposed for text in texts]),
            accepted=np.concatenate([text.accepted for text in texts]),
            committed=np.concatenate([text.committed for text in texts]),
            request=np.repeat(np.arange(len(texts)), [len(text.picks) for text in texts]),
            raw_accepted=np.concatenate([text.raw for text in texts]),
        )

    @property
    def mat(self) -> float:
        """Mean committed tokens a round, over all rounds."""
        return self.rows / self.rounds if self.rounds else float("nan")

    @property
    def tokens_per_second(self) -> float:
        """Written tokens, first ones included, per wall second, prompts' passes included."""
        return (self.rows + len(self.texts)) / self.wall if self.wall else float("nan")

    @property
    def close_calls(self) -> int:
        """Rows whose two largest logits differ by less than `CLOSE`."""
        return sum(int((text.margin < CLOSE).sum()) for text in self.texts)
