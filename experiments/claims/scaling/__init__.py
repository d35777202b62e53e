r"""Claim 4: how regret grows with the number of drafters, full information against bandit feedback.

*The envelope.* A learner's regret at N drafters is that of the world which is worst for it at that N: losses 0 or 1 of
mean 1/2, one drafter better by a gap, the gap from one grid for all N and learners. The gap is chosen on some seeds
(those of "choosing") and the regret measured on others. Regret is pseudo-regret, gap times the rounds in which another
drafter than the best was picked: no share of it is luck of the comparator.

*The share.* A learner that learns nothing has regret gap T (1 - 1/N); worst over the gaps it looks like a law in N. So
the regret is also shown as a share of that, and no law is fitted to points whose share exceeds `SHARE`, nor to those
whose worst gap is an end of the grid: the envelope is not attained there.

*The fit.* sqrt(ln N) itself has local exponent 1 / (2 ln N), below 1/4 from N = 8 on: exponents are those of N >= 8.

*After the first full run* gaps are chosen on 12, 8 and 4 seeds up to N = 64, 256 and beyond, where 3 to 5 had often
missed the worst; and the share that decides what is fitted is that of the choosing seeds, not of those fitted.

*Fixed gap.* One gap for all N: UCB1's bound is then in proportion to N - 1, full information's to ln N.
"""

from experiments.claims.scaling.asked import BANDIT, CLAIM, FIXED_BANDIT, FIXED_FULL, FULL, QUICK, SETTINGS
from experiments.claims.scaling.curves import Curve, envelope, fixed
from experiments.claims.scaling.judge import THEOREM, check
from experiments.claims.scaling.measure import run

__all__ = [
    "BANDIT",
    "CLAIM",
    "FIXED_BANDIT",
    "FIXED_FULL",
    "FULL",
    "QUICK",
    "SETTINGS",
    "THEOREM",
    "Curve",
    "check",
    "envelope",
    "fixed",
    "run",
]
