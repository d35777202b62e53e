r"""Claim 6: full-information selection commits more tokens a round than a generalist of as many tokens and bandits.

A *pool* is what the policies choose among: the specialists of one kind, without the generalists of that kind, as in the
paper; or all drafters of the trace; or all whose drafting was measured (for seconds). Generalists, and the specialist
of the text's own domain, are fixed drafters: they choose nothing. Two generalists stand beside the truncated
specialists: `*-matched` saw as many tokens as each of them, `*-all` as many as all of them together.

Learners start afresh with each text unless "carried", which goes through all texts in a random order, another one in
each replicate. Tuned constants are chosen on one half of the prompts of each domain and scored on the other, both ways.
The best single specialist is chosen in the same way. Best fixed and fastest single drafters are chosen on the texts
that they are scored on, which favours them.

"Faster" is first of all MAT, tokens a round, as in the paper's tables; the last question asks for modelled seconds.

After the first full run: the best single specialist is no longer chosen on the texts that it is scored on; Thompson
sampling, which has nothing to tune, went from the tuned bandits to the other ones; the grids of beta and explore are
wider; the sentence says what the headline asks.
"""

from experiments.claims.domains.asked import CLAIM, QUICK, SETTINGS, SPECIALISTS
from experiments.claims.domains.judge import Table, check, tables
from experiments.claims.domains.measure import run

__all__ = ["CLAIM", "QUICK", "SETTINGS", "SPECIALISTS", "Table", "check", "run", "tables"]
