r"""Claim 2: the expected committed length of a round, estimated from one verified path.

Three estimators (`hedgelab.lengths`): A plugs gammas in, as published; B multiplies realised alphas; C replaces the
last factor of each of B's terms by its mean. On token worlds their moments are enumerated. On recorded text B's mean
stands for the truth, which nobody knows: mean (A - B) estimates A's bias, pairwise, row by row.

Rounds from a text's last rows have fewer drafts left than k. Means count them with the drafts that there are, for all
estimators alike: the terms of B - C are then a martingale that stops where the text does, and its mean is 0. Leaving
them out would choose rows by what came after them. Variances are of whole windows, those that learners are fed.

After the first full run: question growth lost its cases weighted by EXP3Spec's play, linear in N by arithmetic
whatever the play, and its exponent is that of N beside a constant.
"""

from experiments.claims.length.asked import CLAIM, QUICK, SETTINGS, TOLERANCE
from experiments.claims.length.exponents import growths
from experiments.claims.length.judge import biases, check
from experiments.claims.length.measure import run
from experiments.claims.length.spreads import deviations

__all__ = ["CLAIM", "QUICK", "SETTINGS", "TOLERANCE", "biases", "check", "deviations", "growths", "run"]
