"""The target's laws: what its logits mean behind a text, and what a trace keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from hedgelab.storage.manifest import Processing
from traces.live.results import DecodeError, Fact
from traces.sampling import Dense, OneHot, entropy, faults, process, top2_margin
from traces.targets import Target

__all__ = ["Processor", "TargetLaws", "facts_at"]

Processor: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (ids (1, L), logits (1, V)) -> logits (1, V)


class TargetLaws:
    """A target's laws under its processing.

    processors : change the logits before, each called with the whole text (prompt, written tokens, drafts on the path)
    once for every position that is looked at
    """

    def __init__(self, target: Target, processing: Processing, processors: Sequence[Processor]) -> None:
        self.target, self.processing, self.processors = target, processing, tuple(processors)

    def sound(self, logits: Tensor, texts: Sequence[Sequence[int]], place: str) -> tuple[Tensor, Dense | OneHot]:
        """Return what `of` does; DecodeError, which begins with `place`, where a row gives no law."""
        logits, law, wrong = self.of(logits, texts)
        for row, fault in wrong.items():
            raise self.lawless(place, fault, texts[row])
        return logits, law

    def lawless(self, place: str, fault: str, text: Sequence[int]) -> DecodeError:
        """Return the error of a row without a law."""
        return DecodeError(f"{place}: logits of {self.target.info.name!r} hold {fault} behind {len(text)} tokens")

    def of(self, logits: Tensor, texts: Sequence[Sequence[int]]) -> tuple[Tensor, Dense | OneHot, dict[int, str]]:
        """Return the target's logits (B, V) behind texts, as its processors leave them, and the law that they mean.

        Last the rows that give no law, with the reason; what stands there means nothing.
        """
        logits = self.target.known(logits)
        for processor in self.processors:
            logits = torch.cat(
                [
                    processor(torch.tensor([list(text)], device=logits.device), row[None])
                    for text, row in zip(texts, logits, strict=True)
                ]
            )
        wrong = faults(logits)
        if wrong:
            logits = logits.clone()
            logits[list(wrong)] = 0.0
        law = process(logits, self.processing)
        assert isinstance(law, Dense | OneHot)
        return logits, law, wrong


def facts_at(logits: Tensor, law: Dense | OneHot, tokens: Sequence[int], spread: bool) -> list[Fact]:
    """Return margin, log-probability and, if asked for, entropy at some rows."""
    drawn = torch.tensor(list(tokens), device=logits.device)
    margin, logprob = top2_margin(logits).tolist(), law.at(drawn).log().tolist()
    return list(zip(margin, logprob, entropy(law).tolist() if spread else [0.0] * len(margin), strict=True))
