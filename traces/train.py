"""Training of draft heads on texts that the target wrote itself.

The loss of a step is the cross entropy of the target's processed law p against the head's law q_d, at the same
temperature, over the steps d of the head's unroll:

    loss = sum_d decay^d mean_t( - sum_{v in W} p_t(v) log q_{d,t}(v) ),      t over the target's own tokens

p is normalised over all ids, W is the head's vocabulary. Hidden states and p are computed by the target in batches of
whole texts, once if memory allows. Whatever decides the weights is a function of the configuration, the target, the
texts and the step: on one machine and with as many threads, an interrupted training that resumes ends with the bytes
of one that was not interrupted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import io
import json
import math
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from hedgelab.storage.shards import write_atomically
from hedgelab.storage.typed_json import to_document
from traces.checkpoints import CARD, CURVE, Card, load_head, map_hash, read_card, save_head, set_weights, weights_of
from traces.config import ConfigError, TrainConfig
from traces.heads import Head, HeadError
from traces.states import States, StatesError
from traces.targets import Target, load_target, located
from traces.texts import Texts

__all__ = ["train"]

STATE = "state.safetensors"  # of an unfinished training
LOCK = ".lock"  # of a training under way
_BETAS = (0.9, 0.95)
_BUCKET = 16  # prompts whose lengths differ by less may share a batch
_OFF = 0.05  # total variation between the target's law and the one its output rows give: beyond rounding of bfloat16


@dataclass(frozen=True)
class Sample:
    """One text: its ids, how many of them are the prompt, its domain."""

    ids: np.ndarray
    prompt: int
    domain: str

    @property
    def own(self) -> int:
        """Tokens that the target wrote."""
        return len(self.ids) - self.prompt


@dataclass(frozen=True)
class Batch:
    """Texts aligned where their prompts end: column `width` - 1 holds every prompt's last token.

    samples : the texts, in order. tokens : (B, T) int64 without each text's last token, which nothing follows.
    real : (B, T) bool
    """

    samples: tuple[Sample, ...]
    tokens: Tensor
    real: Tensor
    width: int

    @property
    def drafted(self) -> int:
        """Tokens that are drafted at depth 0."""
        return int(self.real[:, self.width - 1 :].sum())


@dataclass(frozen=True)
class Known:
    """What the target says about a batch: states at the taps, its last states, and log sum exp of its scaled logits."""

    states: list[Tensor]  # (B, T, H) float32
    last: Tensor  # (B, T - width + 1, H) float32
    total: Tensor  # (B, T - width + 1) float32

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return sum(part.numel() * part.element_size() for part in (*self.states, self.last, self.total))


@dataclass
class Progress:
    """A training's state beside weights and moments."""

    step: int = 0
    total: int | None = None  # None until the warm-up has shown how many steps the budget is
    seen: int = 0
    losses: list[list[float]] = field(default_factory=list)  # by step and depth
    seconds: dict[str, float] = field(default_factory=lambda: {"target": 0.0, "steps": 0.0})


