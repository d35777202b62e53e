"""The live decoder: speculative decoding of real texts, with a policy that picks the drafter of every round.

A round of one text (rows and prefixes as in `traces.collect`):

    pick      the policy plays a distribution over the drafters, and one is drawn
    draft     it drafts behind the text's last token: a tree, of which a chain is one kind
    verify    the target reads that token and all drafts in one pass, each draft behind its own path
    accept    a path down the tree is accepted, the target adds a token of its own: `traces.live.accept`, in law p
    commit    both join the text. The target's cache keeps the path; of what was refused nothing stays, and nothing of
              the text is ever read twice
    evaluate  drafters that are due read the committed tokens and are scored on them, from laws that verification has
              computed anyway: no pass of the target
    learn     the policy is told the losses that became known, in order of rows

What is decoded is what would be recorded: drafters, laws, rules and scores are those of the collector, the policy's
plays and losses those of `hedgelab.replay`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hedgelab.algorithms import learner as registered
from hedgelab.algorithms import learners
from hedgelab.algorithms.router import LEARNER as ROUTER
from hedgelab.coins import TARGET
from hedgelab.contract import Learner
from hedgelab.metrics import RoundLog
from hedgelab.router import Router
from traces.acceptance import alpha_gamma
from traces.collect import Clock, Job, build_drafters, context_of
from traces.config import Config, load_config
from traces.drafters.base import PAD, Drafter, FlatDrafter, Layers, Trees, fresh_set, pad_left
from traces.endings import Ending
from traces.kv import Stepper
from traces.live.accept import accept
from traces.live.chance import Chance, Coins
from traces.live.draft import Draft, draft, most_tokens, prepare
from traces.live.policy import Play, Policy, Setting
from traces.live.text import DraftFault, Scores, Text, Unit, units_of
from traces.prompts import Prompt
from traces.sampling import Dense, OneHot, entropy, faults, process, top2_margin
from traces.targets import Target, load_target, located
from traces.trees import depths_of
from traces.verify import Verifier

__all__ = ["AUTOREGRESSIVE", "CLOSE", "DecodeError", "Decoded", "Decoder", "Processor", "Run"]

AUTOREGRESSIVE = "autoregressive"
CLOSE = 1e-3  # top-2 margin of logits below which passes of other shapes may round to another argmax
FAULTS = ("stop", "drop")
Processor: TypeAlias = Callable[[Tensor, Tensor], Tensor]  # (ids (1, L), logits (1, V)) -> logits (1, V)


class DecodeError(RuntimeError):
    """A text cannot be decoded, or not on; the message names the text, the row and the model."""


@dataclass
class Decoded:
    """One text. R rounds, T rows.

    tokens : written, the first one (which no round makes) included. stop : why it ended, as in a trace
    picks, starts, accepted, committed, proposed : (R,) of each round. accepted : drafts on the path, cut at the text's
        end; raw : (R,) accepted drafts before that cut
    margin, logprob, entropy : (T,) of the target at each row. scores : of all drafters, where rows were evaluated
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


@dataclass
class _Lane:
    """A text with its drafters, its policy and its coins, while it is decoded."""

    text: Text
    drafters: list[Drafter]
    units: list[Unit]
    unit_of: list[int]
    play: Play
    chance: Chance
    scores: Scores
    alive: NDArray[np.bool_]
    upto: NDArray[np.int64]
    rounds: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    facts: list[tuple[float, float, float]] = field(default_factory=list)  # margin, logprob, entropy of each row
    dropped: dict[str, str] = field(default_factory=dict)


