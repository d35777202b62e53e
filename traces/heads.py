"""Trained draft modules on a target's hidden states: what is trained stands between frozen parts of the target.

Three kinds. The *eagle* head reads, at the token x_t, what the target knew one token earlier and feeds on itself from
there on, so that its law depends on the depth d in the draft:

    f_t = fuse(rms(h_{t-1}^l), l in taps)                   a round's first step: features of the target
    f_t = o_{t-1}                                           every later step: the head's own output
    o_t = layer(join(rms(embedding(x_t)), rms(f_t)))        keys of the same round's own steps, the target's before
    q   = softmax(rows . norm(o_t))                         over a reduced vocabulary; other ids have q = 0

The *truncated* head puts the trained layer on the target's first L layers: o_t = layer(adapt(h_t^L)); its law depends
on the prefix alone.

*Medusa* heads draft D tokens at once from one state, each depth d by a head of its own that sees no draft:

    z_t   = h_{t-1}^l + fuse(rms(h_{t-1}^m), m in the other taps) + join(rms(embedding(x_t)))      l: the last tap given
    o_t^d = z_t + silu(block^d(z_t))
    q     = softmax(rows . norm(o_t^d))                     no norm where h^l is the last state: that has passed it

The round that begins behind x_t drafts x_{t+1+d} at depth d. By then the target has drawn x_t from h_{t-1} and has not
read it, so z_t begins with h_{t-1}, as in the published heads, whose base model gives x_t. Those have one tap, the last
state, and no `join` (`last_token` false): they average over every x_t that could have been drawn (60 steps on Python
texts, one seed, an output matrix a head: .32, .16, .10 at the first depths, with `join` .39, .20, .12); reading h_t
would cost a pass of the target.
Their output matrices are trained, here they are the target's rows. All weights start at 0: each head is at first the
target's own next-token law.

`fuse`, `join`, `adapt`, `layer` and `block` are trained; `norm`, `rows` and the embedding are the target's,
frozen. Everything is computed in float32, whatever the target's dtype.

Source: Li et al. 2024, "EAGLE: speculative sampling requires rethinking feature uncertainty"; several layers fused and
training on the head's own outputs as in Li et al. 2025, "EAGLE-3: scaling up inference acceleration of large language
models via training-time test"; Cai et al. 2024, "Medusa: simple LLM inference acceleration framework with multiple
decoding heads", section 2.1; the last token's embedding there as in Ankner et al. 2024, "Hydra: sequentially-dependent
draft heads for Medusa decoding".

The layer is a copy of the target's last one and runs through the library's own code (biases, query norms and grouped
heads included): attention sees what `_Keys` hands it under the mask given. Hidden states are numbered as transformers
numbers them: 0 is the embedding, l what layer l wrote, the last one what the final norm made of it.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from traces.targets import Target

__all__ = ["KINDS", "Branches", "Head", "HeadError", "Rounds", "taps_of"]

KINDS = ("eagle", "truncated", "medusa")
_EPSILON = 1e-6  # of the norms without weights
_PARTS = ("layers", "norm", "rotary_emb", "embed_tokens")
_KEYS = ("cache", "past_key_values", "past_key_value")  # names that transformers has had for a layer's cache


class HeadError(ValueError):
    """A head cannot be built on a target, stored or read; the message names both."""


class Head(nn.Module):
    """A draft module for one target.

    kind : one of KINDS. taps : the hidden states read; one for truncated. ids : (W,) int64 ascending, the reduced
    vocabulary; column w of the logits stands for ids[w]. seed : of the first weights. depth, last_token : of medusa,
    the number of its heads, and whether they see the token that a round begins behind

    `state_dict` holds the trained weights alone. Raises HeadError for a target without RoPE decoder layers, for layers
    that it does not have, and for ids that it does not know.
    """

    fuse: nn.Linear
    join: nn.Linear
    adapt: nn.Linear
    layer: Any
    blocks: nn.ModuleList

    def __init__(
        self,
        target: Target,
        kind: str,
        taps: Sequence[int],
        ids: Tensor,
        seed: int = 0,
        *,
        depth: int = 1,
        last_token: bool = True,
    ) -> None:
        super().__init__()
        body = target.model.base_model
        _check_target(target)
        _check_taps(target, kind, taps)
        _check_ids(target, ids)
        self.kind, self.taps, self.last_token = kind, tuple(taps), last_token
        width = int(target.model.config.get_text_config().hidden_size)
        output, ids = target.model.get_output_embeddings(), ids.to(target.device)
        bias = getattr(output, "bias", None)
        self.ids: Tensor
        self.rows: Tensor
        self.bias: Tensor | None
        self.register_buffer("ids", ids, persistent=False)
        self.register_buffer("rows", output.weight[ids].detach().float(), persistent=False)
        self.register_buffer("bias", None if bias is None else bias[ids].detach().float(), persistent=False)
        # in a tuple, so that the target's parts are neither trained nor stored
        self._frozen = (body.embed_tokens, copy.deepcopy(body.norm).float().requires_grad_(False), body.rotary_emb)
        if kind == "medusa":
            self._make_heads(target, width, depth)
        else:
            self._make_layer(target, width, seed)

    def _make_heads(self, target: Target, width: int, depth: int) -> None:
        """Make the trained parts of medusa heads; at first each gives the target's own next-token law."""
        if self.taps[-1] == _layers(target):  # this state has passed the final norm
            self._frozen = (self._frozen[0], nn.Identity(), self._frozen[2])
        mixed = {"fuse": len(self.taps) - 1, "join": int(self.last_token)}
        for part, times in mixed.items():
            if times:
                setattr(self, part, _linear(torch.zeros(width, times * width), target))
        self.blocks = nn.ModuleList(_linear(torch.zeros(width, width), target, bias=True) for _ in range(depth))

    def _make_layer(self, target: Target, width: int, seed: int) -> None:
        """Make the trained parts of an eagle or truncated head."""
        self.layer = copy.deepcopy(target.model.base_model.layers[-1]).float().requires_grad_(True)
        self._keys_name = next(name for name in _KEYS if name in inspect.signature(self.layer.forward).parameters)
        shapes = {"fuse": len(self.taps), "join": 2} if self.kind == "eagle" else {"adapt": 1}
        generator = torch.Generator().manual_seed(seed)
        for part, times in shapes.items():
            noise = torch.randn(width, times * width, generator=generator) * 0.3 / (3 * times * width) ** 0.5
            # at first the last input passes through: the layer begins as the target's own last layer
            noise[:, -width:] += torch.eye(width) * (2.0 if part == "join" else 1.0)
            if part == "join":
                noise[:, :width] += torch.eye(width) * 0.5
            setattr(self, part, _linear(torch.eye(width) if part == "adapt" else noise, target))

    @property
    def width(self) -> int:
        """Size of the reduced vocabulary."""
        return len(self.rows)

    def feature(self, states: Sequence[Tensor]) -> Tensor:
        """Return the target's feature (..., H) float32 from its states (..., H), one for each tap."""
        if self.kind == "truncated":
            return states[0].float()
        if self.kind == "medusa":
            others = [_rms(state.float()) for state in states[:-1]]
            return states[-1].float() + (self.fuse(torch.cat(others, -1)) if others else 0)
        return self.fuse(torch.cat([_rms(state.float()) for state in states], -1))

    def inputs(self, tokens: Tensor, feature: Tensor) -> Tensor:
        """Return what the layer, or each medusa head, reads (..., H) at tokens (...) int64 with features (..., H)."""
        if self.kind == "truncated":
            return self.adapt(feature)
        if self.kind == "medusa" and not self.last_token:
            return feature
        embedding = _rms(self._frozen[0](tokens).float())
        if self.kind == "medusa":
            return feature + self.join(embedding)
        return self.join(torch.cat([embedding, _rms(feature)], -1))

    def draft(self, d: int, inputs: Tensor) -> Tensor:
        """Return the output (..., H) of the medusa head of depth d for its rounds' inputs (..., H)."""
        return inputs + F.silu(self.blocks[d](inputs))

    def attend(self, inputs: Tensor, positions: Tensor, visible: Tensor, keys: Any) -> Tensor:
        """Return the layer's outputs (B, Q, H) for inputs (B, Q, H) at positions (B, Q).

        visible : (B or 1, Q, S) bool, which of the S keys that `keys.update` returns each query sees; at least one
        """
        hidden = torch.zeros(visible.shape, device=inputs.device).masked_fill_(~visible, torch.finfo(torch.float32).min)
        out = self.layer(
            inputs,
            attention_mask=hidden[:, None].expand(len(inputs), -1, -1, -1),
            position_ids=positions,
            position_embeddings=self._frozen[2](inputs, positions),
            use_cache=True,
            **{self._keys_name: keys},
        )
        return out[0] if isinstance(out, tuple) else out

    def logits(self, outputs: Tensor) -> Tensor:
        """Return logits (..., W) float32 of outputs (..., H)."""
        return F.linear(self._frozen[1](outputs), self.rows, self.bias)

    def unroll(
        self, tokens: Tensor, states: Sequence[Tensor], real: Tensor, depth: int, begin: int = 0
    ) -> Iterator[Tensor]:
        """Yield for d = 0 .. depth - 1 the outputs (B, T - begin, H) of rounds that began d tokens earlier.

        tokens : (B, T) int64, the texts. states : the target's (B, T, H), one for each tap. real : (B, T) bool, what is
        no padding; within a row real tokens are neighbours. begin : rounds begin at this column or behind it

        Column t - begin of depth d drafts the token behind column t for the round that began at column t - d and
        followed the text since. It means something where t - d >= begin and both are real.
        """
        if self.kind == "truncated" and depth != 1:
            raise ValueError(f"a truncated head has depth 1, not {depth}")
        states = [state.masked_fill(~real[..., None], 0.0) for state in states]  # anything may stand at padding
        if self.kind == "medusa":
            # a round reads nothing behind its beginning, so depth d is a row of outputs moved by d columns
            feature = self.feature([_later(state)[:, begin:] for state in states])
            inputs = self.inputs(tokens[:, begin:], feature)
            for d in range(depth):
                yield F.pad(self.draft(d, inputs), (0, 0, d, 0))[:, : inputs.shape[1]]
            return
        positions = (real.cumsum(1) - 1).clamp(min=0)
        column = torch.arange(tokens.shape[1], device=tokens.device)
        itself = column[:, None] == column
        feature = self.feature([_later(state) for state in states] if self.kind == "eagle" else states)
        keys = _Growing()
        seen = ((column <= column[:, None]) & real[:, None]) | itself  # padding sees itself: something must be seen
        output = self.attend(self.inputs(tokens, feature), positions, seen, keys)[:, begin:]
        yield output
        late = column[begin:]
        visible = []
        for d in range(1, depth):
            # the round's own keys: depth i at the column that its start lies i before
            visible.append(late[None] - d == late[:, None] - d)
            before = (column <= late[:, None] - d) & real[:, None]
            own = [(late[None] - i == late[:, None] - d).expand(len(tokens), -1, -1) for i in range(1, d + 1)]
            inputs = self.inputs(tokens[:, begin:], _later(output))
            output = self.attend(inputs, positions[:, begin:], torch.cat([before, *own], 2), keys)
            yield output


