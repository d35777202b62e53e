"""hedgelab: which draft model should draft next? Record once, replay any selection policy exactly."""

from hedgelab import acceptance, bounds, coins, cost, delays, feedback, lengths, metrics, oracles, regret, worlds
from hedgelab._jit import kernel
from hedgelab.algorithms import learner, learners
from hedgelab.contract import Learner, Parameter
from hedgelab.cost import Bill, Costs
from hedgelab.decode_replay import Replay, replay
from hedgelab.finding import home_advantage
from hedgelab.matrix import AcceptanceMatrix, acceptance_matrix
from hedgelab.token_game import Game, play
from hedgelab.trace import Trace, TraceError, open_trace, sample_trace

__all__ = [
    "AcceptanceMatrix",
    "Bill",
    "Costs",
    "Game",
    "Learner",
    "Parameter",
    "Replay",
    "Trace",
    "TraceError",
    "acceptance",
    "acceptance_matrix",
    "bounds",
    "coins",
    "cost",
    "delays",
    "feedback",
    "home_advantage",
    "kernel",
    "learner",
    "learners",
    "lengths",
    "metrics",
    "open_trace",
    "oracles",
    "play",
    "regret",
    "replay",
    "sample_trace",
    "worlds",
]
