"""How fast is replay? NormalHedge over a bundled trace against the same job as a plain numpy loop, in one run.

    python -m experiments.bench_replay

CPU time of one thread, contenders interleaved; a probe of this core's exponentials stands beside, since shared
machines vary.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

import hedgelab as hl
from experiments import twins
from experiments.twins import decode


def cpu_seconds(job: Callable[[], object]) -> float:
    """Return the CPU seconds that `job` takes."""
    start = time.process_time()
    job()
    return time.process_time() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--trace", default="t06")
    parser.add_argument("--learner", default="normalhedge", choices=sorted(twins.LEARNERS))
    parser.add_argument("--k", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    trace = hl.sample_trace(arguments.trace)
    trace.validate_values()
    alpha, gamma = np.array(trace.alpha), np.array(trace.gamma)
    coins = np.concatenate(
        [
            hl.coins.uniforms(0, hl.coins.COIN, int(s), 0, int(n))
            for s, n in zip(trace.sequence_id, np.diff(trace.offsets), strict=True)
        ]
    )
    bandit = hl.learner(arguments.learner).feedback == "bandit"

    def compiled() -> hl.Replay:
        return hl.replay(trace, arguments.learner, k=arguments.k)

    def plain() -> decode.Run:
        return decode.replay(
            alpha,
            gamma,
            trace.offsets,
            coins,
            twins.LEARNERS[arguments.learner],
            np.random.Generator(np.random.PCG64([0, 0])),
            k=arguments.k,
            feedback="bandit" if bandit else "delayed",
        )

    numbers, out = np.random.default_rng(0).uniform(-20, 0, 1 << 16), np.empty(1 << 16)

    def probe() -> None:
        for _ in range(20):
            np.exp(numbers, out)

    run, twin = compiled(), plain()
    same = run.picks.tolist() == twin.picks and run.accepted.tolist() == twin.accepted
    times: dict[str, list[float]] = {"hedgelab": [], "numpy loop": [], "probe": []}
    for _ in range(arguments.repeat):
        # the compiled job is short: many in a row, so that the clock's grain does not show
        times["hedgelab"].append(cpu_seconds(lambda: [compiled() for _ in range(20)]) / 20)
        times["numpy loop"].append(cpu_seconds(plain))
        times["probe"].append(cpu_seconds(probe))
    ratios = sorted(slow / fast for slow, fast in zip(times["numpy loop"], times["hedgelab"], strict=True))
    print(f"trace {arguments.trace}: {trace.rows} tokens, {len(trace.drafters)} drafters, k={arguments.k}")
    print(f"same picks and accepted lengths: {same}")
    for name in ("hedgelab", "numpy loop"):
        seconds = statistics.median(times[name])
        print(f"{name:11s} {1e3 * seconds:9.2f} ms CPU, {run.rounds / seconds:12,.0f} rounds/s")
    print(f"numpy.exp on this core: {20 * numbers.size / statistics.median(times['probe']) / 1e9:.2f} Gexp/s")
    print(f"ratio {statistics.median(ratios):.0f} (range {ratios[0]:.0f} to {ratios[-1]:.0f})")


if __name__ == "__main__":
    main()
