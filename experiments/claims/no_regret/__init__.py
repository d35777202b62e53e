r"""Claim 3: full-information learners have no regret, in the token game; and what that says about rounds of decoding.

The token game has a play at every token, and regret there is what the theorems speak of. Rounds of a decode loop are
what costs time. Both are measured, and never one printed as the other:

    stream   token game without delay over a stream of real prompts, drawn again and again: the learner keeps its state
    decode   the decode loop on each prompt once, learners started afresh for each query or carried over; its token
             game with the decode loop's own delays, and its rounds
    world    token game in a synthetic world or against an adversary, plays on record: each run's own bound
    long     the same over 10^6 rounds
    coins    fair coins, on which every algorithm has one known expected regret: is the measuring right?

Streams and decoding are among two pools: all drafters of the trace, where one may lead by so much that regret is easy;
and the specialists, one of each domain, of which a stream of mixed domains makes every one a compromise. Regret in a
pool is to the best fixed drafter of that pool. A trace without specialists is judged by all drafters alone.

After the first full run: `rate` asks about a gap in place of the greedy adversary, which uniform passed too; leaves
points of regret below one loss out of its fits; and has 24 streams in place of 8 among the specialists.

No learner has a constant that was tuned here: all run with their defaults, which need no horizon.
"""

from experiments.claims.no_regret.asked import CLAIM, POOLS, QUICK, SETTINGS
from experiments.claims.no_regret.decoding import decoded, pools
from experiments.claims.no_regret.judge import check, regrets, spread, unit
from experiments.claims.no_regret.measure import POLICIES, PROTOCOLS, run

__all__ = [
    "CLAIM",
    "POLICIES",
    "POOLS",
    "PROTOCOLS",
    "QUICK",
    "SETTINGS",
    "check",
    "decoded",
    "pools",
    "regrets",
    "run",
    "spread",
    "unit",
]
