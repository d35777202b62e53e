r"""Regret bounds, one function a theorem, in units of loss.

Static regret R_T = sum_t <w_t, l_t> - min_i sum_t l_t(i) of the weights that were played, unless a docstring says
otherwise. T rounds, N drafters (experts, arms), losses in [0, 1]. Arguments outside a theorem's conditions raise
`ConditionError`, which names each of them.

`BOUNDS` lists every function with its status (proved here, read in source or as quoted, recalled with an unconfirmed
constant, asymptotic, order only), the regret it is about, and its source. `FOR_LEARNER` says which bound belongs to
which registered learner and which facts of a run it needs; `NO_BOUND` says why a learner has none.
"""

from hedgelab.bounds.bandits import (
    exp3,
    exp3_anytime,
    exp3_ix,
    exp3_p,
    exp3spec,
    explore_then_commit,
    explore_then_commit_minimax,
    kl_ucb,
    moss,
    successive_elimination,
    thompson_bayes,
    thompson_beta,
    thompson_gauss,
    tsallis_inf,
    ucb1,
    ucb1_minimax,
    ucb_tuned,
    ucb_v,
    ucbspec,
)
from hedgelab.bounds.by_learner import FOR_LEARNER, NO_BOUND, Facts, LearnerBound
from hedgelab.bounds.conditions import ConditionError
from hedgelab.bounds.delay import bold, decode_acceptance, decode_length, qpm_d
from hedgelab.bounds.full_information import (
    adahedge,
    adanormalhedge,
    fixed_share,
    fixed_share_anytime,
    ftl,
    ftpl,
    ftpl_path,
    hedge,
    hedge_anytime,
    hedge_doubling,
    hedge_path,
    ml_prod,
    normalhedge,
    optimistic_anytime,
    optimistic_hedge,
    optimistic_path,
    squint,
)
from hedgelab.bounds.lower import (
    bandit_instance,
    fair_coins,
    fair_coins_exact,
    lai_robbins,
    lower_bandit,
    lower_full,
    mean_max_normal,
)
from hedgelab.bounds.table import BOUNDS, Theorem

__all__ = [
    "BOUNDS",
    "FOR_LEARNER",
    "NO_BOUND",
    "ConditionError",
    "Facts",
    "LearnerBound",
    "Theorem",
    "adahedge",
    "adanormalhedge",
    "bandit_instance",
    "bold",
    "decode_acceptance",
    "decode_length",
    "exp3",
    "exp3_anytime",
    "exp3_ix",
    "exp3_p",
    "exp3spec",
    "explore_then_commit",
    "explore_then_commit_minimax",
    "fair_coins",
    "fair_coins_exact",
    "fixed_share",
    "fixed_share_anytime",
    "ftl",
    "ftpl",
    "ftpl_path",
    "hedge",
    "hedge_anytime",
    "hedge_doubling",
    "hedge_path",
    "kl_ucb",
    "lai_robbins",
    "lower_bandit",
    "lower_full",
    "mean_max_normal",
    "ml_prod",
    "moss",
    "normalhedge",
    "optimistic_anytime",
    "optimistic_hedge",
    "optimistic_path",
    "qpm_d",
    "squint",
    "successive_elimination",
    "thompson_bayes",
    "thompson_beta",
    "thompson_gauss",
    "tsallis_inf",
    "ucb1",
    "ucb1_minimax",
    "ucb_tuned",
    "ucb_v",
    "ucbspec",
]
