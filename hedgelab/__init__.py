"""hedgelab: which draft model should draft next? Record once, replay any selection policy exactly."""

from hedgelab import acceptance, bounds, coins, feedback, lengths, metrics, oracles, regret
from hedgelab._jit import kernel
from hedgelab.algorithms import learner, learners
from hedgelab.contract import Learner, Parameter
from hedgelab.decode_replay import Replay, replay
from hedgelab.trace import Trace, TraceError, open_trace, sample_trace

__all__ = [
    "Learner",
    "Parameter",
    "Replay",
    "Trace",
    "TraceError",
    "acceptance",
    "bounds",
    "coins",
    "feedback",
    "kernel",
    "learner",
    "learners",
    "lengths",
    "metrics",
    "open_trace",
    "oracles",
    "regret",
    "replay",
    "sample_trace",
]