class Decoder:
    """A target and a pool of drafters, ready to decode.

    config : its k, processing, seed, loop and max_new_tokens are used. on_fault : "stop" at a drafter that raises or
    gives no law, or "drop" it and go on without it. processors : change the target's logits before its processing, each
    called with the whole text (prompt, written tokens, drafts on the path) once for every position that is looked at;
    what they see is never a text that was not, or could not have been, written

    >>> decoder = Decoder.open("traces/configs/live.yaml")  # doctest: +SKIP
    >>> decoder.run(decoder.jobs(["Tell me about owls."]), "normalhedge").mat  # doctest: +SKIP
    1.4
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
        self.on_fault, self.processors = on_fault, tuple(processors)
        self.context = context_of(target, drafters)

    @classmethod
    def open(
        cls,
        config: str | Path | Config,
        *,
        pool: Path | None = None,
        device: str = "cpu",
        dtype: str = "float32",
        on_fault: str = "stop",
        processors: Sequence[Processor] = (),
    ) -> Decoder:
        """Return the decoder that a configuration names; relative paths of drafters begin at `pool`, or beside it."""
        found = config if isinstance(config, Config) else load_config(Path(config), pool)[0]
        target = load_target(located(found.target, Path(found.folder)), device, dtype)
        return cls(target, build_drafters(found, target), found, on_fault=on_fault, processors=processors)

    def jobs(self, prompts: Sequence[str | Sequence[int]], first: int = 0) -> list[Job]:
        """Return jobs for prompts: what a user says, or ids as they are. first : the number of the first text.

        A text's number decides its coins.
        """
        found = []
        for i, prompt in enumerate(prompts, first):
            said = Prompt(f"prompt-{i}", "prompt", (("user", prompt),) if isinstance(prompt, str) else ())
            ids = self.target.encode_chat(said.chat()) if isinstance(prompt, str) else list(prompt)
            found.append(Job(i, said, tuple(ids)))
        return found

    # ------------------------------------------------------------------ a run

    @torch.inference_mode()
    def run(
        self,
        jobs: Sequence[Job],
        policy: str | Learner | Router = "normalhedge",
        setting: Setting | None = None,
        *,
        batch: int = 1,
        keep: bool = False,
        heard: Callable[[Job, list[int], str], None] = lambda job, tokens, stop: None,
        ended: Callable[[list[Decoded]], None] = lambda texts: None,
        chance: Callable[[Job], Chance] | None = None,
        shared: Policy | None = None,
    ) -> Run:
        """Decode texts and return them.

        policy : a learner, or its name; a drafter's name, which then drafts alone; a router; or "autoregressive"
        setting : of the policy; its k is that of the configuration unless given. batch : texts whose passes of the
            target are one. keep : evaluate every drafter on every row, whatever the policy needs
        heard : called with a text's job, its new tokens and why it ended, "" for not yet. ended : with each batch done
        chance : the coins of a text; by default those of the setting's seed (the configuration's without one)
        shared : a policy that carries over, made by `policy`, to go on with what it has learnt in earlier runs

        Raises DecodeError, and ValueError for a policy or a setting that cannot be.
        """
        setting = setting or Setting(self.config.k, seed=self.config.seed)
        self._check(jobs, setting, batch)
        coins = chance or (lambda job: Coins(setting.seed, job.sequence_id, setting.replicate))
        name, learner, route = self._policy(policy)
        run = Run(name, self.names, [], Clock(device=self.target.device))
        if learner is not None:
            if shared is not None and shared.setting != setting:
                raise ValueError("the shared policy was made with another setting")
            shared = shared or Policy(learner, self.names, setting, units_of(self.drafters))
            if shared.bandit and setting.estimator == "alpha":
                raise ValueError("estimator alpha: bandits are told gamma of the first draft here; leave it out")
        wall, cpu = time.perf_counter(), time.process_time()
        queue = deque(jobs)
        while queue:
            now = [queue.popleft() for _ in range(min(batch, len(queue)))]
            if learner is None or shared is None:
                done = self._autoregressive(now, coins, heard, run.clock)
            else:
                done = []
                plays = []
                for job in now:
                    own = shared
                    if batch > 1 and not setting.carry_over:  # so that no text's picks depend on the texts beside it
                        own = Policy(learner, self.names, setting, shared.units, job.sequence_id)
                    elif setting.carry_over:
                        self._once(shared, job)
                    plays.append((own, own.begin(route(job) if route else ())))
                done = _Batch(self, now, plays, coins, setting.k, keep, heard, run.clock).run()
            run.wall, run.cpu = time.perf_counter() - wall, time.process_time() - cpu
            run.texts += done
            ended(done)
            for text in reversed(done):
                if text.job.then is not None:
                    second = text.job.second(text.tokens, self.target.eos)
                    if len(second.ids) < self.context:
                        queue.appendleft(second)
                    else:
                        run.refused[second.prompt.id] = self._no_room(second)
        return run

    def policy(self, policy: str | Learner, setting: Setting) -> Policy:
        """Return a policy over this pool, for several runs to share."""
        _, learner, _ = self._policy(policy)
        if learner is None or not setting.carry_over:
            raise ValueError("only a learner whose setting carries over can be shared")
        return Policy(learner, self.names, setting, units_of(self.drafters))

    def _once(self, shared: Policy, job: Job) -> None:
        """Refuse a text whose coins a carried-over learner has learnt from: its drafts would depend on them."""
        if job.sequence_id in shared.texts:
            raise ValueError(
                f"{job.prompt.id}: text {job.sequence_id} was decoded before with this policy; one that carries over "
                "needs texts of different numbers, as `Decoder.jobs(.., first=)` gives them"
            )
        shared.texts.add(job.sequence_id)

    def _check(self, jobs: Sequence[Job], setting: Setting, batch: int) -> None:
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise ValueError(f"batch must be a whole number of at least 1, got {batch!r}")
        if setting.k > self.config.k:
            raise ValueError(f"k is {setting.k}; the drafters were made for drafts of at most {self.config.k}")
        for job in jobs:
            if not job.ids or min(job.ids) < 0 or max(job.ids) >= self.target.vocabulary:
                what = f"ids outside 0 to {self.target.vocabulary - 1}" if job.ids else "no token"
                raise DecodeError(f"{job.prompt.id}: its prompt has {what}")
            if len(job.ids) >= self.context:
                raise DecodeError(f"{job.prompt.id}: {self._no_room(job)}")

    def _no_room(self, job: Job) -> str:
        return f"its prompt of {len(job.ids)} tokens leaves no room in the context of {self.context}"

    def _policy(
        self, policy: str | Learner | Router
    ) -> tuple[str, Learner | None, Callable[[Job], NDArray[np.float64]] | None]:
        """Return a policy's name, its learner (None without drafters), and what it knows of a text beforehand."""
        if isinstance(policy, Router):
            return "router", ROUTER, self._route(policy)
        if isinstance(policy, Learner):
            return policy.name, policy, None
        if policy == AUTOREGRESSIVE:
            return policy, None, None
        if policy in self.names:
            return policy, registered("fixed", drafter=policy), None
        return policy, registered(policy), None

    def _route(self, router: Router) -> Callable[[Job], NDArray[np.float64]]:
        strangers = [name for name in router.about.classes if name not in self.names]
        if strangers or router.about.tokenizer_sha256 != self.target.tokenizer_sha256:
            what = f"drafters that are not in the pool: {', '.join(strangers)}" if strangers else "another tokenizer"
            raise DecodeError(f"the router was trained with {what}")

        def route(job: Job) -> NDArray[np.float64]:
            best = router.about.classes[int(router.probabilities(np.array(job.ids)).argmax())]
            return (np.array(self.names) == best).astype(np.float64)

        return route

    def _ending(self, job: Job, context: int) -> Ending:
        return Ending(len(job.ids), self.target.eos, self.config.max_new_tokens, context, self.config.loop)

    def _law(self, logits: Tensor, texts: Sequence[Sequence[int]], place: str) -> tuple[Tensor, Dense | OneHot]:
        """Return the target's logits (B, V) behind texts, as its processors leave them, and the law they mean."""
        logits, law, wrong = self._laws(logits, texts)
        for row, fault in wrong.items():
            raise self._lawless(place, fault, texts[row])
        return logits, law

    def _lawless(self, place: str, fault: str, text: Sequence[int]) -> DecodeError:
        return DecodeError(f"{place}: logits of {self.target.info.name!r} hold {fault} behind {len(text)} tokens")

    def _laws(self, logits: Tensor, texts: Sequence[Sequence[int]]) -> tuple[Tensor, Dense | OneHot, dict[int, str]]:
        """Return the same, and the rows that give no law, with the reason; what stands there means nothing."""
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
        law = process(logits, self.config.processing)
        assert isinstance(law, Dense | OneHot)
        return logits, law, wrong

    def _autoregressive(
        self, jobs: Sequence[Job], coins: Callable[[Job], Chance], heard: Callable[..., None], clock: Clock
    ) -> list[Decoded]:
        """Decode without drafts, a step of the target a token; the coins are those that certain drafts leave it."""
        endings = [self._ending(job, self.context) for job in jobs]
        chances = [coins(job) for job in jobs]
        written: list[list[int]] = [[] for _ in jobs]
        facts: list[list[tuple[float, float, float]]] = [[] for _ in jobs]
        stops = [""] * len(jobs)
        stepper = Stepper(self.target.model)
        width = max(len(job.ids) for job in jobs)
        with clock.time("prefill"):
            logits = stepper.begin(pad_left([job.ids for job in jobs]), width + self.config.max_new_tokens)
        active, greedy = list(range(len(jobs))), self.config.processing.temperature == 0
        while active:
            with clock.time("target"):
                texts = (
                    [[*jobs[s].ids, *written[s]] for s in active] if self.processors else [jobs[s].ids for s in active]
                )
                logits, law = self._law(logits, texts, ", ".join(jobs[s].prompt.id for s in active[:3]))
                for place, s in enumerate(active):
                    here = law.rows(slice(place, place + 1))
                    token = chances[s].draw(here, len(written[s]) - 1, TARGET)
                    if written[s] and greedy:
                        facts[s] += _facts(logits[place : place + 1], here, [token], spread=False)
                    written[s].append(token)
                    stops[s] = endings[s].after(written[s])
            for s in active:
                heard(jobs[s], written[s][-1:], stops[s])
            staying = [place for place, s in enumerate(active) if not stops[s]]
            if len(staying) < len(active):
                active = [active[place] for place in staying]
                if active:
                    stepper.keep(torch.tensor(staying))
            if active:
                with clock.time("target"):
                    logits = stepper.step(torch.tensor([written[s][-1] for s in active]))
        found = []
        for s, job in enumerate(jobs):
            rows = len(written[s]) - 1
            ones, zeros = np.ones(rows, np.int64), np.zeros(rows, np.int64)
            margin, logprob, spread = _columns_of(facts[s])
            found.append(
                Decoded(
                    job,
                    written[s],
                    stops[s],
                    zeros - 1,
                    np.arange(rows),
                    zeros,
                    zeros,
                    ones,
                    zeros,
                    margin,
                    logprob,
                    spread,
                    Scores.empty(0, 0, (), (), 1),
                    {},
                )
            )
        return found