class Rounds:
    """The rounds begun at the last `k` tokens of each text, all followed along the text, one token a step.

    A round begun a tokens ago is at its depth a. The queries, one a round, run as one batch. Keys made from the
    target's features are shared by all rounds; those of a round's own steps live in a ring of the last k columns.

    nodes : room for the keys of so many nodes of a draft tree, see `branches`
    """

    def __init__(self, head: Head, k: int, nodes: int = 0) -> None:
        self._head, self._k, self._nodes = head, k, nodes
        self._text = k * (k - 1) + nodes  # where the keys of the text begin in the store

    @torch.inference_mode()
    def begin(self, prompts: Tensor, capacity: int, states: Sequence[Tensor], pad: int) -> None:
        """Read prompts (B, P) int64, left-padded with `pad`, and the target's states (B, P, H) at them."""
        head, k = self._head, self._k
        device = head.rows.device
        real = (prompts != pad).to(device)
        self._column = prompts.shape[1]
        self._real = torch.zeros(len(prompts), capacity, dtype=torch.bool, device=device)
        self._real[:, : self._column] = real
        self._position = real.sum(1)
        states = [state.masked_fill(~real[..., None], 0.0) for state in states]
        self._made = torch.full((k,), -(10**9), device=device)  # the column of each place in the ring
        self._own: Tensor | None = None
        self._keys = _Placed(self._text, capacity)
        feature = head.feature([_later(state) for state in states] if head.kind == "eagle" else states)
        column = torch.arange(self._column, device=device)
        visible = ((column <= column[:, None]) & real[:, None]) | (column[:, None] == column)
        self._keys.aim(self._text + column, self._column)
        visible = F.pad(visible, (self._text, 0))  # ring and nodes come first in the store: nobody sees them yet
        positions = (real.cumsum(1) - 1).clamp(min=0)
        head.attend(head.inputs(prompts.clamp(min=0).to(device), feature), positions, visible, self._keys)

    @torch.inference_mode()
    def step(self, token: Tensor, states: Sequence[Tensor]) -> Tensor:
        """Read one token (B,) a row; return outputs (B, k, H).

        states : the target's (B, H), of an eagle head at the token before, of a truncated one at the token itself

        Entry a belongs to the round begun a tokens ago. It means nothing before that many tokens were read.
        """
        head, k, now = self._head, self._k, self._column
        device = head.rows.device
        feature = head.feature(states)[:, None]
        if k > 1:
            own = self._own if self._own is not None else feature.expand(-1, k, -1)
            feature = torch.cat([feature, own[:, :-1]], 1)
        self._real[:, now] = True
        self._column += 1
        depth = torch.arange(k, device=device)
        self._made[now % k] = now
        self._keys.aim(torch.cat([depth[:1] + self._text + now, now % k * (k - 1) + depth[:-1]]), now + 1)
        # a key of depth i at column u belongs to the round begun at u - i
        ring = (self._made[:, None] - depth[1:]).flatten() == now - depth[:, None]
        shared = (torch.arange(now + 1, device=device) <= now - depth[:, None]) & self._real[:, None, : now + 1]
        visible = torch.cat([F.pad(ring, (0, self._nodes)).expand(len(token), -1, -1), shared], 2)
        inputs = head.inputs(token.to(device)[:, None].expand(-1, k), feature)
        self._own = head.attend(inputs, self._position[:, None].expand(-1, k), visible, self._keys)
        self._position = self._position + 1
        return self._own

    def branches(self) -> Branches:
        """Return a draft tree's root at the latest token. What grows there changes nothing of the rounds.

        It is of use until the next step.
        """
        assert self._own is not None
        seen = self._real[:, None, : self._column]
        return Branches(
            self._head, self._keys, self._own[:, :1], self._position - 1, seen, self._text - self._nodes, self._nodes
        )

    def keep(self, rows: Tensor) -> None:
        """Go on with these rows, in this order."""
        rows = rows.to(self._head.rows.device)
        self._real, self._position = self._real[rows], self._position[rows]
        self._own = None if self._own is None else self._own[rows]
        self._keys.keep(rows)


