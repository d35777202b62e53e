"""Naive twins: learners and engines as a researcher would write them in numpy.

The baseline of the speed benchmarks and what the tests compare with; no code is shared with `hedgelab`. A twin is a
class: ``Twin(n, **parameters)`` with the learner's own parameter names, ``play(rng) -> (n,) distribution``,
``observe(probs, pick, losses)``. One that randomises inside draws from `rng` in the order that the learner does.
"""

from __future__ import annotations

from typing import Any

from experiments.twins import bandits, baselines, full_information, indices

__all__ = ["LEARNERS"]

LEARNERS: dict[str, Any] = {
    **full_information.LEARNERS,
    **bandits.LEARNERS,
    **indices.LEARNERS,
    **baselines.LEARNERS,
}
