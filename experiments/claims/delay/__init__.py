r"""Claim 5: late losses cost little, a factor sqrt(1 + delay), and black boxes keep the guarantee.

    world       token game of worlds and of an adversary built against delay, constant delays d up to 100, by policy
    example     the smallest case in which a rate tuned without the delay breaks the bound: N = 2, T = 2000, d = 13
    token game  on each real prompt, with the delays of the learner's own decode run, and with none
    feedback    the decode loop with delayed, padded, censored losses, and losses of round starts alone: rounds
    own delays  BOLD where the delay of a loss is that of the drafter picked: slow drafters reveal late

After the first full run: `bold` says that it checks the code, as a theorem for every path leaves nothing else to fail.

Learning rates are tuned to T, N and the delay by the theorem's formula, never to losses.
"""

from experiments.claims.delay.asked import CLAIM, KS, QUICK, SETTINGS
from experiments.claims.delay.judge import check, difference, growth, late_regret
from experiments.claims.delay.measure import run

__all__ = [
    "CLAIM",
    "KS",
    "QUICK",
    "SETTINGS",
    "check",
    "difference",
    "growth",
    "late_regret",
    "run",
]
