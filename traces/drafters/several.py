"""Several drafts from another drafter's law at once, verified one by one by recursive rejection.

Two forms of m drafts:

    nodes      m fresh drafts at every node that is reached: alpha is `hedgelab.acceptance.recursive` at every depth
    sequences  m sequences of k tokens, each drawn on its own; at each depth those that equal the path so far are
               verified: `hedgelab.acceptance.sequences`, with the law of their number carried along the path

Both are lossless and replay exactly under policies that choose before drafting: alpha is, by its definition, the chance
that the path's token is an accepted draft given that the round came so far. Choosing among completed drafts, by what
was drafted, is another sampler: no alpha of this kind replays it.

Under `sequences`, alpha is 0 and gamma NaN behind a token that could not have been drafted. Under `nodes` they are
those of a round that came there whether or not it could, as for one draft. Certain drafts (temperature 0) are all
equal, so both forms are then the one certain draft.

Drafted live, nodes cost m^k tokens when drafted ahead, or a pass a depth on the path; sequences cost m chains.
Source: Miao et al. 2024, "SpecInfer" (unconfirmed against its text); the rule is derived in `hedgelab.several_drafts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

import hedgelab.storage.manifest as manifest
from hedgelab.storage.manifest import Processing
from hedgelab.storage.typed_json import between, one_of
from traces.acceptance import several_alpha_gamma
from traces.drafters.base import DeepLaws, FlatDrafter, Logits, Reading, States
from traces.sampling import Dense, OneHot, process

__all__ = ["FORMS", "Options", "Several"]

FORMS = ("nodes", "sequences")


@dataclass(frozen=True)
class Options:
    """over : the name of a drafter listed before. drafts : m. form : nodes or sequences."""

    over: str
    drafts: Annotated[int, between(1, 16)] = 4
    form: Annotated[str, one_of(FORMS)] = "sequences"


class Several(Reading):
    """Several drafts over any drafter with laws. Its own processing makes the law, whatever the other one's is."""

    kind = "several"
    rule = "recursive"

    def __init__(
        self, name: str, processing: Processing, k: int, options: Options, over: FlatDrafter | DeepLaws
    ) -> None:
        super().__init__(name, processing, k, over)
        self.options, self._depth = options, k
        # of rounds begun 0, 1, .. tokens ago, how many of the drafts are left: see `several_alpha_gamma`
        self._survivors = torch.empty(0, 0, options.drafts, dtype=torch.float64)

    def describe(self) -> manifest.Drafter:
        details: dict[str, manifest.JSON] = {
            "over": self.over.name, "drafts": self.options.drafts, "form": self.options.form,
        }  # fmt: skip
        return manifest.Drafter(self.name, self.kind, self.rule, self._depth, self.processing, None, details)

    def begin(self, prompts: Tensor, capacity: int, states: States | None = None) -> None:
        self._survivors = self._survivors.new_empty(len(prompts), 0, self.options.drafts)

    def keep(self, rows: Tensor) -> None:
        self._survivors = self._survivors[rows.to(self._survivors.device)]

    def score(self, found: Logits, target: Dense | OneHot, token: Tensor) -> tuple[Tensor, Tensor]:
        batch, depths, _ = found.values.shape
        # a flat drafter has one law for all its rounds
        values = found.values[:, 0] if isinstance(self.over, FlatDrafter) else found.values.flatten(0, 1)
        law = process(values, self.processing, found.ids, found.index)
        everyone = torch.zeros(batch, depths, self.options.drafts, dtype=torch.float64, device=token.device)
        everyone[..., -1] = 1
        survivors = everyone
        if self.options.form == "sequences" or isinstance(law, OneHot):
            survivors = torch.cat([everyone[:, :1], self._survivors.to(token.device)], 1)[:, :depths]
        alpha, gamma, self._survivors = several_alpha_gamma(target, law, token, survivors)
        return alpha, gamma
