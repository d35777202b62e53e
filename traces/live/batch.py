"""The loop: rounds of texts that are decoded together. What a round does is said in `traces.decode`.

The target's passes are those of the batch, all else is each text's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from hedgelab.coins import TARGET
from traces.collect import Clock, Job
from traces.drafters.base import PAD, Drafter, Layers, Trees, fresh_set, pad_left
from traces.live.accept import accept
from traces.live.chance import Chance
from traces.live.draft import Draft, draft, most_tokens, overlaps, prepare
from traces.live.laws import facts_at
from traces.live.models import Models
from traces.live.policy import Play, Policy
from traces.live.results import Decoded, DecodeError, Fact, Round, decoded
from traces.live.text import DraftFault, Scores, Text, Unit
from traces.sampling import Dense, OneHot
from traces.trees import depths_of
from traces.verify import Verifier

__all__ = ["Heard", "TextBatch"]

Heard = Callable[[Job, list[int], str], None]  # a text's job, its new tokens, why it ended ("" for not yet)


@dataclass
class _Lane:
    """A text with its drafters, its policy and its coins, while it is decoded.

    units : of each drafter, with those it is evaluated together with. alive : (N,) who has not failed
    """

    text: Text
    drafters: list[Drafter]
    units: list[Unit]
    play: Play
    chance: Chance
    scores: Scores
    alive: NDArray[np.bool_]
    rounds: list[Round] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Outcome:
    """What verification made of a draft: the accepted nodes from the root down, the target's token behind them, and the
    target's logits and laws (1 + M, V) behind the root and every node."""

    nodes: list[int]
    token: int
    logits: Tensor
    law: Dense | OneHot


