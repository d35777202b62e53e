"""What is asked of late losses, and what is run."""

from __future__ import annotations

from experiments.claim import Claim, Question, above, below, inside
from experiments.claims.delay.measure import SEARCHED
from experiments.settings import Setting

__all__ = ["CLAIM", "CONSTANT", "KS", "QUICK", "SETTINGS", "TUNED"]

CONSTANT = ("stale hedge", "bold hedge", "normalhedge", "bold normalhedge")  # made for delay, delays that are constant
TUNED = (*CONSTANT, "bold hedge, varying delay")
POLICIES = (*TUNED, "hedge", "hedge tuned without delay", "normalhedge, own weights")
EXAMPLE = ("stale hedge", "bold hedge", "hedge tuned without delay")
WORLDS = ("block", "gap", "drifting", "switching")
KS = (2, 3, 4, 5, 6)
POOLS = ("greedy", "lure", "slow best", "slow worst")

CLAIM = Claim(
    sentence="Delay costs little: regret grows like sqrt(1 + delay), and black-box reductions (BOLD) keep the "
    "guarantee.",
    source="Not-a-Bandit (arXiv 2510.20064), section 4 on delayed feedback; Joulani, Gyorgy and Szepesvari 2013",
    questions={
        "growth": Question(
            "Regret grows like sqrt(1 + d) or slower with the delay d, in every world and for every learner made for "
            "delay: rates tuned to it, or NormalHedge.",
            below(0.6),  # the bound sqrt(T + 2D) itself has exponent 0.57 on these delays
            "exponent of 1 + d",
            comparisons=len(TUNED) * len(WORLDS),
        ),
        "adversary": Question(
            "Against the adversary that repeats its losses for d + 1 rounds it does grow like sqrt(1 + d), not slower.",
            inside(0.4, 0.6),
            "exponent of 1 + d",
            comparisons=len(CONSTANT),
        ),
        "bounds": Question(
            "Every policy that has a bound under delay stays below it in every run.", below(1.0), "of its bound"
        ),
        "rate": Question(
            "A rate tuned without the delay does no harm: Hedge with rate sqrt(8 ln N / T) stays below "
            "sqrt((T + 2D) ln N / 2), N = 2, T = 2000, d = 13.",
            below(1.0),
            "of that bound",
        ),
        "weights": Question(
            "It does not matter whose weights NormalHedge is told it played: fed late losses with its present weights, "
            "its regret grows like sqrt(1 + d) too.",
            below(0.6),
            "exponent of 1 + d",
        ),
        "decode": Question(
            "On real text the delays of decoding raise regret within a query by no more than (1 + mean delay)^(1/2), "
            "for drafts of 2 to 6 tokens.",
            below(0.5),
            "exponent of 1 + mean delay",
            comparisons=len(KS) * len(SEARCHED),
        ),
        "bold": Question(
            "A check of the code: BOLD keeps its guarantee, a sum of its copies' bounds on every path, where the delay "
            "follows the drafter that was picked, as in decoding.",
            below(1.0),
            "of the guarantee",
        ),
        "padding": Question(
            "Holding losses back, which makes delays independent of the picks, costs less than 5% of MAT.",
            below(0.05),
            "of MAT",
            comparisons=len(SEARCHED),
        ),
        "partial": Question(
            "Every token's loss, late, is worth more tokens per round than what a round shows at once (censored), and "
            "than the losses of round starts alone.",
            above(0.0),
            "tokens per round",
            comparisons=2 * len(SEARCHED),
        ),
    },
)


def _settings(
    trace: str, rounds: int, seeds: int, delays: list[int], replicates: int, own: tuple[int, int]
) -> list[Setting]:
    found: list[Setting] = [
        {
            "kind": "world",
            "world": world,
            "policy": policy,
            "rounds": rounds,
            "drafters": 16,
            "seeds": seeds,
            "delays": delays,
        }
        for world in WORLDS
        for policy in POLICIES
    ]
    found += [
        {
            "kind": "example",
            "world": "block",
            "policy": policy,
            "rounds": 2000,
            "drafters": 2,
            "seeds": seeds,
            "delays": [13],
        }
        for policy in EXAMPLE
    ]
    found += [{"kind": "token game", "trace": trace, "k": k} for k in KS]
    found += [
        {"kind": "feedback", "trace": trace, "k": 5, "learner": name, "replicates": replicates} for name in SEARCHED
    ]
    found += [
        {"kind": "own delays", "pool": pool, "rounds": own[0], "drafters": 4, "slow": 20, "seeds": own[1]}
        for pool in POOLS
    ]
    return found


SETTINGS = _settings("t06", 30_000, 16, [0, 1, 3, 10, 30, 100], 8, (4000, 20))
QUICK = _settings("t10", 3000, 3, [0, 3, 10, 30], 2, (600, 2))