class Branches:
    """A draft tree that grows level by level behind one token of each text. Made by `Rounds.branches`.

    A node sees the text, as all rounds do, its ancestors and itself. It stands on its parent's own output, or with a
    truncated head on the target's first layers.

    outputs : (B, Q, H), the head's at the latest level's nodes; at first at the root
    """

    def __init__(
        self, head: Head, keys: _Placed, root: Tensor, position: Tensor, text: Tensor, begin: int, room: int
    ) -> None:
        """position : (B,), the root's. text : (B, 1, T) bool, its columns that all see. begin, room : of nodes' keys"""
        self._head, self._keys, self.outputs = head, keys, root
        self._position, self._text, self._begin = position, text, begin
        self._lineage = torch.zeros(len(root), 1, room, dtype=torch.bool, device=root.device)  # ancestors and itself
        self._used = 0

    @torch.inference_mode()
    def grow(self, parent: Tensor, tokens: Tensor, states: Sequence[Tensor] = ()) -> Tensor:
        """Add a level of nodes with tokens (B, Q) int64 behind nodes `parent` (B, Q) of the level before.

        states : of a truncated head, the target's (B, Q, H) at the nodes. Return their outputs (B, Q, H). Raises
        ValueError where the nodes outnumber the room, and HeadError where states are missing.
        """
        device, (batch, count) = self.outputs.device, tokens.shape
        room = self._lineage.shape[2]
        if self._used + count > room:
            raise ValueError(f"a tree of {self._used + count} nodes in a room of {room}")
        if self._head.kind != "eagle" and not states:
            raise HeadError(f"a {self._head.kind} head's branches need the target's own layers at their nodes")
        parent, tokens = parent.to(device), tokens.to(device)
        place = self._used + torch.arange(count, device=device)
        if states:
            features = self._head.feature(states)
        else:
            features = self.outputs.gather(1, parent[..., None].expand(-1, -1, self.outputs.shape[2]))
        above = self._lineage.gather(1, parent[..., None].expand(-1, -1, room))
        self._lineage = above | (torch.arange(room, device=device) == place[:, None])
        self._position = self._position + 1
        visible = torch.cat(
            [self._lineage.new_zeros(batch, count, self._begin), self._lineage, self._text.expand(-1, count, -1)], 2
        )
        self._keys.aim(self._begin + place, self._text.shape[2])
        inputs = self._head.inputs(tokens, features)
        self.outputs = self._head.attend(inputs, self._position[:, None].expand(-1, count), visible, self._keys)
        self._used += count
        return self.outputs


