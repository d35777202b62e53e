"""The rule that a round commits tokens by: lossless, whatever was drafted.

From the root down, at each node reached:

    certain drafts   The target's token is drawn. If a child holds it that child is reached, else the round ends. So
                     the text is, coin for coin, that of plain sampling.
    sampled drafts   The candidates y_1, y_2, .. are looked at in order, all drawn from the law q there. y_j is accepted
                     with probability min(1, p_j(y_j) / q(y_j)), p_1 = p being the target's law: its node is reached.
                     After a rejection p_{j+1} = (p_j - q)_+, normalised. If none is accepted the token is drawn from
                     the last residual, and the round ends.

With one candidate a node the second is the chain of Leviathan, Kalman and Matias 2023 (section 2.3), with several the
recursive rejection of SpecInfer (Miao et al. 2024, unconfirmed against its text); `hedgelab.recursive_rejection` and
`hedgelab.several_drafts` show that each committed token is ~ p, and how often it is a draft.
"""

from __future__ import annotations

import torch

from hedgelab.coins import TARGET
from traces.live.chance import Chance
from traces.live.draft import Draft
from traces.sampling import Dense, Law, OneHot, Reduced
from traces.trees import PAD, ROOT

__all__ = ["accept"]

_ROUNDING = 1e-3  # how far from 1 a law's float32 sum may lie


def accept(draft: Draft, target: Dense | OneHot, chance: Chance, place: int) -> tuple[list[int], int]:
    """Return the nodes that are accepted, from the root down, and the token that the target adds behind them.

    target : laws of 1 + M rows, behind the root and behind each node; those of nodes that are not reached are not
        read. place : the row that the first draft is for

    Ratios and residuals are those of the probabilities as they are stored, in float64: a float32 law misses the sum 1
    by some 1e-7, and the committed token's law misses p by as much.

    Raises ValueError that names the row where the target's law is none (NaN, a negative entry, a sum other than 1), or
    where a draft's law could not have drawn it.

    >>> from traces.live.chance import Coins
    >>> from traces.trees import chain
    >>> target = OneHot(torch.tensor([5, 6, 7]))
    >>> accept(Draft(chain(torch.tensor([[5, 9]]))), target, Coins(seed=0, sequence=0), 0)
    ([0], 6)
    """
    tokens, parent = draft.trees.tokens[0].tolist(), draft.trees.parent[0].tolist()
    if target.size != 1 + len(tokens):
        raise ValueError(f"the target has {target.size} laws; a draft of {len(tokens)} nodes needs {1 + len(tokens)}")
    child_of = {(above, token): node for node, (above, token) in enumerate(zip(parent, tokens, strict=True))}
    path: list[int] = []
    at = ROOT
    while True:
        row = place + len(path)
        p = _law_of(target, 1 + at, row)
        if draft.laws is None or draft.candidates is None:
            drawn = chance.draw(p, row, TARGET)
            reached = child_of.get((at, drawn), PAD)
        else:
            reached = PAD
            for nth, node in enumerate(draft.candidates[1 + at]):
                q = draft.laws[1 + at]
                if chance.accept(_ratio(p, q, tokens[node], row), row, nth):
                    reached = node
                    break
                p = _residual(p, q, row)
            if reached == PAD:
                drawn = chance.draw(p, row, TARGET)
        if reached == PAD:
            return path, drawn
        path.append(reached)
        at = reached


def _ratio(p: Dense | OneHot, q: Law, token: int, row: int) -> float:
    """Return min(1, p(token) / q(token)). Looks at one entry of each law."""
    drawn = _at(q, token, row)
    if not 0 < drawn <= 1 + _ROUNDING:
        raise ValueError(f"row {row}: draft {token} has probability {drawn} under the law that it was drawn from")
    return min(1.0, _at(p, token, row) / drawn)


def _residual(p: Dense | OneHot, q: Law, row: int) -> Dense | OneHot:
    """Return (p - q)_+, normalised; p where nothing remains: p and q are then the same."""
    if isinstance(p, OneHot):
        return p
    left = p.probs.to(torch.float64, copy=True)
    if isinstance(q, OneHot):
        left[0, q.token] -= 1
    elif isinstance(q, Reduced):
        left[:, q.ids] -= q.probs
    elif q.probs.shape == left.shape:
        left -= q.probs
    else:
        raise ValueError(f"row {row}: the target's law is over {left.shape[1]} ids, its draft's {q.probs.shape[1]}")
    mass = left.clamp_(min=0).sum(-1)
    if not torch.isfinite(mass):
        raise ValueError(f"row {row}: the draft's law holds NaN")
    if mass == 0:
        return p
    left /= mass
    return Dense(left, torch.ones_like(mass))


def _law_of(target: Dense | OneHot, index: int, row: int) -> Dense | OneHot:
    """Return the target's law behind one node. Raises ValueError if it is none."""
    p = target.rows(slice(index, index + 1))
    if isinstance(p, OneHot):
        if int(p.token) < 0:
            raise ValueError(f"row {row}: the target has no law")
        return p
    # amin keeps NaN, and a comparison with NaN is False: one pass sees both
    least, total = float(p.probs.amin()), float(p.total)
    if not least >= 0:
        raise ValueError(f"row {row}: the target's law holds {'NaN' if least != least else least}")
    if not abs(total - 1) <= _ROUNDING:
        raise ValueError(f"row {row}: the target's law sums to {total}, not to 1")
    return p


def _at(law: Law, token: int, row: int) -> float:
    """Return the probability of one id under a law of one row."""
    if isinstance(law, OneHot):
        return float(int(law.token) == token)
    ids = law.index if isinstance(law, Reduced) else law.probs[0]
    if token >= len(ids):
        raise ValueError(f"row {row}: draft {token} is no id of a vocabulary of {len(ids)}")
    column = int(law.index[token]) if isinstance(law, Reduced) else token
    return float(law.probs[0, column]) if column >= 0 else 0.0
