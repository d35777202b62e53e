"""The registry of learners: one file an algorithm, one line here."""

from __future__ import annotations

from types import ModuleType

from hedgelab.algorithms import (
    adahedge,
    adanormalhedge,
    banditspec_release,
    exp3,
    exp3_ix,
    exp3_p,
    exp3spec,
    explore_then_commit,
    fixed,
    fixed_share,
    ftl,
    ftpl,
    hedge,
    kl_ucb,
    metasd,
    metasd_onpath,
    ml_prod,
    moss,
    normalhedge,
    normalhedge_bh,
    optimistic_hedge,
    squint,
    successive_elimination,
    thompson_beta,
    thompson_gauss,
    tsallis_inf,
    ucb1,
    ucb_tuned,
    ucb_v,
    ucbspec,
    uniform,
)
from hedgelab.contract import Learner

__all__ = ["LEARNERS", "MODULES", "learner", "learners"]

MODULES: dict[str, ModuleType] = {
    module.LEARNER.name: module
    for module in (
        hedge,
        normalhedge,
        normalhedge_bh,
        adahedge,
        adanormalhedge,
        squint,
        ml_prod,
        optimistic_hedge,
        fixed_share,
        ftl,
        ftpl,
        exp3,
        exp3_ix,
        exp3_p,
        tsallis_inf,
        ucb1,
        ucb_v,
        kl_ucb,
        moss,
        ucb_tuned,
        thompson_beta,
        thompson_gauss,
        explore_then_commit,
        successive_elimination,
        ucbspec,
        exp3spec,
        metasd,
        metasd_onpath,
        banditspec_release,
        uniform,
        fixed,
    )
}
LEARNERS: dict[str, Learner] = {name: module.LEARNER for name, module in MODULES.items()}


def learners() -> tuple[str, ...]:
    """Return the names of all registered learners.

    >>> learners()[:2]
    ('hedge', 'normalhedge')
    """
    return tuple(LEARNERS)


def learner(name: str, **values: float | str | None) -> Learner:
    """Return the registered learner `name` with parameters set. Raises ValueError naming what is unknown or out of
    range.

    >>> learner("fixed", drafter=3).values
    {'drafter': 3}
    """
    if name not in LEARNERS:
        raise ValueError(f"no learner {name!r}; there are {', '.join(LEARNERS)}")
    return LEARNERS[name].with_values(**values)
