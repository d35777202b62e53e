"""The token game as a researcher would write it in numpy, with the black boxes for late losses."""

from __future__ import annotations

from collections import defaultdict, deque

import numpy as np


def play(losses, make_learner, rng, *, delay=0, mode="queue", own_entry_only=False):
    """Return (picks, expected losses), lists of length T; `losses` (T, N), `delay` a number or one a round."""
    losses = np.asarray(losses, dtype=float)
    rounds, n = losses.shape
    delays = [int(d) for d in np.broadcast_to(delay, rounds)]
    if mode == "padded":
        delays = [max(delays)] * rounds
    pool, busy = [make_learner(n)], set()
    arrivals = defaultdict(list)  # round at whose end they are revealed: what was played then
    stored: list[deque] = [deque() for _ in range(n)]  # qpm-d: losses of a drafter that the learner was not shown
    picks, expected = [], []
    held = None  # qpm-d: the play whose loss the learner waits for

    def choose(learner):
        probs = learner.play(rng)
        uniform = rng.random()
        return probs, min(int(np.searchsorted(np.cumsum(probs), uniform, side="right")), int(np.flatnonzero(probs)[-1]))

    def shown(losses, pick):
        return np.where(np.arange(n) == pick, losses, np.nan) if own_entry_only else losses

    for t in range(rounds):
        if mode in ("bold", "padded"):
            free = [c for c in range(len(pool)) if c not in busy]
            if not free:
                pool.append(make_learner(n))
                free = [len(pool) - 1]
            copy = free[0]
        else:
            copy = 0
        if mode == "qpm-d":
            while held is None or stored[held[1]]:
                if held is not None:
                    probs, pick = held
                    pool[0].observe(probs, pick, shown(stored[pick].popleft(), pick))
                held = choose(pool[0])
            pick = held[1]
            probs = np.eye(n)[pick]
        else:
            probs, pick = choose(pool[copy])
        picks.append(pick)
        expected.append(float(probs @ losses[t]))
        busy.add(copy)
        arrivals[t + delays[t]].append((copy, probs, pick, losses[t]))
        for copy, probs, pick, revealed in arrivals.pop(t, []):
            if mode == "qpm-d":
                stored[pick].append(revealed)
            else:
                pool[copy].observe(probs, pick, shown(revealed, pick))
            busy.discard(copy)
    return picks, expected