class _Batch:
    """Texts that are decoded together: the target's passes are one, all else is each text's own."""

    def __init__(
        self,
        decoder: Decoder,
        jobs: Sequence[Job],
        plays: Sequence[tuple[Policy, Play]],
        coins: Callable[[Job], Chance],
        k: int,
        keep: bool,
        heard: Callable[[Job, list[int], str], None],
        clock: Clock,
    ) -> None:
        self.decoder, self.k, self.keep, self.heard, self.clock = decoder, k, keep, heard, clock
        self.policy = plays[0][0]
        self.scores = keep or self.policy.evaluates  # whether rows are evaluated
        self.facts = keep or decoder.config.processing.temperature == 0
        self.lanes: list[_Lane] = []
        self._begin(jobs, plays, coins)

    def _begin(self, jobs: Sequence[Job], plays: Sequence[tuple[Policy, Play]], coins: Callable[[Job], Chance]) -> None:
        """Read the prompts and write first tokens."""
        decoder, target, pool = self.decoder, self.decoder.target, self.decoder.drafters
        used = [pool[i] for i in self._used(plays)]
        self.layers = sorted({layer for drafter in used for layer in (*drafter.taps, *drafter.reads)})
        prepare(pool, self.k, None if self.scores else 1)  # unless scored, a drafter follows no round but the latest
        self.verifier = Verifier(
            target.model, max(most_tokens(drafter, self.k) for drafter in used), bool(self.layers), self.layers
        )
        prompts = pad_left([job.ids for job in jobs])
        capacity = prompts.shape[1] + decoder.config.max_new_tokens
        with self.clock.time("prefill"):
            logits = self.verifier.begin(prompts, capacity)
            states, self.verifier.prompt_states = self.verifier.prompt_states, {}
            _, law = decoder._law(logits, [job.ids for job in jobs], f"{jobs[0].prompt.id}, the first token")
        flat, deep = _blocks(pool, decoder.config.k)
        for place, (job, (policy, play)) in enumerate(zip(jobs, plays, strict=True)):
            ending = decoder._ending(job, decoder.context)
            own = {tap: state[place : place + 1, -len(job.ids) :] for tap, state in states.items()}
            text = Text(job, ending, own, self.layers)
            drafters = fresh_set(pool)
            units = [Unit({i: drafters[i] for i in unit}, target, decoder.config.k, _silent) for unit in policy.units]
            n = len(pool)
            unit_of = [next(u for u, unit in enumerate(policy.units) if i in unit) for i in range(n)]
            rows = ending.room(1) if self.scores else 0
            lane = _Lane(
                text, drafters, units, unit_of, play, coins(job), Scores.empty(rows, n, flat, deep, decoder.config.k),
                np.ones(n, np.bool_), np.zeros(n, np.int64),
            )  # fmt: skip
            token = lane.chance.draw(law.rows(slice(place, place + 1)), -1, TARGET)
            text.append(token)
            self.heard(job, [token], text.stop)
            self.lanes.append(lane)
        self.active = list(self.lanes)
        self._leave()

    def _used(self, plays: Sequence[tuple[Policy, Play]]) -> list[int]:
        """Return the drafters that will be asked for anything, with those that they read."""
        names, learner = self.decoder.names, self.policy.learner
        # where a fixed drafter may be dropped, any other may take its place
        if self.scores or learner.name != "fixed" or self.decoder.on_fault == "drop":
            return list(range(len(names)))
        one = int(np.nanargmax(self._first_play(plays)))
        return [i for unit in self.policy.units if one in unit for i in unit]

    def _first_play(self, plays: Sequence[tuple[Policy, Play]]) -> NDArray[np.float64]:
        """Return what a fixed policy plays in every round."""
        probs = np.zeros(len(self.decoder.names))
        policy = self.policy
        policy.play_kernel(policy.params, policy._fresh.copy(), np.empty(0), policy.rng, probs)
        return probs

    def run(self) -> list[Decoded]:
        """Write all texts to their ends."""
        while self.active:
            self.round()
        return [self._decoded(lane) for lane in self.lanes]

    def round(self) -> None:
        """Make one round of every text that still grows."""
        clock, lanes = self.clock, self.active
        with clock.time("learn"):
            picks = [lane.play.pick(lane.text.rows, lane.alive) if lane.alive.any() else -1 for lane in lanes]
        with clock.time("draft"):
            drafts = [
                self._draft(place, lane, pick) for place, (lane, pick) in enumerate(zip(lanes, picks, strict=True))
            ]
        with clock.time("target"):
            trees = _beside([each.trees for each in drafts])
            logits = self.verifier.verify(torch.tensor([lane.text.written[-1] for lane in lanes]), trees)
            outcomes = []
            for place, (lane, each) in enumerate(zip(lanes, drafts, strict=True)):
                here = logits[place, : 1 + each.trees.tokens.shape[1]]
                paths = self._paths(lane, each)
                seen, law, wrong = self.decoder._laws(here, paths)
                nodes, token = accept(each, law, lane.chance, lane.text.rows)
                for row in (0, *(1 + node for node in nodes)):  # drafts behind which nothing is written do not matter
                    if row in wrong:
                        raise self.decoder._lawless(lane.text.job.prompt.id, wrong[row], paths[row])
                outcomes.append((nodes, token, seen, law))
        for place, (lane, pick, each, outcome) in enumerate(zip(lanes, picks, drafts, outcomes, strict=True)):
            self._commit(place, lane, pick, each, *outcome)
        depth = max(len(nodes) for nodes, *_ in outcomes)
        paths = [nodes + [PAD] * (depth - len(nodes)) for nodes, *_ in outcomes]
        self.verifier.accept(torch.tensor(paths, dtype=torch.int64).reshape(len(paths), depth))
        for lane in lanes:
            self._learn(lane)
        self._leave()

    def _draft(self, place: int, lane: _Lane, pick: int) -> Draft:
        """Return what the drafter that was picked drafts; nothing from one that fails and is dropped."""
        text, k = lane.text, min(self.k, lane.text.ending.room(len(lane.text.written)))
        nothing = Draft(Trees(*torch.empty(2, 1, 0, dtype=torch.int64)))
        if pick < 0:
            return nothing
        unit, drafter = lane.units[lane.unit_of[pick]], lane.drafters[pick]
        try:
            unit.follow(text, text.rows, lane.scores if self.scores else None, self._since(lane))
            layers = self.verifier.layers(place, text.written[-1])
            prefix, found = unit.found(pick, text, _Ahead(layers))
            return draft(drafter, found, prefix, k, lane.chance, text.rows, layers)
        except Exception as error:
            self._failed(lane, pick, error)
            return nothing

    def _commit(
        self, place: int, lane: _Lane, pick: int, each: Draft, nodes: list[int], token: int, logits: Tensor,
        law: Dense | OneHot,
    ) -> None:  # fmt: skip
        """Add the accepted path and the target's token to the text; stop where the text ends."""
        text, start = lane.text, lane.text.rows
        path = [int(each.trees.tokens[0, node]) for node in nodes]
        rows = [0, *(1 + node for node in nodes)]  # of the law and of the states, behind which each token stands
        taken = 0
        for value in (*path, token):
            taken += 1
            if text.append(value):
                break
        accepted, cut = min(len(nodes), taken), taken <= len(nodes)
        kept = rows[:taken]
        if self.facts:
            chosen = law.rows(torch.tensor(kept, device=logits.device))
            lane.facts += _facts(logits[kept], chosen, text.written[-taken:], spread=self.keep)
        states = None
        if self.layers:
            states = torch.stack([self.verifier.states[layer][place, kept] for layer in self.layers], 1)
        for j in range(taken):
            own = law.rows(torch.tensor(kept[j : j + 1], device=logits.device)) if self.scores else None
            text.keep(start + j, own, None if states is None else states[j])
        lane.rounds.append((pick, start, accepted, len(nodes), taken, _proposed(each)))
        if pick >= 0:
            first, block = None, None
            if self.policy.bandit:
                first, block = self._rewards(each, law)
            with self.clock.time("learn"):
                lane.play.committed(accepted, taken, cut, block=block, first=first)
        self.heard(text.job, text.written[-taken:], text.stop)

    def _rewards(self, each: Draft, law: Dense | OneHot) -> tuple[float, float]:
        """Return gamma of a round's first draft, and the mean of 1 - TV over all that was drafted, off the path too."""
        gammas = overlaps(each, law)
        return (gammas[0], float(np.mean(gammas))) if gammas else (0.0, 0.0)

    def _learn(self, lane: _Lane) -> None:
        """Evaluate the drafters that are due, and tell the policy what is known."""
        text, play = lane.text, lane.play
        if not self.scores:
            return
        if not lane.alive.any():
            text.forget(text.rows)
            return
        due = play.due()
        late = self.keep or self.policy.setting.carry_over
        if text.stop and late:  # whoever has fallen behind
            due = [i for i in range(len(lane.drafters)) if lane.alive[i]]
        with self.clock.time("evaluate"):
            for u in sorted({lane.unit_of[i] for i in due}):
                unit = lane.units[u]
                try:
                    unit.follow(text, text.rows, lane.scores, self._since(lane))
                except Exception as error:
                    self._failed(lane, next(iter(unit.members)), error)
        with self.clock.time("learn"):
            skips = self.policy.setting.schedule.skips
            for i in range(len(lane.drafters)):
                unit = lane.units[lane.unit_of[i]]
                lane.upto[i] = text.rows if skips and due else min(unit.rows, text.rows)
            if due and self.policy.evaluates:  # not what is evaluated for a recording alone
                play.known(np.where(lane.alive, lane.upto, np.minimum(lane.upto, text.rows)), lane.scores)
        if not text.stop:
            # units die whole, and a dead one never catches up
            living = [unit.rows for unit in lane.units if any(lane.alive[i] for i in unit.members)]
            text.forget(min(living, default=text.rows))

    def _since(self, lane: _Lane) -> int:
        """Return the first row that must be scored by who is evaluated now."""
        skips = self.policy.setting.schedule.skips and not self.keep
        return lane.play.waiting if skips else 0

    def _failed(self, lane: _Lane, pick: int, error: Exception) -> None:
        """Drop a drafter, with those that read it, or stop."""
        unit = lane.units[lane.unit_of[pick]]
        names = [self.decoder.names[i] for i in unit.members]
        where = f"{lane.text.job.prompt.id}, row {lane.text.rows}"
        why = str(error) if isinstance(error, DraftFault) else f"{type(error).__name__}: {error}"
        if self.decoder.on_fault == "stop":
            raise DecodeError(f"{where}: drafter {self.decoder.names[pick]!r} failed: {why}") from error
        for i, name in zip(unit.members, names, strict=True):
            lane.alive[i] = False
            lane.dropped.setdefault(name, f"{where}: {why}")

    def _paths(self, lane: _Lane, each: Draft) -> list[Sequence[int]]:
        """Return the text behind the root and behind each node, of use to processors alone."""
        text = (*lane.text.job.ids, *lane.text.written)
        found: list[Sequence[int]] = [text]
        if not self.decoder.processors:
            return found * (1 + each.trees.tokens.shape[1])
        for token, parent in zip(each.trees.tokens[0].tolist(), each.trees.parent[0].tolist(), strict=True):
            found.append((*found[1 + parent], token))
        return found

    def _leave(self) -> None:
        """Let go of texts that have ended."""
        staying = [place for place, lane in enumerate(self.active) if not lane.text.stop]
        if len(staying) < len(self.active):
            self.active = [self.active[place] for place in staying]
            if staying:
                self.verifier.keep(torch.tensor(staying))

    def _decoded(self, lane: _Lane) -> Decoded:
        picks, starts, accepted, raw, committed, proposed = (
            np.array(column, np.int64) for column in (zip(*lane.rounds, strict=True) if lane.rounds else [[]] * 6)
        )
        margin, logprob, spread = _columns_of(lane.facts)
        return Decoded(
            lane.text.job, lane.text.written, lane.text.stop, picks, starts, accepted, raw, committed, proposed,
            margin, logprob, spread, lane.scores, lane.dropped,
        )  # fmt: skip


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


