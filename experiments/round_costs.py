"""Measuring what calls of target and drafters cost, with the drafters' own code, on recorded texts.

Everything is CPU seconds of one thread behind a text of `prefix` tokens. Parts of a call that other calls make too are
timed once and added: the target's first layers, of drafters that need them at the last token.

- A pass over n tokens of one text is timed as one step of n texts where only the drafter's step is at hand: the same
  matrix products, with n short attentions for one of n rows.
- A drafter that draws its tokens one by one is built for drafts of 1 (one round followed, not k) and stepped k times.
- A tree over a drafter's laws is drafted level by level: a step of as many texts as nodes whose children are wanted.
- The target reads a tree as it reads a chain of as many tokens: the same products under another mask.
- Scoring is what `traces.scoring` does for a drafter that was not chosen.
"""

from __future__ import annotations

import contextlib
import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import comb
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import Cache

from hedgelab.storage.costs import DrafterCost, Points, Seconds
from hedgelab.storage.manifest import Processing
from traces.drafters.base import (
    PAD,
    DeepDrafter,
    DeepLaws,
    Drafter,
    FlatDrafter,
    Prefix,
    Reading,
    States,
    TreeDrafter,
    Trees,
)
from traces.kv import Stepper
from traces.sampling import Dense, OneHot, draw, faults, process, top_ids
from traces.scoring import Scorer
from traces.targets import Target
from traces.trees import depths_of

__all__ = [
    "FEW",
    "LARGEST",
    "Passes",
    "Sample",
    "Text",
    "drafter_cost",
    "seconds_of",
    "target_costs",
    "texts_of",
    "widths",
]

LARGEST = 64  # most tokens of a tree that the target is timed with
AT_ONCE = ("medusa",)  # kinds whose laws at all depths need none of the drafted tokens
WARM = 2  # calls before the first one counted
FEW = 8  # tokens of a pass that is timed in every repeat
_TAIL = 0.025


