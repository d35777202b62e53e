r"""MetaSD-UCB: tuned UCB on block efficiency, the share of the draft that was accepted.

    index(i) = mean(i) + beta sqrt(2 ln t / n(i)),        reward BE = accepted / K = 1 - loss

Kim, Jung, Yun 2026 (arXiv 2604.05417). Each drafter is tried once first; t counts losses seen. The paper starts anew at
each query, which is the engine's default. Its beta is a parameter; the default 1, UCB1's, is unconfirmed.
"""

from __future__ import annotations

from dataclasses import replace

from hedgelab.algorithms import ucb_tuned
from hedgelab.contract import Parameter

LEARNER = replace(
    ucb_tuned.LEARNER,
    name="metasd",
    parameters={"beta": Parameter(1.0, "factor of UCB1's width", low=1e-9)},
    bound="as ucb-tuned; the paper's: O(ln B) more rounds for B tokens, stationary means",
    reference="Kim, Jung & Yun 2026, arXiv 2604.05417",
)