def overlaps(each: Draft, law: Dense | OneHot) -> list[float]:
    """Return gamma at the root and at every other node that has children, whether or not the path came there.

    law : the target's, of 1 + M rows. Of sampled drafts the overlap of the first one at each node with the target's
    law, of certain ones the target's mass on the node's children.
    """
    tokens, parents = each.trees.tokens[0].tolist(), each.trees.parent[0].tolist()
    children: dict[int, list[int]] = {}
    for token, parent in zip(tokens, parents, strict=True):
        children.setdefault(parent, []).append(token)
    found = []
    for node, below in children.items():
        here = law.rows(torch.tensor([1 + node]))
        # each token on the law's device
        drafted = torch.tensor(below, device=(here.token if isinstance(here, OneHot) else here.probs).device)
        if each.laws is not None:
            gamma = alpha_gamma(here, each.laws[1 + node], drafted[:1])[1]
            found.append(float(gamma))
        else:
            found.append(min(1.0, sum(float(here.at(token)) for token in drafted.split(1))))
    return found


def _beside(trees: Sequence[Trees]) -> Trees:
    """Return trees of single texts as those of a batch."""
    width = max(each.tokens.shape[1] for each in trees)
    return Trees(
        *(
            torch.cat([torch.nn.functional.pad(part, (0, width - part.shape[1]), value=PAD) for part in parts])
            for parts in ([each.tokens for each in trees], [each.parent for each in trees])
        )
    )


