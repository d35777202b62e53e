"""A trained head on disk: a folder with its weights and a card that says what it is and what it was trained on.

    head.safetensors    the trained weights and the vocabulary map (`vocabulary`, (W,) int32); nothing of the target.
                        A matrix stored as int8 has a scale (rows,) float32: weight = scale * stored
    card.json           sealed JSON, see `Card`
    curve.png           the training curve

A head fits one target and one tokenizer. Loading it onto others is refused, as is a map that is missing, damaged or
not the one that the head was trained with: a wrong map would draft wrong tokens without any error.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from hedgelab.storage.manifest import Count, Name, Sha256
from hedgelab.storage.shards import write_atomically
from hedgelab.storage.typed_json import JSON, between, one_of, read, seal, to_document, unseal
from traces.heads import KINDS, Head, HeadError
from traces.targets import Target

__all__ = [
    "CARD",
    "CURVE",
    "STORED",
    "WEIGHTS",
    "Card",
    "load_head",
    "map_hash",
    "read_card",
    "save_head",
    "set_weights",
    "weights_of",
]

WEIGHTS, CARD, CURVE = "head.safetensors", "card.json", "curve.png"
STORED = ("float32", "float16", "int8")
_VERSION = 1
_MAP = "vocabulary"
_PREFIX, _SCALE = "weights.", "scale."


@dataclass(frozen=True)
class Card:
    """What is known about a trained head.

    width : size of its vocabulary. temperature : at which target and head were processed while it was trained.
    depth : steps of the training's unroll; of medusa the number of heads. training_tokens : the target's own tokens in
        its training texts. tokens_seen : tokens of all steps together.
    acceptance : mean gamma on held-out texts by depth, at `temperature`, of the weights as stored. stored : their
        precision
    measured : CPU-seconds of the parts; the only entries that differ between equal trainings
    """

    format_version: Annotated[int, between(_VERSION, _VERSION)]
    name: Name
    kind: Annotated[str, one_of(KINDS)]
    taps: tuple[int, ...]
    width: Count
    vocabulary_sha256: Sha256
    weights_sha256: Sha256
    target: str
    target_sha256: Sha256
    tokenizer_sha256: Sha256
    texts_sha256: tuple[str, ...]
    domains: tuple[str, ...]
    temperature: float
    depth: Count
    steps: Count
    seed: Count
    training_texts: Count
    training_tokens: Count
    tokens_seen: Count
    heldout_texts: Count
    heldout_tokens: Count
    acceptance: tuple[float, ...]
    settings: dict[str, JSON] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    measured: dict[str, JSON] = field(default_factory=dict)
    stored: Annotated[str, one_of(STORED)] = "float32"


def map_hash(ids: Tensor) -> str:
    """Return the sha256 of a vocabulary map."""
    return hashlib.sha256(ids.cpu().to(torch.int32).contiguous().numpy().astype("<i4").tobytes()).hexdigest()


def weights_of(head: Head, stored: str = "float32") -> bytes:
    """Return the content of a head's weights file in one of the precisions `STORED`; HeadError if they do not fit."""
    tensors = {_MAP: head.ids.cpu().to(torch.int32)}
    for name, value in head.state_dict().items():
        weight = value.cpu().contiguous()
        if stored == "int8" and weight.ndim == 2:
            scale = weight.abs().amax(1).clamp(min=1e-30) / 127
            tensors[_SCALE + name] = scale
            tensors[_PREFIX + name] = (weight / scale[:, None]).round().to(torch.int8)
        else:
            tensors[_PREFIX + name] = weight.half() if stored == "float16" else weight
            if not bool(torch.isfinite(tensors[_PREFIX + name]).all()):
                raise HeadError(f"weights {name!r}: do not fit {stored}")
    return save(tensors)


def set_weights(head: Head, weights: bytes) -> None:
    """Give a head the weights of a file's content; RuntimeError if they do not fit."""
    tensors = load(weights)
    state = {}
    for name, weight in tensors.items():
        if name.startswith(_PREFIX):
            scale = tensors.get(_SCALE + name.removeprefix(_PREFIX))
            state[name.removeprefix(_PREFIX)] = weight.float() if scale is None else weight.float() * scale[:, None]
    head.load_state_dict(state)


def save_head(folder: Path, weights: bytes, card: Card) -> None:
    """Write weights, then the card: a folder with a card is complete."""
    write_atomically(folder / WEIGHTS, weights)
    write_atomically(folder / CARD, seal(to_document(card)))


def read_card(folder: Path) -> Card:
    """Return a head's card; HeadError lists every problem."""
    try:
        raw = (folder / CARD).read_bytes()
    except OSError as error:
        raise HeadError(f"{folder}: holds no trained head: {CARD} cannot be read ({error.strerror})") from error
    document, problems = unseal(raw, f"{folder / CARD}")
    if document is not None:
        card: Any = read(Card, document, f"{folder / CARD}", problems)
    if problems:
        raise HeadError("\n".join(problems))
    return card


def load_head(folder: Path, target: Target) -> tuple[Head, Card]:
    """Return the head of a folder on `target`, ready to draft, and its card.

    HeadError for another target or tokenizer, and for files that are missing, damaged or of another head.
    """
    card = read_card(folder)
    if card.tokenizer_sha256 != target.tokenizer_sha256:
        raise HeadError(
            f"{folder}: this head was trained for {card.target!r} with tokenizer sha256 {card.tokenizer_sha256[:12]}; "
            f"the target {target.info.name!r} has tokenizer sha256 {target.tokenizer_sha256[:12]}"
        )
    if card.target_sha256 != target.info.sha256:
        raise HeadError(
            f"{folder}: this head was trained for {card.target!r} (sha256 {card.target_sha256[:12]}), not for the "
            f"target {target.info.name!r} (sha256 {target.info.sha256[:12]})"
        )
    file = folder / WEIGHTS
    try:
        content = file.read_bytes()
        tensors = load(content)
    except (OSError, SafetensorError) as error:
        raise HeadError(f"{file}: cannot be read: {error}") from error
    if _MAP not in tensors:
        raise HeadError(f"{file}: holds no vocabulary map ({_MAP!r}), so its columns stand for no known ids")
    ids = tensors[_MAP].to(torch.int64)
    if ids.ndim != 1 or len(ids) != card.width or map_hash(ids) != card.vocabulary_sha256:
        raise HeadError(f"{file}: its vocabulary map is not the one that the head was trained with")
    found = hashlib.sha256(content).hexdigest()
    if found != card.weights_sha256:
        raise HeadError(f"{file}: has sha256 {found[:12]}, its card says {card.weights_sha256[:12]}")
    sees = card.kind != "medusa" or f"{_PREFIX}join.weight" in tensors
    head = Head(target, card.kind, card.taps, ids, depth=card.depth, last_token=sees)
    try:
        set_weights(head, content)
    except RuntimeError as error:
        raise HeadError(f"{file}: its weights do not fit {target.info.name!r}: {error}") from error
    return head.eval().requires_grad_(False), card