class TextBatch:
    """Texts that are decoded together.

    plays : each text's policy and play. keep : evaluate every drafter on every row, whatever the policy needs
    """

    def __init__(
        self,
        models: Models,
        jobs: Sequence[Job],
        plays: Sequence[tuple[Policy, Play]],
        coins: Callable[[Job], Chance],
        k: int,
        keep: bool,
        heard: Heard,
        clock: Clock,
    ) -> None:
        self._models, self._k, self._keep, self._heard, self._clock = models, k, keep, heard, clock
        self._policy = plays[0][0]
        self._evaluates = keep or self._policy.evaluates
        self._wants_facts = keep or models.config.processing.temperature == 0
        pool = models.drafters
        used = [pool[i] for i in self._used()]
        self._layers = sorted({layer for drafter in used for layer in (*drafter.taps, *drafter.reads)})
        prepare(pool, k, None if self._evaluates else 1)  # unless scored, a drafter follows no round but the latest
        nodes = max(most_tokens(drafter, k) for drafter in used)
        self._verifier = Verifier(models.target.model, nodes, bool(self._layers), self._layers)
        prompts = pad_left([job.ids for job in jobs])
        with clock.time("prefill"):
            logits = self._verifier.begin(prompts, prompts.shape[1] + models.config.max_new_tokens)
            states, self._verifier.prompt_states = self._verifier.prompt_states, {}
            _, law = models.laws.sound(logits, [job.ids for job in jobs], f"{jobs[0].prompt.id}, the first token")
        self._lanes = []
        for place, (job, (policy, play)) in enumerate(zip(jobs, plays, strict=True)):
            own = {tap: state[place : place + 1, -len(job.ids) :] for tap, state in states.items()}
            lane = self._lane(job, policy, play, own, coins(job))
            token = lane.chance.draw(law.rows(slice(place, place + 1)), -1, TARGET)
            lane.text.append(token)
            heard(job, [token], lane.text.stop)
            self._lanes.append(lane)
        self._active = list(self._lanes)
        self._leave()

    def _used(self) -> list[int]:
        """Return the drafters that may be asked for anything, with those that they read."""
        one = self._policy.only
        # where a drafter may be dropped, any other may take its place
        if self._evaluates or one is None or self._models.on_fault == "drop":
            return list(range(len(self._models.names)))
        return next(list(unit) for unit in self._policy.units if one in unit)

    def _lane(self, job: Job, policy: Policy, play: Play, states: dict[int, Tensor], chance: Chance) -> _Lane:
        models, k = self._models, self._models.config.k
        ending = models.ending(job)
        drafters = fresh_set(models.drafters)
        units: dict[int, Unit] = {}
        for members in policy.units:
            units |= dict.fromkeys(members, Unit({i: drafters[i] for i in members}, models.target, k, _untimed))
        return _Lane(
            Text(job, ending, states, self._layers),
            drafters,
            [units[i] for i in range(len(drafters))],
            play,
            chance,
            Scores.empty(ending.room(1) if self._evaluates else 0, models.drafters, k),
            np.ones(len(drafters), np.bool_),
        )

    def run(self) -> list[Decoded]:
        """Write all texts to their ends."""
        while self._active:
            self._round()
        return [
            decoded(e.text.job, e.text.written, e.text.stop, e.rounds, e.facts, e.scores, e.dropped)
            for e in self._lanes
        ]

    def _round(self) -> None:
        """Make one round of every text that still grows."""
        clock, lanes = self._clock, self._active
        with clock.time("learn"):
            picks = [lane.play.pick(lane.text.rows, lane.alive) if lane.alive.any() else -1 for lane in lanes]
        with clock.time("draft"):
            drafts = [self._draft(place, lane, picks[place]) for place, lane in enumerate(lanes)]
        with clock.time("target"):
            last = torch.tensor([lane.text.written[-1] for lane in lanes])
            logits = self._verifier.verify(last, _beside([each.trees for each in drafts]))
            outcomes = [self._accept(lane, each, rows) for lane, each, rows in zip(lanes, drafts, logits, strict=True)]
        for place, lane in enumerate(lanes):
            self._commit(place, lane, picks[place], drafts[place], outcomes[place])
        depth = max(len(outcome.nodes) for outcome in outcomes)
        paths = [outcome.nodes + [PAD] * (depth - len(outcome.nodes)) for outcome in outcomes]
        self._verifier.accept(torch.tensor(paths, dtype=torch.int64).reshape(len(paths), depth))
        for lane in lanes:
            self._learn(lane)
        self._leave()

    def _draft(self, place: int, lane: _Lane, pick: int) -> Draft:
        """Return what the drafter that was picked drafts; nothing from one that fails and is dropped."""
        text, nothing = lane.text, Draft(Trees(*torch.empty(2, 1, 0, dtype=torch.int64)))
        if pick < 0:
            return nothing
        unit, k = lane.units[pick], min(self._k, text.ending.room(len(text.written)))
        try:
            unit.follow(text, text.rows, lane.scores if self._evaluates else None, self._since(lane))
            layers = self._verifier.layers(place, text.written[-1])
            prefix, found = unit.found(pick, text, _Ahead(layers))
            return draft(lane.drafters[pick], found, prefix, k, lane.chance, text.rows, layers)
        except Exception as error:
            self._failed(lane, unit, error)
            return nothing

    def _accept(self, lane: _Lane, each: Draft, logits: Tensor) -> _Outcome:
        """Hold a draft against the target's logits behind the root and the nodes.

        Certain drafts: the target draws, and its token is accepted if a child of the node reached holds it. Sampled
        ones: a draft y from law q is accepted with probability min(1, p(y) / q(y)), else the next one is looked at,
        against what p has more than q; where none is left the token is drawn from that.
        """
        text, laws = lane.text, self._models.laws
        whole = (*text.job.ids, *text.written)
        texts = _behind(each, whole) if laws.processors else [whole] * (1 + each.trees.tokens.shape[1])
        logits, law, wrong = laws.of(logits[: len(texts)], texts)
        nodes, token = accept(each, law, lane.chance, text.rows)
        for row in (0, *(1 + node for node in nodes)):  # drafts behind which nothing is written do not matter
            if row in wrong:
                raise laws.lawless(f"{text.job.prompt.id}, row {text.rows}", wrong[row], texts[row])
        return _Outcome(nodes, token, logits, law)

    def _commit(self, place: int, lane: _Lane, pick: int, each: Draft, outcome: _Outcome) -> None:
        """Add the accepted path and the target's token to the text; stop where the text ends."""
        text, start, nodes = lane.text, lane.text.rows, outcome.nodes
        taken = 0
        for value in (*each.trees.tokens[0, nodes].tolist(), outcome.token):
            taken += 1
            if text.append(value):
                break
        accepted, cut = min(len(nodes), taken), taken <= len(nodes)
        # of logits, laws and states, those behind which the committed tokens stand
        rows = torch.tensor([0, *(1 + node for node in nodes)][:taken], device=outcome.logits.device)
        written, law = text.written[-taken:], outcome.law.rows(rows)
        if self._wants_facts:
            lane.facts += facts_at(outcome.logits[rows], law, written, spread=self._keep)
        states = [self._verifier.states[layer][place, rows] for layer in self._layers]
        for j in range(taken):
            own = law.rows(slice(j, j + 1)) if self._evaluates else None
            text.keep(start + j, own, torch.stack([state[j] for state in states]) if states else None)
        lane.rounds.append((pick, start, accepted, len(nodes), taken, _deepest(each)))
        if pick >= 0:
            gammas = overlaps(each, outcome.law) if self._policy.bandit else []
            first, block = (gammas[0], float(np.mean(gammas))) if gammas else (0.0, 0.0)
            with self._clock.time("learn"):
                lane.play.committed(accepted, taken, cut, block=block, first=first)
        self._heard(text.job, written, text.stop)

    def _learn(self, lane: _Lane) -> None:
        """Evaluate the drafters that are due, and tell the policy what is known."""
        text, play = lane.text, lane.play
        if not self._evaluates:
            return
        due = play.due() if lane.alive.any() else []
        if text.stop and (self._keep or self._policy.setting.carry_over):  # whoever has fallen behind
            due = np.flatnonzero(lane.alive).tolist()
        with self._clock.time("evaluate"):
            for unit in dict.fromkeys(lane.units[i] for i in due):
                try:
                    unit.follow(text, text.rows, lane.scores, self._since(lane))
                except Exception as error:
                    self._failed(lane, unit, error)
        if due and self._policy.evaluates:  # what is evaluated for a recording alone is not told
            skips = self._policy.setting.schedule.skips
            upto = np.array([text.rows if skips else unit.rows for unit in lane.units])
            with self._clock.time("learn"):
                play.known(upto, lane.scores)
        living = [unit.rows for unit, alive in zip(lane.units, lane.alive, strict=True) if alive]
        text.forget(min(living, default=text.rows))

    def _since(self, lane: _Lane) -> int:
        """Return the first row that must be scored by who is evaluated now."""
        skips = self._policy.setting.schedule.skips and not self._keep
        return lane.play.waiting if skips else 0

    def _failed(self, lane: _Lane, unit: Unit, error: Exception) -> None:
        """Drop a drafter, with those that are evaluated with it, or stop."""
        names = [self._models.names[i] for i in unit.members]
        where = f"{lane.text.job.prompt.id}, row {lane.text.rows}"
        why = str(error) if isinstance(error, DraftFault) else f"{type(error).__name__}: {error}"
        if self._models.on_fault == "stop":
            raise DecodeError(f"{where}: drafter {' or '.join(map(repr, names))} failed: {why}") from error
        for i, name in zip(unit.members, names, strict=True):
            lane.alive[i] = False
            lane.dropped.setdefault(name, f"{where}: {why}")

    def _leave(self) -> None:
        """Let go of texts that have ended."""
        staying = [place for place, lane in enumerate(self._active) if not lane.text.stop]
        if len(staying) < len(self._active):
            self._active = [self._active[place] for place in staying]
            if staying:
                self._verifier.keep(torch.tensor(staying))


