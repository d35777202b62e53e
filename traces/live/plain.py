"""Decoding without drafts: one step of the target a token, by the plain stepper."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from hedgelab.coins import TARGET
from traces.collect import Clock, Job
from traces.drafters.base import pad_left
from traces.kv import Stepper
from traces.live.batch import Heard
from traces.live.chance import Chance
from traces.live.laws import facts_at
from traces.live.models import Models
from traces.live.results import Decoded, Fact, decoded
from traces.live.text import Scores

__all__ = ["autoregressive"]


def autoregressive(
    models: Models, jobs: Sequence[Job], coins: Callable[[Job], Chance], heard: Heard, clock: Clock
) -> list[Decoded]:
    """Decode texts together; the coins are those that certain drafts leave the target."""
    endings, chances = [models.ending(job) for job in jobs], [coins(job) for job in jobs]
    written: list[list[int]] = [[] for _ in jobs]
    facts: list[list[Fact]] = [[] for _ in jobs]
    stops = [""] * len(jobs)
    stepper, greedy = Stepper(models.target.model), models.config.processing.temperature == 0
    width = max(len(job.ids) for job in jobs)
    with clock.time("prefill"):
        logits = stepper.begin(pad_left([job.ids for job in jobs]), width + models.config.max_new_tokens)
    active = list(range(len(jobs)))
    while active:
        with clock.time("target"):
            texts = [(*jobs[s].ids, *written[s]) for s in active]
            logits, law = models.laws.sound(logits, texts, ", ".join(jobs[s].prompt.id for s in active[:3]))
            for place, s in enumerate(active):
                here = law.rows(slice(place, place + 1))
                token = chances[s].draw(here, len(written[s]) - 1, TARGET)
                if written[s] and greedy:
                    facts[s] += facts_at(logits[place : place + 1], here, [token], spread=False)
                written[s].append(token)
                stops[s] = endings[s].after(written[s])
        for s in active:
            heard(jobs[s], written[s][-1:], stops[s])
        staying = [place for place, s in enumerate(active) if not stops[s]]
        if 0 < len(staying) < len(active):
            stepper.keep(torch.tensor(staying))
        active = [active[place] for place in staying]
        if active:
            with clock.time("target"):
                logits = stepper.step(torch.tensor([written[s][-1] for s in active]))
    return [
        decoded(
            job, tokens, stop, [(-1, t, 0, 0, 1, 0) for t in range(len(tokens) - 1)], kept, Scores.empty(0, (), 1), {}
        )
        for job, tokens, stop, kept in zip(jobs, written, stops, facts, strict=True)
    ]
