"""A target and a pool of drafters that decode together, and what every round must know of them."""

from __future__ import annotations

from collections.abc import Sequence

from hedgelab.algorithms import learners
from traces.collect import Job, context_of
from traces.config import Config
from traces.drafters.base import Drafter
from traces.endings import Ending
from traces.live.laws import Processor, TargetLaws
from traces.targets import Target

__all__ = ["AUTOREGRESSIVE", "Models"]

AUTOREGRESSIVE = "autoregressive"
FAULTS = ("stop", "drop")


class Models:
    """A target and its drafters, with the target's laws and the rules by which texts end.

    config : its k, processing, seed, loop and max_new_tokens are used. on_fault : "stop" at a drafter that raises or
    gives no law, or "drop" it and go on without it. processors : see `traces.live.laws.TargetLaws`
    """

    def __init__(
        self,
        target: Target,
        drafters: Sequence[Drafter],
        config: Config,
        *,
        on_fault: str = "stop",
        processors: Sequence[Processor] = (),
    ) -> None:
        if on_fault not in FAULTS:
            raise ValueError(f"on_fault must be one of {', '.join(FAULTS)}, got {on_fault!r}")
        reserved = {AUTOREGRESSIVE, "router", *learners()}
        if taken := [drafter.name for drafter in drafters if drafter.name in reserved]:
            raise ValueError(f"drafter {taken[0]!r}: a policy has this name; choose another")
        self.target, self.drafters, self.config = target, list(drafters), config
        self.names = tuple(drafter.name for drafter in drafters)
        self.on_fault, self.context = on_fault, context_of(target, drafters)
        self.laws = TargetLaws(target, config.processing, processors)

    def ending(self, job: Job) -> Ending:
        """Return what says when a text ends."""
        return Ending(len(job.ids), self.target.eos, self.config.max_new_tokens, self.context, self.config.loop)
