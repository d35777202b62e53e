"""Scaling: what is asked, and what is run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.claim import Claim, Question, above, below, inside
from experiments.settings import Setting

__all__ = [
    "BANDIT",
    "CLAIM",
    "CONTROL",
    "FIXED_BANDIT",
    "FIXED_FULL",
    "FULL",
    "GRID",
    "POOLS",
    "QUICK",
    "SETTINGS",
    "SHARE",
]

FULL = ("hedge-fixed", "hedge", "normalhedge", "adahedge", "squint")
BANDIT = ("exp3", "tsallis-inf", "moss", "ucb1", "ucb-tuned", "thompson-beta")
CONTROL = "uniform"
FIXED_FULL, FIXED_BANDIT = ("normalhedge", "hedge"), ("ucb1", "moss")
GRID = tuple(0.5 ** (1 + j / 2) for j in range(13))  # 0.5 to 0.0078, below 1 / sqrt(T)
SHARE = 0.75  # of the regret of learning nothing; points above are not fitted
POOLS = (7, 21, 47)  # one target's pool and all drafters in the paper; ours

CLAIM = Claim(
    sentence="With full information regret grows with log N (as sqrt(ln N)), bandits pay sqrt(N).",
    source=(
        "arXiv 2510.20064; sqrt(T ln N / 2): Cesa-Bianchi & Lugosi 2006, Thm 2.2; sqrt(N T) / 20 and "
        "2 sqrt(T N ln N): Bubeck & Cesa-Bianchi 2012, Thms 3.1, 3.4"
    ),
    questions={
        "exponents": Question(
            "The exponent of worst-case regret in N is that of the learner's theorem to within 0.14: sqrt(ln N) with "
            "full information, sqrt(N) for bandits (EXP3: sqrt(N ln N)).",
            inside(-0.14, 0.14),
            "exponent less that of the theorem",
            len(FULL + BANDIT),
        ),
        "full": Question(
            "With full information the exponent is below 1/4, every learner's.", below(0.25), "exponent", len(FULL)
        ),
        "bandit": Question(
            "For bandits the exponent is near 1/2, every learner's.", inside(0.36, 0.64), "exponent", len(BANDIT)
        ),
        "not_root": Question(
            "With full information a logarithmic law describes the regret better than sqrt(N) does, by its AIC.",
            above(0.0),
            "AIC of sqrt(N) less the best of sqrt(ln N), ln N, m_N",
            len(FULL),
        ),
        "which_log": Question(
            "Of the two logarithmic laws sqrt(ln N) describes it better than ln N does.",
            above(0.0),
            "AIC of ln N less that of sqrt(ln N)",
            len(FULL),
        ),
        "pools": Question(
            "At 7, 21 and 47 drafters the best bandit pays at least sqrt(N / ln N) times what the best learner with "
            "full information pays.",
            above(1.0),
            "ratio of regrets / sqrt(N / ln N)",
            len(POOLS),
        ),
        "fixed_bandit": Question(
            "At a fixed gap of 0.2 UCB1's regret is in proportion to N - 1.", inside(0.8, 1.2), "exponent of N - 1"
        ),
        "fixed_full": Question(
            "At that gap ln N describes NormalHedge's regret better than sqrt(N) does.",
            above(0.0),
            "AIC of sqrt(N) less that of ln N",
        ),
        "lower": Question(
            "No bandit's worst case is below the lower bound sqrt(N T) / 20, where the grid holds its own gap.",
            above(1.0),
            "regret / bound at the N where it is least",
            len(BANDIT),
        ),
        "fair_coins": Question(
            "On fair coins all learners pay the same, (sqrt(T) / 2) m_N in the limit: the measuring is right.",
            inside(0.9, 1.1),
            "regret / its exact expectation",
            len(FULL + BANDIT),
        ),
        "control": Question(
            "A learner that learns nothing is recognised: at every N its share of the trivial regret is above the "
            "limit of fits.",
            above(SHARE),
            "least share",
        ),
    },
)


def _envelope(
    learner: str, drafters: Sequence[int], T: int, choosing: int, scoring: int, coins: int, step: int = 1
) -> Setting:
    games = {"drafters": list(drafters), "T": T, "gaps": list(GRID[::step])}
    return {"kind": "envelope", "learner": learner, **games, "choosing": choosing, "scoring": scoring, "coins": coins}


def _fixed(learner: str, drafters: Sequence[int], T: int, scoring: int) -> Setting:
    games = {"drafters": list(drafters), "T": T, "gaps": [0.2]}
    return {"kind": "fixed", "learner": learner, **games, "choosing": 8, "scoring": scoring, "coins": 0}


def _settings() -> Iterator[Setting]:
    small, T = (2, 4, 7, 8, 16, 21, 32, 47, 64), 10_000
    for name in (*FULL, *BANDIT):
        if name == "ucb-tuned":  # one task, as it has one beta
            yield _envelope(name, (*small, 128, 256, 1024), T, 12, 40, 16)
            continue
        dear = name in ("squint", "thompson-beta")  # 5 times the price of others at large N
        yield _envelope(name, small, T, 12, 64, 16)
        for n in (128, 256):
            yield _envelope(name, (n,), T, 8, 32 if dear else 48, 16)
        if not dear:
            yield _envelope(name, (1024,), T, 4, 20, 0)
        if name in FULL and not dear:
            yield _envelope(name, (4096,), T, 4, 16, 0)
    yield _envelope(CONTROL, (*small, 128, 256), T, 12, 16, 0)
    for name in FIXED_BANDIT:
        yield _fixed(name, (2, 4, 8, 16, 32, 64), 20_000, 24)
    for name in FIXED_FULL:
        yield _fixed(name, (2, 4, 8, 16, 32, 64, 128, 256, 1024), 20_000, 24)


def _quick() -> Iterator[Setting]:
    for name in (*FULL, *BANDIT, CONTROL):
        yield _envelope(name, (7, 8, 12, 16, 21, 47), 2000, 2, 8, 4, 2)
    for name in (*FIXED_BANDIT, *FIXED_FULL):
        yield _fixed(name, (2, 4, 8, 16), 4000, 8)


SETTINGS: Sequence[Setting] = tuple(_settings())
QUICK: Sequence[Setting] = tuple(_quick())