class _Growing:
    """Keys and values of all calls so far, one behind the other. Differentiable."""

    def __init__(self) -> None:
        self._pair: tuple[Tensor, Tensor] | None = None

    def update(self, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if self._pair is not None:
            key, value = torch.cat([self._pair[0], key], 2), torch.cat([self._pair[1], value], 2)
        self._pair = key, value
        return self._pair


class _Placed:
    """Keys and values in a store of fixed size: places of the rounds' own first, then one a column of the text."""

    def __init__(self, own: int, capacity: int) -> None:
        self._size, self._begin = own + capacity, own
        self._store: list[Tensor] = []
        self._place, self._end = torch.empty(0, dtype=torch.int64), own

    def aim(self, place: Tensor, columns: int) -> None:
        """Say where (Q,) int64 the next keys go, and how many columns of the text are then known."""
        self._place, self._end = place, self._begin + columns

    def update(self, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self._store:
            # zeros, not what memory holds: 0 times NaN would reach the outputs
            self._store = [new.new_zeros(*new.shape[:2], self._size, new.shape[3]) for new in (key, value)]
        for store, new in zip(self._store, (key, value), strict=True):
            store.index_copy_(2, self._place, new)
        return self._store[0][:, :, : self._end], self._store[1][:, :, : self._end]

    def keep(self, rows: Tensor) -> None:
        self._store = [store[rows] for store in self._store]


def taps_of(states: Mapping[int, Tensor] | Sequence[Tensor], taps: Sequence[int]) -> list[Tensor]:
    """Return the states that a head reads, in the order of its taps."""
    return [states[tap] for tap in taps]


def _rms(x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], eps=_EPSILON)


def _later(x: Tensor) -> Tensor:
    """Return x (B, T, H) one column later, zeros in the first."""
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)


