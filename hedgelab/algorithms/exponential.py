"""Exponential weights, the step that Hedge and EXP3 share."""

from __future__ import annotations

import math

from hedgelab._jit import kernel
from hedgelab.lanes import lane_min, lane_sum
from hedgelab.vexp import vexp

__all__ = ["exponential_weights"]


@kernel
def exponential_weights(losses, rate, anchor, probs):
    """Write w ∝ exp(-rate * losses) into `probs` (n,) and return the anchor for the next call.

    The anchor is the soft-min -ln(sum exp(-rate * losses)) / rate of the call before. Since then the losses moved
    little, so exp(rate * (anchor - losses)) neither over- nor underflows, and no pass for the minimum is needed.
    Where they did move far (many losses between two plays, another rate), the sum tells, and the minimum becomes the
    anchor.
    """
    n = probs.shape[0]
    for i in range(n):
        probs[i] = vexp(rate * (anchor - losses[i]))
    total = lane_sum(probs)
    if not 1e-100 < total < 1e100:
        anchor = lane_min(losses)
        for i in range(n):
            probs[i] = vexp(rate * (anchor - losses[i]))
        total = lane_sum(probs)
    scale = 1.0 / total
    for i in range(n):
        probs[i] *= scale
    return anchor - math.log(total) / rate if rate > 0.0 else anchor
