r"""Claim 7: more drafters help with full information, while bandits pay for each.

*Sub-pools.* Random orders of the trace's drafters; the first N of an order are a pool, so each order is a chain of
nested pools. Every policy plays the same pools under the same coins, order m under replicate m. Text starts afresh with
every query, draft length k.

*Intervals* are for new prompts and new orders: both are drawn with replacement, prompts within domains, each on its
own (Owen 2007, the pigeonhole bootstrap). At N = all drafters an order has no meaning left but its coins.

*Enlarged pools* are made up: seven drafters with the trace's mean acceptance in each domain, the best among them, then
weak ones, none better than the trace's lower quartile; the smaller pool is the beginning of the larger one.
*Duplicates*: as many copies of a pool's best drafter as the pool has drafters.

*After the first full run*: an effect of exactly 0 could not hold where nothing falls or costs (questions rises, steps,
weak), so 0.05 tokens are let pass; and copies help uniform play too (question duplicates), so its gain is taken off.

*Speed-up* charges the scoring of drafters that were not chosen (`hedgelab.cost`); pools are then of drafters whose
cost is known.
"""

from experiments.claims.pool_size.asked import CLAIM, QUICK, SETTINGS
from experiments.claims.pool_size.judge import check
from experiments.claims.pool_size.measure import ENLARGED, PAPER, PRICED, run
from experiments.claims.pool_size.pools import (
    BEST,
    FREE,
    INFORMED,
    Pools,
    enlarged,
    priced_pools,
    real_pools,
    streams,
    traces,
)

__all__ = [
    "BEST",
    "CLAIM",
    "ENLARGED",
    "FREE",
    "INFORMED",
    "PAPER",
    "PRICED",
    "QUICK",
    "SETTINGS",
    "Pools",
    "check",
    "enlarged",
    "priced_pools",
    "real_pools",
    "run",
    "streams",
    "traces",
]