def _blocks(drafters: Sequence[Drafter], k: int) -> tuple[list[int], list[int]]:
    """Return the drafters of the flat and of the deep block of a trace."""
    flat = [i for i, drafter in enumerate(drafters) if isinstance(drafter, FlatDrafter) or k == 1]
    return flat, [i for i in range(len(drafters)) if i not in flat]


def _proposed(each: Draft) -> int:
    """Return how deep a draft is."""
    trees = each.trees
    return int(depths_of(trees.parent, trees.tokens != PAD).max()) + 1 if trees.tokens.shape[1] else 0


def _facts(
    logits: Tensor, law: Dense | OneHot, tokens: Sequence[int], spread: bool
) -> list[tuple[float, float, float]]:
    """Return margin, log-probability and, if asked for, entropy at some rows."""
    drawn = torch.tensor(list(tokens), device=logits.device)
    margin, logprob = top2_margin(logits).tolist(), law.at(drawn).log().tolist()
    return list(zip(margin, logprob, entropy(law).tolist() if spread else [0.0] * len(margin), strict=True))


def _columns_of(facts: Sequence[tuple[float, float, float]]) -> NDArray[np.float32]:
    """Return (3, T)."""
    return np.array(facts, np.float32).reshape(-1, 3).T


def _silent(name: str) -> AbstractContextManager[None]:
    return nullcontext()