def train(
    config: TrainConfig,
    document: dict[str, Any],
    out: Path,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    resume: bool = False,
    progress: Callable[[int, int | None, float], None] = lambda step, total, loss: None,
) -> Card:
    """Train a head into the folder `out` and return its card.

    document : the configuration as written, kept in the card. progress : called with (steps done, steps in all, loss).
    Raises ConfigError, HeadError, TextsError, StatesError or TargetError.
    """
    folder = Path(config.folder)
    target = load_target(located(config.target, folder), device, dtype)
    sources = [Texts.load(folder / name) for name in config.texts]
    for texts in sources:
        if texts.tokenizer_sha256 != target.tokenizer_sha256:
            raise HeadError(
                f"texts written by {texts.target!r} with another tokenizer than that of the target "
                f"{target.info.name!r}: a head for one cannot learn from the other"
            )
    training, heldout = split(samples_of(sources), config)
    ids = vocabulary_of(sources, config.width, target)
    head = Head(target, config.kind, config.taps, ids, config.seed, depth=config.depth, last_token=config.last_token)
    folders = [folder / name for name in config.states]
    kept = States(folders, target, config.taps, config.temperature) if folders else None
    trainer = _Trainer(config, target, head, batches_of(training, config.batch), kept)
    print_ = _fingerprint(config, target, sources)
    out.mkdir(parents=True, exist_ok=True)
    with _alone(out):
        if (out / CARD).exists():
            return _finished(out, print_, resume, target)
        _finish_steps(trainer, out, print_, resume, progress)
        began = time.process_time()
        weights = weights_of(head, config.stored)
        set_weights(head, weights)  # what is measured is what is stored
        acceptance = trainer.acceptance(batches_of(heldout, config.batch))
        measured = {
            "cpu_seconds": trainer.progress.seconds["steps"],
            "cpu_seconds_of_target": trainer.progress.seconds["target"],
            "cpu_seconds_of_measuring": time.process_time() - began,
            "threads": torch.get_num_threads(),
            "machine": platform.machine(),
        }
        card = Card(
            format_version=1,
            name=config.name,
            kind=config.kind,
            taps=config.taps,
            width=head.width,
            vocabulary_sha256=map_hash(head.ids),
            weights_sha256=hashlib.sha256(weights).hexdigest(),
            target=target.info.name,
            target_sha256=target.info.sha256,
            tokenizer_sha256=target.tokenizer_sha256,
            texts_sha256=tuple(texts.sha256 for texts in sources),
            domains=tuple(sorted({sample.domain for sample in training})),
            temperature=config.temperature,
            depth=config.depth,
            steps=trainer.progress.step,
            seed=config.seed,
            training_texts=len(training),
            training_tokens=sum(sample.own for sample in training),
            tokens_seen=trainer.progress.seen,
            heldout_texts=len(heldout),
            heldout_tokens=sum(sample.own for sample in heldout),
            acceptance=tuple(acceptance),
            settings={
                "config": document,
                "device": target.device.type,
                "dtype": dtype,
                "fingerprint": print_,
                **({"last_token": config.last_token} if config.kind == "medusa" else {}),
            },
            versions={"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
            measured=measured,
            stored=config.stored,
        )
        write_atomically(out / CURVE, curve(config.name, trainer.progress.losses))
        save_head(out, weights, card)
        (out / STATE).unlink(missing_ok=True)
        return card


def _finish_steps(
    trainer: _Trainer, out: Path, print_: str, resume: bool, progress: Callable[[int, int | None, float], None]
) -> None:
    """Make all steps that are left, saving a state now and then."""
    if (out / STATE).exists():
        if not resume:
            raise ConfigError(f"{out}: holds an interrupted training; --resume goes on, or choose a new folder")
        trainer.load(out / STATE, print_)
    while trainer.unfinished:
        measured_now = trainer.progress.total is None
        loss = trainer.advance()
        done = trainer.progress
        progress(done.step, done.total, loss)
        # at once when the budget has become a number of steps: another run would measure another
        measured_now = measured_now and done.total is not None
        if done.step % trainer.config.save_every == 0 or done.step == done.total or measured_now:
            trainer.save(out / STATE, print_)


def samples_of(sources: Sequence[Texts]) -> list[Sample]:
    """Return the texts of all sources, one after another; those without own tokens are left out."""
    found = []
    for texts in sources:
        for s, begin in enumerate(texts.begin.tolist()):
            first, end = int(texts.offsets[s]), int(texts.offsets[s + 1])
            if first < begin < end:
                domain = texts.domains[int(texts.domain[s])]
                found.append(Sample(texts.token[first:end].astype(np.int64), begin - first, domain))
    return found


def split(samples: Sequence[Sample], config: TrainConfig) -> tuple[list[Sample], list[Sample]]:
    """Return (texts to train on, held-out texts) of the configuration's domains.

    Texts of one prompt stay together. Prompts are ordered by their hashes: the first `heldout` of each domain are held
    out, of the others the first `share` are trained on.
    """
    names = sorted({sample.domain for sample in samples})
    if unknown := [name for name in config.domains if name not in names]:
        raise ConfigError(f"domains: no texts of {', '.join(unknown)}; there are: {', '.join(names)}")
    training, heldout = [], []
    for name in config.domains or names:
        prompts: dict[bytes, list[Sample]] = defaultdict(list)
        for sample in samples:
            if sample.domain == name:
                prompts[hashlib.sha256(sample.ids[: sample.prompt].tobytes()).digest()].append(sample)
        order = sorted(prompts)
        out = math.ceil(config.heldout * len(order))
        kept = order[out:]
        kept = kept[: math.ceil(config.share * len(kept))]
        heldout += [sample for key in order[:out] for sample in prompts[key]]
        training += [sample for key in kept for sample in prompts[key]]
    if not training:
        raise ConfigError("texts: none is left to train on")
    return training, heldout


def vocabulary_of(sources: Sequence[Texts], width: int, target: Target) -> Tensor:
    """Return the ids (W,) int64, ascending, that occur most often: by the target's own tokens, then by prompts.

    Of ids that occur equally often the lower are taken; ids that never occur are left out.
    """
    for texts in sources:
        if len(texts.token) and int(texts.token.max()) >= target.vocabulary:
            raise HeadError(f"texts written by {texts.target!r} hold ids that {target.info.name!r} does not know")
    own = np.zeros(target.vocabulary, np.int64)
    every = np.zeros(target.vocabulary, np.int64)
    for texts in sources:
        own += np.bincount(texts.token[texts.own()], minlength=target.vocabulary)
        every += np.bincount(texts.token, minlength=target.vocabulary)
    order = np.lexsort((np.arange(target.vocabulary), -every, -own))
    order = order[every[order] > 0]
    unknown = set(target.absent.tolist())
    return torch.tensor(sorted(int(v) for v in order[:width] if int(v) not in unknown), dtype=torch.int64)


def batches_of(samples: Sequence[Sample], size: int) -> list[Batch]:
    """Return texts in batches of similar lengths."""
    order = sorted(samples, key=lambda sample: (sample.prompt // _BUCKET, sample.own, sample.ids.tobytes()))
    return [_batch(order[i : i + size]) for i in range(0, len(order), size)]


def _batch(samples: Sequence[Sample]) -> Batch:
    width = max(sample.prompt for sample in samples)
    length = width + max(sample.own for sample in samples) - 1
    tokens = torch.zeros(len(samples), length, dtype=torch.int64)
    real = torch.zeros(len(samples), length, dtype=torch.bool)
    for row, sample in enumerate(samples):
        place = slice(width - sample.prompt, width + sample.own - 1)
        tokens[row, place] = torch.from_numpy(sample.ids[:-1])
        real[row, place] = True
    return Batch(tuple(samples), tokens, real, width)


class _Trainer:
    """A head while it is trained."""

    def __init__(
        self, config: TrainConfig, target: Target, head: Head, batches: Sequence[Batch], kept: States | None = None
    ) -> None:
        self.config, self.target, self.batches, self.kept = config, target, batches, kept
        self.head = head.eval()  # no dropout: nothing random but the order of the batches
        passes = None if config.passes is None else math.ceil(config.passes * len(batches))
        self.progress = Progress(total=config.steps or passes)
        self._named = dict(head.named_parameters())
        self._optimizer = torch.optim.AdamW(
            self._named.values(), lr=0.0, betas=_BETAS, weight_decay=config.weight_decay
        )
        self._remembered: dict[int, Known] = {}
        self._room = 0 if kept else int(config.memory * 2**30)
        self._checked = False

    @property
    def unfinished(self) -> bool:
        """Whether steps are left."""
        return self.progress.total is None or self.progress.step < self.progress.total

    def advance(self) -> float:
        """Make one step and return its loss at depth 0."""
        config, done = self.config, self.progress
        epoch, place = divmod(done.step, len(self.batches))
        # a function of seed and epoch, so that nothing but the step must be remembered
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + epoch)
        index = int(torch.randperm(len(self.batches), generator=generator)[place])
        batch = self.batches[index]
        began = time.process_time()
        known = self._known(index, batch)
        ready = time.process_time()
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate()
        losses = []
        self._optimizer.zero_grad()
        p = self._law(known)
        for d, outputs in enumerate(self._unroll(batch, known)):
            here = batch.real[:, batch.width - 1 + d :].to(self.target.device)
            if not bool(here.any()):
                break
            log_q = (self.head.logits(outputs[:, d:][here]) / config.temperature).log_softmax(-1)
            losses.append(-(p[:, d:][here] * log_q).sum(-1).mean())
        torch.stack([loss * config.decay**d for d, loss in enumerate(losses)]).sum().backward()
        norm = float(torch.nn.utils.clip_grad_norm_(self._named.values(), config.clip))
        values = torch.stack(losses).tolist()
        if not all(map(math.isfinite, (*values, norm))):
            raise HeadError(
                f"step {done.step}: the losses are {values}, the gradient's norm {norm}; try a smaller learning_rate"
            )
        self._optimizer.step()
        done.losses.append(values + [math.nan] * (config.depth - len(values)))
        done.step += 1
        done.seen += batch.drafted
        done.seconds["target"] += ready - began
        done.seconds["steps"] += time.process_time() - ready
        if done.total is None and done.step == config.warmup:
            assert config.cpu_seconds is not None
            steps = config.cpu_seconds / max(done.seconds["steps"], 1e-9) * done.step
            done.total = max(done.step, int(min(steps, 1e12)))
        return values[0]

    @torch.no_grad()
    def acceptance(self, batches: Sequence[Batch]) -> list[float]:
        """Return mean gamma = sum_v min(p(v), q(v)) by depth, over rounds that begin behind a first own token."""
        sums, counts = [0.0] * self.config.depth, [0] * self.config.depth
        for batch in batches:
            known = self._read(batch)
            p = self._law(known)
            for d, outputs in enumerate(self._unroll(batch, known)):
                here = batch.real[:, batch.width + d :].to(self.target.device)
                q = torch.softmax(self.head.logits(outputs[:, d + 1 :][here]) / self.config.temperature, -1)
                sums[d] += float(torch.minimum(p[:, d + 1 :][here], q).sum(dtype=torch.float64))
                counts[d] += len(q)
        return [total / count for total, count in zip(sums, counts, strict=True) if count]

    def save(self, file: Path, print_: str) -> None:
        """Write everything that the next step depends on."""
        done = self.progress
        tensors = {"losses": torch.tensor(done.losses, dtype=torch.float64)}
        for name, weight in self._named.items():
            tensors[f"weights.{name}"] = weight.detach().cpu()
            for part, value in self._optimizer.state[weight].items():
                tensors[f"{part}.{name}"] = value.detach().cpu()
        about = json.dumps({"step": done.step, "total": done.total, "seen": done.seen, "seconds": done.seconds})
        metadata = {"fingerprint": print_, "about": about, "sha256": _content_hash(tensors, about)}
        write_atomically(file, save(tensors, metadata=metadata))

    def load(self, file: Path, print_: str) -> None:
        """Go on from a saved state; ConfigError if it belongs to another training."""
        try:
            with safe_open(file, framework="pt") as store:
                metadata = store.metadata() or {}
                tensors = {name: store.get_tensor(name) for name in store.keys()}  # noqa: SIM118 - no mapping
            about = json.loads(metadata["about"])
            sound = metadata["sha256"] == _content_hash(tensors, metadata["about"])
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise ConfigError(f"{file}: cannot be read as a training's state: {error}") from error
        if not sound:
            raise ConfigError(f"{file}: is damaged; remove it to train anew")
        if metadata.get("fingerprint") != print_:
            raise ConfigError(f"{file}: was left by a training with another configuration, target or texts")
        losses = tensors.pop("losses").tolist()
        self.progress = Progress(about["step"], about["total"], about["seen"], losses, about["seconds"])
        with torch.no_grad():
            for name, weight in self._named.items():
                weight.copy_(tensors[f"weights.{name}"])
                self._optimizer.state[weight] = {
                    "step": tensors[f"step.{name}"],
                    **{part: tensors[f"{part}.{name}"].to(weight.device) for part in ("exp_avg", "exp_avg_sq")},
                }

    def _rate(self) -> float:
        """Return the learning rate of the next step: linear warm-up, then a cosine to 0."""
        step, config = self.progress.step, self.config
        if step < config.warmup or self.progress.total is None:
            return config.learning_rate * (step + 1) / config.warmup
        rest = (step - config.warmup) / max(1, self.progress.total - config.warmup)
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * rest))

    def _unroll(self, batch: Batch, known: Known) -> Any:
        device = self.target.device
        tokens, real = batch.tokens.to(device), batch.real.to(device)
        return self.head.unroll(tokens, known.states, real, self.config.depth, batch.width - 1)

    def _law(self, known: Known) -> Tensor:
        """Return the target's processed law (B, T - width + 1, W) at the head's ids; it sums to at most 1."""
        logits = F.linear(known.last, self.head.rows, self.head.bias) / self.config.temperature
        return (logits - known.total[..., None]).exp_()

    def _known(self, index: int, batch: Batch) -> Known:
        """Return what is known about a batch, from memory if it was read before and there was room."""
        if index in self._remembered:
            return self._remembered[index]
        known = self._read(batch)
        if known.bytes <= self._room:
            self._remembered[index] = known
            self._room -= known.bytes
        return known

    def _read(self, batch: Batch) -> Known:
        """Return what was kept of a batch's texts while they were written, or else let the target read them."""
        if self.kept is None:
            return self._ask_target(batch)
        rows, length = batch.tokens.shape
        begin, taps = batch.width - 1, self.head.taps
        parts: list[Tensor] = []
        total = torch.zeros(rows, length - begin)
        for row, sample in enumerate(batch.samples):
            states, own = self.kept.read(sample.ids)
            parts = parts or [torch.zeros(rows, length, states[0].shape[1]) for _ in states]
            for part, state in zip(parts, states, strict=True):
                part[row, batch.real[row]] = state
            total[row, : len(own)] = own
        device = self.target.device
        place = {tap: part.to(device) for tap, part in zip(self.kept.taps, parts, strict=True)}
        known = Known([place[tap] for tap in taps], parts[-1][:, begin:].to(device), total.to(device))
        if not self._checked:
            self._compare(known, self._ask_target(batch), batch)
        return known

    def _compare(self, kept: Known, known: Known, batch: Batch) -> None:
        """Refuse kept states that are not what the target says: one batch tells a wrong folder from rounding."""
        real = batch.real.to(self.target.device)
        here = real[:, batch.width - 1 :]
        pairs = [(a[real], b[real]) for a, b in zip(kept.states, known.states, strict=True)]
        pairs += [(kept.last[here], known.last[here]), (kept.total[here], known.total[here])]
        off = max(float((a - b).norm() / b.norm()) for a, b in pairs)
        if not off < _OFF:
            raise StatesError(f"kept states differ by {off:.3g} of their size from the target's: not of these texts")

    @torch.no_grad()
    def _ask_target(self, batch: Batch) -> Known:
        """Let the target read a batch."""
        target, begin = self.target, batch.width - 1
        tokens, real = batch.tokens.to(target.device), batch.real.to(target.device)
        out = target.model(
            input_ids=tokens,
            attention_mask=real.long(),
            position_ids=(real.cumsum(1) - 1).clamp(min=0),
            use_cache=False,
            output_hidden_states=True,
            logits_to_keep=tokens.shape[1] - begin,
        )
        scaled = target.known(out.logits.flatten(0, 1)).float() / self.config.temperature
        known = Known(
            states=[out.hidden_states[tap].float() for tap in self.head.taps],
            last=out.hidden_states[-1][:, begin:].float(),
            total=scaled.logsumexp(-1).view(len(tokens), -1),
        )
        here = real[:, begin:]
        parts = (*(state[real] for state in known.states), known.last[here], known.total[here])
        if not all(bool(torch.isfinite(part).all()) for part in parts):
            raise HeadError(f"{target.info.name!r}: its hidden states or logits hold NaN or infinities on a text")
        if not self._checked:
            law = scaled.softmax(-1)[:, self.head.ids].view(*here.shape, -1)
            off = float((law - self._law(known))[here].abs().sum(-1).mean()) / 2
            if not off < _OFF:
                raise HeadError(
                    f"{target.info.name!r}: its logits are not its output rows on its last hidden states (total "
                    f"variation {off:.3f}); heads need that"
                )
            self._checked = True
        return known


