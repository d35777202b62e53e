r"""Tuned UCB(beta): UCB1 with its width times beta.

    index(i) = mean(i) + beta sqrt(2 ln t / n(i)),        t losses seen so far

Not UCB1-tuned (Auer, Cesa-Bianchi, Fischer 2002, sec. 4), which puts a variance estimate under the root. beta = 1 is
UCB1. Its proof carries over: by Hoeffding's inequality a bound fails with probability t^(-4 beta^2), a union over the
counts 1..t makes that t^(1 - 4 beta^2), summable for beta > 1/sqrt(2), so that the regret is at most
sum_i 8 beta^2 ln T / gap_i + (1 + 2 sum_t t^(1 - 4 beta^2)) sum_i gap_i.

The default beta = 1/2 is the Hoeffding bound at level 1/t, sqrt(ln t / (2n)): the smallest width with a logarithmic
leading term in theory (ln T / (2 gap) a drafter, with ln t + 3 ln ln t for ln t: the proof of Garivier and Cappe 2011
through Pinsker's inequality); below it the regret can grow as a power of T (both recalled, unconfirmed). At short
horizons a smaller beta often wins: tune it on other data than it is scored on.
"""

from __future__ import annotations

from hedgelab._jit import kernel
from hedgelab.algorithms.ucb1 import init, largest_bound, observe
from hedgelab.contract import Learner, Parameter


@kernel
def play(params, state, context, rng, probs):
    """Uniform over the drafters of largest index."""
    largest_bound(params[0], state, probs)


LEARNER = Learner(
    name="ucb-tuned",
    init=init,
    play=play,
    observe=observe,
    feedback="bandit",
    parameters={"beta": Parameter(0.5, "factor of UCB1's width", low=1e-9)},
    bound="sum_i (8 beta^2 ln T / gap_i) + O(1), beta > 1/sqrt(2)",
    reference="after Auer, Cesa-Bianchi & Fischer 2002, Thm 1",
)
