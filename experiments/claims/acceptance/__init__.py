r"""Claim 1: how likely a draft is accepted, for every kind of drafter, and what coins replay it.

Laws and replays are enumerated over token worlds (`hedgelab.token_worlds`): no sampling. On recorded text alpha and
gamma are held against each other: gamma is the mean of alpha given the prefix, so for every weight h that is known
before the token, sum h (alpha - gamma) over a text's rows is a martingale. Texts end at a stopping time, which leaves
its mean 0. A row's own gamma and the alpha of the row before are such weights; a record that had slipped by a row
would leave the mean of alpha as it is, but not these.
"""

from experiments.claims.acceptance.asked import CLAIM, QUICK, SETTINGS, TOLERANCE
from experiments.claims.acceptance.judge import check, differences, reliability
from experiments.claims.acceptance.measure import run

__all__ = ["CLAIM", "QUICK", "SETTINGS", "TOLERANCE", "check", "differences", "reliability", "run"]