def _linear(weight: Tensor, target: Target, bias: bool = False) -> nn.Linear:
    """Return a map with this weight (out, in), on the target's device; a bias starts at 0."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias, device=target.device)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias:
            linear.bias.zero_()
    return linear


def _layers(target: Target) -> int:
    return int(target.model.config.get_text_config().num_hidden_layers)


def _check_target(target: Target) -> None:
    name, body = target.info.name, target.model.base_model
    missing = [part for part in _PARTS if not hasattr(body, part)]
    if missing:
        raise HeadError(f"{name!r}: heads need Llama-like decoder layers; it has no {', '.join(missing)}")
    known = inspect.signature(body.layers[-1].forward).parameters
    if "position_embeddings" not in known or not any(key in known for key in _KEYS):
        raise HeadError(f"{name!r}: heads need decoder layers that take rotary positions and a cache")
    if getattr(target.model.config.get_text_config(), "final_logit_softcapping", None):
        raise HeadError(f"{name!r}: its logits are capped behind the output rows; heads need them linear")


def _check_taps(target: Target, kind: str, taps: Sequence[int]) -> None:
    layers = _layers(target)
    if kind not in KINDS:
        raise HeadError(f"kind is {kind!r}; allowed: {' or '.join(KINDS)}")
    if kind == "truncated" and len(taps) != 1:
        raise HeadError(f"taps: {len(taps)} layers given; a truncated head continues one")
    # the last state of all has passed the final norm: a truncated head would be the target itself, out of scale
    highest = layers - 1 if kind == "truncated" else layers
    if not taps or len(set(taps)) < len(taps) or not all(0 <= tap <= highest for tap in taps):
        raise HeadError(
            f"taps are {list(taps)}; {target.info.name!r} has {layers} layers, allowed for {kind}: different ones, "
            f"0 to {highest}"
        )


def _check_ids(target: Target, ids: Tensor) -> None:
    name = target.info.name
    if ids.dtype != torch.int64 or ids.ndim != 1 or not len(ids):
        raise HeadError("vocabulary map: is no list of ids")
    if bool((ids[1:] <= ids[:-1]).any()) or int(ids[0]) < 0:
        raise HeadError("vocabulary map: its ids do not ascend from at least 0")
    unknown = int(ids[-1]) >= target.vocabulary or bool(torch.isin(ids, target.absent.cpu()).any())
    if unknown:
        raise HeadError(f"vocabulary map: holds ids that {name!r} ({target.vocabulary} ids) does not know")
