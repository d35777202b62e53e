"""CPU time of the token game: the compiled engine against the same game as a numpy loop, in one run.

python -m experiments.bench_play [--learner NAME ...] [--drafters N ...]
"""

from __future__ import annotations

import argparse
import statistics

import numpy as np

import hedgelab as hl
from experiments import twins
from experiments.bench_replay import cpu_seconds
from experiments.twins import game

CHOSEN = ("hedge", "normalhedge", "adanormalhedge", "exp3", "ucb1", "kl-ucb")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--learner", nargs="+", default=CHOSEN, choices=sorted(twins.LEARNERS))
    parser.add_argument("--drafters", nargs="+", type=int, default=(21, 1024))
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'learner':16s} {'N':>5s} {'ns a round':>11s} {'numpy loop':>11s}  ratio (range)")
    for n in arguments.drafters:
        slow_rounds = 400
        fast_rounds = max(4_000_000 // n, 4000)
        losses = np.random.default_rng(0).random((fast_rounds, n))
        for name in arguments.learner:
            bandit = hl.learner(name).feedback == "bandit"
            hl.play(losses[:10], name)  # compiles
            fast, slow = [], []
            for _ in range(arguments.repeat):  # interleaved, so that both meet the same neighbours
                fast.append(cpu_seconds(lambda: hl.play(losses, name)) / fast_rounds)  # noqa: B023
                slow.append(
                    cpu_seconds(
                        lambda: game.play(
                            losses[:slow_rounds],  # noqa: B023
                            twins.LEARNERS[name],  # noqa: B023
                            np.random.Generator(np.random.PCG64([0, 0])),
                            own_entry_only=bandit,  # noqa: B023
                        )
                    )
                    / slow_rounds
                )
            ratios = sorted(b / a for a, b in zip(fast, slow, strict=True))
            print(
                f"{name:16s} {n:5d} {1e9 * statistics.median(fast):11.0f} {1e9 * statistics.median(slow):11.0f}  "
                f"{statistics.median(ratios):.0f} ({ratios[0]:.0f} to {ratios[-1]:.0f})"
            )


if __name__ == "__main__":
    main()
