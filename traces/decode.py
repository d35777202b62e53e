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
plays and losses those of `hedgelab.replay`. The rounds themselves are in `traces.live.batch`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hedgelab.algorithms import learner as registered
from hedgelab.algorithms import learners
from hedgelab.algorithms.router import LEARNER as ROUTER
from hedgelab.contract import Learner
from hedgelab.router import Router
from traces.collect import Clock, Job, build_drafters
from traces.config import Config, load_config
from traces.live.batch import Heard, TextBatch
from traces.live.chance import Chance, Coins
from traces.live.laws import Processor
from traces.live.models import AUTOREGRESSIVE, Models
from traces.live.plain import autoregressive
from traces.live.policy import Policy
from traces.live.results import Decoded, DecodeError, Run
from traces.live.schedule import Setting
from traces.live.text import units_of
from traces.prompts import Prompt
from traces.targets import load_target, located

__all__ = ["AUTOREGRESSIVE", "DecodeError", "Decoder"]


class Decoder(Models):
    """A target and a pool of drafters, ready to decode; see `Models` for what it is made of.

    >>> decoder = Decoder.open("traces/configs/live.yaml")  # doctest: +SKIP
    >>> decoder.run(decoder.jobs(["Tell me about owls."]), "normalhedge").mat  # doctest: +SKIP
    1.4
    """

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
        heard: Heard = lambda job, tokens, stop: None,
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
                done = autoregressive(self, now, coins, heard, run.clock)
            else:
                plays = []
                for job in now:
                    own = self._own(shared, job, batch)
                    plays.append((own, own.begin(route(job) if route else ())))
                done = TextBatch(self, now, plays, coins, setting.k, keep, heard, run.clock).run()
            run.wall, run.cpu = time.perf_counter() - wall, time.process_time() - cpu
            run.texts += done
            ended(done)
            for second in reversed([t.job.second(t.tokens, self.target.eos) for t in done if t.job.then is not None]):
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

    def _own(self, shared: Policy, job: Job, batch: int) -> Policy:
        """Return the policy that a text is decoded with.

        One at a time all have the same, whose picks are then those of a replay. In a larger batch each has its own, so
        that its picks do not depend on the texts beside it; unless the policy carries over. That must not meet a text
        whose coins it has learnt from: the text's drafts would depend on them.
        """
        if not shared.setting.carry_over:
            return shared if batch == 1 else shared.of_text(job.sequence_id)
        if job.sequence_id in shared.texts:
            raise ValueError(
                f"{job.prompt.id}: text {job.sequence_id} was decoded before with this policy; one that carries over "
                "needs texts of different numbers, as `Decoder.jobs(.., first=)` gives them"
            )
        shared.texts.add(job.sequence_id)
        return shared

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
        if policy not in learners():
            raise ValueError(
                f"no policy {policy!r}; there are the drafters {', '.join(self.names)}, {AUTOREGRESSIVE}, router, and "
                f"the learners {', '.join(learners())}"
            )
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