def curve(name: str, losses: Sequence[Sequence[float]]) -> bytes:
    """Return the training curve as PNG: cross entropy by step, one line a depth, each a running mean."""
    from matplotlib.figure import Figure

    values = np.array(losses)
    figure = Figure(figsize=(4.8, 3.2), dpi=100, layout="constrained")
    axes = figure.add_subplot()
    window = max(1, len(values) // 50)
    for d, line in enumerate(values.T):
        known = np.flatnonzero(~np.isnan(line))
        if len(known) >= window:
            smooth = np.convolve(line[known], np.ones(window) / window, "valid")
            axes.plot(known[window - 1 :] + 1, smooth, label=f"depth {d}")
    axes.set(xlabel="steps", ylabel="cross entropy (nats)", title=name)
    axes.legend(title=f"mean over {window} steps")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})  # no version: equal trainings, equal bytes
    return buffer.getvalue()


def _content_hash(tensors: dict[str, Tensor], about: str) -> str:
    """Return the sha256 of a state's tensors and numbers."""
    digest = hashlib.sha256(about.encode())
    for name in sorted(tensors):
        digest.update(name.encode() + b"\0")
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the folder's lock; ConfigError if another process trains in it."""
    with (out / LOCK).open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"{out}: another process trains here") from error
        try:
            yield
        finally:
            (out / LOCK).unlink(missing_ok=True)


def _fingerprint(config: TrainConfig, target: Target, sources: Sequence[Texts]) -> str:
    settings = to_document(dataclasses.replace(config, folder="", target="", memory=0.0, save_every=1))
    if config.kind != "medusa":
        del settings["last_token"]  # decides nothing there
    model = [target.info.sha256, target.info.dtype, target.config_sha256, target.device.type]
    facts = [settings, model, [texts.sha256 for texts in sources]]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _finished(out: Path, print_: str, resume: bool, target: Target) -> Card:
    card = read_card(out)
    if not resume:
        raise ConfigError(f"{out}: holds a finished head; choose a new folder")
    if card.settings.get("fingerprint") != print_:
        raise ConfigError(f"{out}: holds a head that was trained with another configuration, target or texts")
    load_head(out, target)  # its files are all there and sound
    (out / STATE).unlink(missing_ok=True)
    return card
