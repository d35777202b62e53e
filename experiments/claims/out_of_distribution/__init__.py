r"""Claim 8: out of distribution a router misroutes, and the online learner wins.

A *router* picks one drafter for a text from its prompt, trained on the best drafters of other prompts
(`hedgelab.routing`). **In distribution** it knows the domain: cross-validation over prompts. **Out of distribution** it
does not: each domain is routed by a router trained on the others. *Misrouted*: not sent to the prompt's best drafter.

A router can only send to drafters that were best on some prompt of its training, and a domain's own specialist seldom
is abroad; so with specialists alone that it misroutes out of distribution says little. `reachable` therefore asks about
the best among those that it can send to.

**Splices.** The bundled traces hold texts of one domain each. A splice is one sequence put together from recorded rows:
texts of different domains are cut into equally many parts, and the first part of one is followed by the second of
another and so on, round the group. Every part is of a text that really was decoded; no model wrote the whole, and
drafts that reach over a seam are those of the text they come from. A group of texts is one observation.

**Streams.** Whole texts, `block` of a domain before the next one's turn, with the learners' state carried through; the
texts of a domain in another order in each replicate.

After the first full run: shares have exact binomial intervals, and the sentence says what the headline asks; that the
learner is up to 2.34 times better is asked by `ratio`.

Nothing is tuned on the texts evaluated: learners have their defaults, the router's penalty is that of the library.
"""

from experiments.claims.out_of_distribution.asked import CLAIM, POOLS, QUICK, SETTINGS
from experiments.claims.out_of_distribution.judge import Table, check, of_kind
from experiments.claims.out_of_distribution.measure import run

__all__ = ["CLAIM", "POOLS", "QUICK", "SETTINGS", "Table", "check", "of_kind", "run"]