@dataclass
class Sample:
    """Seconds seen of one call, over repeats and texts."""

    seen: list[float] = field(default_factory=list)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Add the CPU seconds of the block."""
        begin = time.process_time()
        yield
        self.seen.append(time.process_time() - begin)


def seconds_of(seen: Sequence[float]) -> Seconds:
    """Return the median and its 95% interval from order statistics; of fewer than 6 repeats, the extremes.

    The interval holds the median of i.i.d. times; what slows all repeats alike, such as a busy machine, it cannot show.

    >>> seconds_of([3.0, 1.0, 2.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    Seconds(median=4.5, low=1.0, high=8.0)
    """
    ordered, n = sorted(seen), len(seen)
    below, rank = 0.0, 0
    while rank < (n - 1) // 2 and below + comb(n, rank) / 2**n <= _TAIL:
        below += comb(n, rank) / 2**n
        rank += 1
    low = max(rank - 1, 0)
    return Seconds(statistics.median(ordered), ordered[low], ordered[n - 1 - low])


@dataclass(frozen=True)
class Text:
    """A recorded text: its first tokens, what the target knows at them, and the steps behind them.

    tokens : (1, prefix + steps) int64. states : at the prefix. hidden : at each step's token. laws : behind it
    """

    tokens: Tensor
    prefix: int
    states: States
    hidden: tuple[tuple[Tensor, ...], ...]
    laws: tuple[Dense | OneHot, ...]

    def read(self, step: int, rows: int, hidden: bool) -> Prefix:
        """Return `rows` copies of the text with the token of a step as its last."""
        tokens = self.tokens[:, : self.prefix + step + 1].expand(rows, -1)
        if not hidden:
            return Prefix(tokens)
        before = {tap: state.expand(rows, -1) for tap, state in self.before(step).items()}
        return Prefix(tokens, tuple(state.expand(rows, -1) for state in self.hidden[step]), before)

    def before(self, step: int) -> dict[int, Tensor]:
        """Return what the target knows (1, H) at the token before that of a step, by tap."""
        return {tap: self.hidden[step - 1][tap] if step else state[:, -1] for tap, state in self.states.items()}


@torch.inference_mode()
def texts_of(
    target: Target, paths: Sequence[Sequence[int]], prefix: int, steps: int, taps: set[int], processing: Processing
) -> list[Text]:
    """Return what the target knows along paths (of at least prefix + steps tokens)."""
    found = []
    for path in paths:
        tokens = torch.tensor([path[: prefix + steps]], dtype=torch.int64)
        stepper = Stepper(target.model, True, taps)
        stepper.begin(tokens[:, :prefix], prefix + steps)
        hidden, laws = [], []
        for step in range(steps):
            logits = target.known(stepper.step(tokens[:, prefix + step]))
            law = process(logits, processing)
            assert isinstance(law, Dense | OneHot)
            hidden.append(stepper.hidden)
            laws.append(law)
        found.append(Text(tokens, prefix, stepper.prompt_states, tuple(hidden), tuple(laws)))
    return found


# ------------------------------------------------------------------ the target


class Passes(Stepper):
    """A model that has read one text, and passes over tokens behind it which leave no trace."""

    @torch.inference_mode()
    def over(self, tokens: Tensor) -> Tensor:
        """Return logits (1, M, V) behind each of M tokens (1, M); the text's capacity must have room for them."""
        end = self._length + tokens.shape[1]
        # the layers' stores are shared: what is written behind the text's end there, its own layers do not show
        cache = Cache(layers=[copy.copy(layer) for layer in self._cache.layers])
        out = self._model(
            input_ids=tokens.to(self._model.device),
            attention_mask=torch.ones(1, end, dtype=torch.int64, device=self._model.device),
            position_ids=torch.arange(self._length, end, device=self._model.device)[None],
            use_cache=True,
            **{self._cache_name: cache},
        )
        logits: Tensor = out.logits
        return logits


class _Stamps:
    """CPU seconds since the start of a pass at the end of every layer of a model."""

    def __init__(self, target: Target) -> None:
        count = int(target.model.config.get_text_config().num_hidden_layers)
        stacks = (part for part in target.model.modules() if isinstance(part, nn.ModuleList) and len(part) == count)
        self.at: list[float] = []
        self._hooks = [
            layer.register_forward_hook(lambda *_: self.at.append(time.process_time())) for layer in next(stacks)
        ]

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()


@torch.inference_mode()
def target_costs(
    target: Target, texts: Sequence[Text], sizes: Sequence[int], repeats: int, processing: Processing
) -> tuple[Seconds, Points, dict[int, list[float]]]:
    """Return the seconds of one autoregressive step, of passes over `sizes` tokens, and of each pass' first layers.

    The last: size -> seconds up to the end of layer 1, 2, ...; the law of every token read is part of steps and passes.
    """
    plain, passes = Sample(), {size: Sample() for size in sizes}
    layers: dict[int, list[list[float]]] = {size: [] for size in sizes}
    coin = torch.full((1,), 0.5, dtype=torch.float64)
    for text in texts:
        stepper = Passes(target.model)
        stepper.begin(text.tokens[:, : text.prefix], text.prefix + len(text.laws) + max(sizes))
        drafts = text.tokens[:, torch.arange(max(sizes)) % text.tokens.shape[1]]
        # in turn, a repeat of each: what slows the machine for a while then slows all
        for repeat in range(WARM + repeats):
            with (plain if repeat >= WARM else Sample()).timed():
                law = process(target.known(stepper.step(text.tokens[:, text.prefix + repeat])), processing)
                draw(law, coin)
            for size in sizes:
                # large passes vary less and take most of the time
                if size > FEW and repeat % 2:
                    continue
                stamps = _Stamps(target)
                sample = passes[size] if repeat >= WARM else Sample()
                begin = time.process_time()
                with sample.timed():
                    law = process(target.known(stepper.over(drafts[:, :size])[0]), processing)
                    draw(law, coin.expand(size))
                stamps.remove()
                if repeat >= WARM:
                    layers[size].append([stamp - begin for stamp in stamps.at])
    points = Points(tuple(sizes), tuple(seconds_of(passes[size].seen) for size in sizes))
    medians = {size: np.median(np.array(seen), 0).tolist() for size, seen in layers.items()}
    return seconds_of(plain.seen), points, medians


# ------------------------------------------------------------------ drafters


def widths(drafter: Drafter, k: int) -> tuple[list[int], list[int]] | None:
    """Return for each depth of a reading's drafts how many laws it needs, and how many tokens it proposes.

    None for a kind of reading that is not known here.
    """
    details: dict[str, Any] = dict(drafter.describe().details)
    if drafter.kind == "tree":
        paths = [tuple(path) for path in details["paths"]]
        parents = {path[:-1] for path in paths}
        laws = [sum(len(path) == depth for path in parents) for depth in range(k)]
        return laws, [sum(len(path) == depth + 1 for path in paths) for depth in range(k)]
    if drafter.kind == "several":
        many = details["drafts"]
        # drafts of one sequence are as many at every depth, at the first one all from one law
        if details["form"] == "sequences":
            return [1] + [many] * (k - 1), [many] * k
        return [many**depth for depth in range(k)], [many ** (depth + 1) for depth in range(k)]
    return None


def layers_needed(drafter: FlatDrafter | DeepLaws, text: Text) -> int:
    """Return how many of the target's layers must have read the last token before the drafter can draft.

    Found by spoiling what the target says there: a law that does not change did not need it.
    """
    if not drafter.needs_hidden:
        return 0
    drafter.begin(text.tokens[:, : text.prefix], text.tokens.shape[1], text.states)
    spoilt = _Watched([torch.full_like(state, torch.nan) for state in text.hidden[0]])
    values = drafter.logits(Prefix(text.tokens[:, : text.prefix + 1], spoilt, text.before(0))).values
    first = values if isinstance(drafter, FlatDrafter) else values[:, 0]
    return max(spoilt.seen, default=0) if bool(torch.isnan(first).any()) else 0


class _Watched(Sequence[Tensor]):
    """Hidden states that note which were read."""

    def __init__(self, states: Sequence[Tensor]) -> None:
        self._states, self.seen = states, set[int]()

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, place: Any) -> Any:
        self.seen.add(place)
        return self._states[place]


def begin(drafter: Drafter, text: Text, rows: int) -> None:
    """Let a drafter read the prefix of `rows` copies of a text."""
    prompts, capacity = text.tokens[:, : text.prefix], text.tokens.shape[1]
    if drafter.needs_hidden or drafter.context is not None:  # reads with a network: once, then copied
        drafter.begin(prompts, capacity, text.states)
        if rows > 1:
            drafter.keep(torch.zeros(rows, dtype=torch.int64))
    else:
        drafter.begin(prompts.expand(rows, -1), capacity, text.states)


def step_seconds(drafter: FlatDrafter | DeepLaws, texts: Sequence[Text], rows: int, take: Callable[[Tensor, Any], Any],
                 repeats: int) -> list[float]:  # fmt: skip
    """Return the seconds of laws of `rows` texts at once, and of `take` (values, their Logits) on each round's law."""
    sample = Sample()
    for text in texts:
        begin(drafter, text, rows)
        for step in range(min(repeats + WARM, len(text.laws))):
            prefix = text.read(step, rows, drafter.needs_hidden)
            with (sample if step >= WARM else Sample()).timed():
                found = drafter.logits(prefix)
                take(found.values.flatten(0, -2), found)
    return sample.seen


class _Clock:
    """The clock of a Scorer: seconds of the parts named, one entry a row."""

    def __init__(self, wanted: set[str]) -> None:
        self.wanted, self.spent = wanted, 0.0

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin = time.process_time()
        yield
        if name in self.wanted:
            self.spent += time.process_time() - begin


def evaluate_seconds(
    drafter: Drafter, target: Target, texts: Sequence[Text], rows: int, k: int, repeats: int
) -> list[float]:
    """Return the seconds of scoring one row of `rows` texts; what a reading reads is not counted."""
    clock = _Clock({f"forward: {drafter.name}", f"processing: {drafter.name}"})
    listed = [drafter.over, drafter] if isinstance(drafter, Reading) else [drafter]
    warm = WARM if isinstance(drafter, FlatDrafter) else k  # until rounds of all depths are under way
    sample = []
    for text in texts:
        scorer = Scorer(target, listed, k, _sound, clock)
        scorer.begin(rows)
        for each in listed:
            begin(each, text, rows)
        hidden = any(each.needs_hidden for each in listed)
        for step in range(min(repeats + warm, len(text.laws) - 1)):
            law, token = text.laws[step], text.tokens[:, text.prefix + step + 1].expand(rows)
            law = law.rows(torch.zeros(rows, dtype=torch.int64))
            clock.spent = 0.0
            scorer.row(text.read(step, rows, hidden), law, token, "")
            if step >= warm:
                sample.append(clock.spent)
    return sample


def _sound(logits: Tensor, name: str, place: str) -> None:
    if wrong := faults(logits):
        raise ValueError(f"drafter {name!r}: its logits hold {next(iter(wrong.values()))}")


def drafter_cost(
    drafter: Drafter,
    single: Drafter | None,
    target: Target,
    texts: Sequence[Text],
    layers: dict[int, list[float]],
    k: int,
    repeats: int,
) -> DrafterCost:
    """Return what a drafter costs.

    single : the same drafter built for drafts of 1, of a reading too: of what it reads. layers : see `target_costs`
    """
    said = drafter.describe()
    flat = isinstance(drafter, FlatDrafter)
    # one pass over many tokens for a law of the prefix alone, else one row after the other
    sizes = (1, 2, 4, k + 1, 4 * (k + 1)) if flat else (1,)
    evaluated = [evaluate_seconds(drafter, target, texts, size, k, repeats) for size in sorted(set(sizes))]
    evaluate = Points(tuple(sorted(set(sizes))), tuple(map(seconds_of, evaluated)))
    draft, nodes, note = _draft(drafter, single, texts, layers, k, repeats)
    over = drafter.over.name if isinstance(drafter, Reading) else None
    return DrafterCost(said.kind, said.rule, said.depth, draft, nodes, evaluate, over, note)


def _draft(
    drafter: Drafter,
    single: Drafter | None,
    texts: Sequence[Text],
    layers: dict[int, list[float]],
    k: int,
    repeats: int,
) -> tuple[tuple[Seconds, ...] | None, tuple[float, ...] | None, str]:
    if isinstance(drafter, DeepDrafter):
        return (_calls(drafter.propose, drafter, texts, repeats),) * k, None, ""
    if isinstance(drafter, TreeDrafter):
        return _tree(drafter, texts, k, repeats)
    laws, tokens = [1] * k, None
    if isinstance(drafter, Reading):
        found = widths(drafter, k)
        if found is None:
            return None, None, f"not known how a reading of kind {drafter.kind} is drafted"
        laws, tokens = found
        if sum(tokens) >= LARGEST:
            return None, None, _too_many(sum(tokens))
    over = drafter.over if isinstance(drafter, Reading) else drafter
    take = _taking(drafter)
    reach = over.k if isinstance(over, DeepLaws) else k
    assert isinstance(over, FlatDrafter | DeepLaws)
    if over.kind in AT_ONCE:
        whole = seconds_of(step_seconds(over, texts, 1, take, repeats))
        steps = [whole] + [Seconds(0.0, 0.0, 0.0)] * (k - 1)
    else:
        assert isinstance(single, FlatDrafter | DeepLaws)
        need = layers_needed(single, texts[0])
        measured = {
            n: seconds_of(step_seconds(single, texts, n, take, repeats)) for n in sorted(set(laws[:reach]) - {0})
        }
        steps = [
            _plus(measured[n], _first_layers(layers, need, n)) if n else Seconds(0.0, 0.0, 0.0) for n in laws[:reach]
        ]
        steps += [Seconds(0.0, 0.0, 0.0)] * (k - reach)
    draft = [steps[0]]
    for each in steps[1:]:
        draft.append(Seconds(*(getattr(draft[-1], name) + getattr(each, name) for name in ("median", "low", "high"))))
    nodes = None if tokens is None else tuple(np.cumsum(tokens).astype(float).tolist())
    return tuple(draft), nodes, ""


def _plus(seconds: Seconds, more: float) -> Seconds:
    return Seconds(seconds.median + more, seconds.low + more, seconds.high + more)


def _first_layers(layers: dict[int, list[float]], need: int, tokens: int) -> float:
    """Return the seconds of the target's first `need` layers on so many tokens, on a line between those timed."""
    if need == 0:
        return 0.0
    return float(np.interp(tokens, list(layers), [seen[need - 1] for seen in layers.values()]))


def _taking(drafter: Drafter) -> Callable[[Tensor, Any], Any]:
    """Return what makes drafts of laws: draws, or the most likely tokens of a tree."""
    if drafter.describe().rule == "tree":
        ranks = 1 + max(path[-1] for path in dict(drafter.describe().details)["paths"])
        return lambda values, found: top_ids(values, ranks)

    def take(values: Tensor, found: Any) -> Tensor:
        law = process(values, drafter.processing, found.ids, found.index)
        return draw(law, torch.full((len(values),), 0.5, dtype=torch.float64))

    return take


def _calls(call: Callable[[Prefix], Any], drafter: Drafter, texts: Sequence[Text], repeats: int) -> Seconds:
    sample = Sample()
    for text in texts:
        begin(drafter, text, 1)
        for step in range(min(repeats + WARM, len(text.laws))):
            prefix = text.read(step, 1, drafter.needs_hidden)
            with (sample if step >= WARM else Sample()).timed():
                call(prefix)
    return seconds_of(sample.seen)


def _tree(
    drafter: TreeDrafter, texts: Sequence[Text], k: int, repeats: int
) -> tuple[tuple[Seconds, ...] | None, tuple[float, ...] | None, str]:
    found: list[Trees] = []
    draft = _calls(lambda prefix: found.append(drafter.trees(prefix)), drafter, texts, repeats)
    depths = [depths_of(trees.parent, trees.tokens != PAD) for trees in found]
    counts = [[int(((depth >= 0) & (depth <= d)).sum()) for d in range(k)] for depth in depths]
    nodes = tuple(np.mean(counts, 0).tolist())
    if nodes[-1] >= LARGEST:
        return None, None, _too_many(nodes[-1])
    return (draft,) * k, nodes, ""


def _too_many(tokens: float) -> str:
    return f"{tokens:g} tokens a round; the target was timed with at most {LARGEST}"