class _Ahead(Mapping[int, Tensor]):
    """The target's states at a text's last token, layer -> (1, H), computed when they are asked for."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers

    def __len__(self) -> int:
        raise TypeError("only layers that are asked for are computed")

    def __iter__(self) -> Iterator[int]:
        raise TypeError("only layers that are asked for are computed")

    def __getitem__(self, layer: int) -> Tensor:
        return self._layers.root(layer)


def _behind(each: Draft, text: Sequence[int]) -> list[Sequence[int]]:
    """Return the text behind the root and behind each node."""
    found = [text]
    for token, parent in zip(each.trees.tokens[0].tolist(), each.trees.parent[0].tolist(), strict=True):
        found.append((*found[1 + parent], token))
    return found


def _beside(trees: Sequence[Trees]) -> Trees:
    """Return trees of single texts as those of a batch."""
    width = max(each.tokens.shape[1] for each in trees)
    tokens, parent = (
        torch.cat([F.pad(getattr(each, part), (0, width - each.tokens.shape[1]), value=PAD) for each in trees])
        for part in ("tokens", "parent")
    )
    return Trees(tokens, parent)


def _deepest(each: Draft) -> int:
    """Return how deep a draft is."""
    trees = each.trees
    return int(depths_of(trees.parent, trees.tokens != PAD).max()) + 1 if trees.tokens.shape[1] else 0


def _untimed(name: str) -> AbstractContextManager[None]:
    return nullcontext()
