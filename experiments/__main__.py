"""`python -m experiments`: claims and what the data say to them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from experiments import claims, record
from experiments.claim import CANNOT_TELL, FAILS, HOLDS, Finding
from experiments.executors import EXECUTORS
from experiments.runner import OUT, MissingError, Plan, alone, experiment, run_claims, verdicts
from experiments.settings import ClaimError
from hedgelab.router import RouterError
from hedgelab.storage.costs import CostsError
from hedgelab.trace import TraceError, open_trace

app = typer.Typer(
    help="Hold each claim against data: holds, fails, or cannot tell.", no_args_is_help=True, add_completion=False
)

_COLOURS = {HOLDS: "green", FAILS: "red", CANNOT_TELL: "yellow"}

ClaimNames = Annotated[list[str] | None, typer.Argument(help="Claims, or all.", metavar="[CLAIM]...")]
Quick = Annotated[bool, typer.Option("--quick", help="Small settings, for tests.")]
Seed = Annotated[int, typer.Option(help="Seed of worlds, coins and policies.", min=0, max=2**32 - 1)]
OwnTraces = Annotated[
    list[str] | None,
    typer.Option("--trace", help="NAME=FOLDER, a full trace in the place of a bundled one; again for more."),
]
Out = Annotated[Path, typer.Option(help="Folder of the results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def _stop(error: Exception) -> NoReturn:
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    typer.echo(f"Error: {error}{notes}", err=True)
    raise typer.Exit(2) from None


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (ClaimError, TraceError, RouterError, CostsError, OSError) as error:
        _stop(error)


def _chosen(given: list[str] | None) -> list[str]:
    names = list(claims.NAMES) if not given or given == ["all"] else list(dict.fromkeys(given))
    for name in names:
        experiment(name)  # says which there are
    return names


def _plan(names: list[str], quick: bool, seed: int, traces: list[str] | None, out: Path) -> Plan:
    own = {}
    for each in traces or ():
        name, equals, folder = each.partition("=")
        if not equals or not Path(folder).is_dir():
            raise ClaimError(f"--trace {each}: expected NAME=FOLDER, a bundled trace's name and the folder of another")
        own[name] = str(Path(folder).resolve())
    named = {str(task[1]["trace"]) for chosen in names for task in Plan(quick).tasks(chosen) if "trace" in task[1]}
    for name in own:
        if name not in named:
            raise ClaimError(f"--trace {name}: these claims use {', '.join(sorted(named)) or 'no trace'}")
        _whole(name, own[name])
    return Plan(quick, seed, own, out)


def _whole(name: str, folder: str) -> None:
    """Raise ClaimError unless a trace's bytes are those that its manifest says: results are named by that alone."""
    try:
        damage = open_trace(folder).check()
    except TraceError as error:
        damage = [str(error)]
    if damage:
        raise ClaimError(f"--trace {name}={folder}: {'; '.join(damage)}")


@app.command("list")
def list_(quick: Quick = False, seed: Seed = 0, out: Out = OUT) -> None:
    """Show the claims, their questions with the rules that were fixed beforehand, and how many results are there."""
    console, plan = Console(), Plan(quick, seed, {}, out)
    for name in claims.NAMES:
        module = experiment(name)
        done, total = plan.done(name)
        console.print(f"\n[bold]{name}[/] ({done} of {total} results): {escape(module.CLAIM.sentence)}", soft_wrap=True)
        console.print(f"  source: {escape(module.CLAIM.source)}", soft_wrap=True, style="dim")
        for key, question in module.CLAIM.questions.items():
            many = f"; {question.comparisons} intervals together" if question.comparisons > 1 else ""
            rule = f"{question.unit} {question.rule}{many}"
            console.print(f"  {key}: {escape(question.what)} [dim]({escape(rule)})[/]", soft_wrap=True)


@app.command()
def run(
    names: ClaimNames = None,
    quick: Quick = False,
    seed: Seed = 0,
    trace: OwnTraces = None,
    out: Out = OUT,
    workers: Annotated[int | None, typer.Option(help="Processes; default: one a core; 0: this one.", min=0)] = None,
    executor: Annotated[str, typer.Option(help=f"{' or '.join(EXECUTORS)}.")] = "local",
    address: Annotated[str | None, typer.Option(help="Scheduler of a Dask cluster, tcp://HOST:PORT.")] = None,
    as_json: AsJson = False,
    save: Annotated[bool, typer.Option("--record", help="Put the verdicts on record, see check.")] = False,
) -> None:
    """Compute what is missing of claims' results, and show their verdicts."""
    with _errors():
        if executor not in EXECUTORS:
            raise ClaimError(f"--executor must be one of {', '.join(EXECUTORS)}, got {executor!r}")
        chosen = _chosen(names)
        plan = _plan(chosen, quick, seed, trace, out)
        if save and (plan.traces or plan.seed):
            raise ClaimError("--record is for the bundled traces and seed 0")
        begin = time.perf_counter()
        try:
            with alone(plan.out), _progress() as advance:
                run_claims(chosen, plan, lambda: EXECUTORS[executor](workers, address), advance)
        except KeyboardInterrupt:
            typer.echo(f"Interrupted. What was computed is kept; go on with: {plan.command(*chosen)}", err=True)
            raise typer.Exit(130) from None
        found = [finding for name in chosen for finding in verdicts(name, plan)]
        if save:
            record.save(found, plan.quick)
    _show(found, as_json)
    if not as_json:
        if plan.quick:
            Console().print("\nSmall settings, for tests: the full ones decide.", style="dim")
        Console(stderr=True).print(f"{time.perf_counter() - begin:.0f} s", style="dim")


@app.command()
def check(names: ClaimNames = None, quick: Quick = False, out: Out = OUT) -> None:
    """Hold verdicts of results that are there against those on record; exit status 1 where one differs, 2 where results
    are missing."""
    plan, found, missing = Plan(quick, out=out), list[Finding](), list[str]()
    with _errors():
        for name in _chosen(names):
            try:
                found += verdicts(name, plan)
            except MissingError as error:
                missing.append(str(error))
        lines = record.changes(found, quick)
    for line in lines:
        typer.echo(line)
    if found and not lines:
        typer.echo(f"{len(found)} verdict{'s' if len(found) > 1 else ''}, as on record")
    for line in missing:
        typer.echo(f"Error: {line}", err=True)
    if lines or missing:
        raise typer.Exit(2 if missing else 1)


@app.command()
def table(
    every: Annotated[bool, typer.Option("--all", help="Every question, not the headlines alone.")] = False,
) -> None:
    """Print the verdicts on record as Markdown: the README's table, or what VERDICTS.md holds."""
    show = record.report if every else record.markdown
    with _errors():
        typer.echo(show(record.on_record()), nl=False)


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """Yield what shows (claim, results there, results in all): a bar, or in a log a line for every tenth."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # tasks differ in size: the time left is told from the last ten minutes, not the last seconds
    bar = Progress(
        *columns, TimeRemainingColumn(), console=console, speed_estimate_period=600, disable=not console.is_terminal
    )
    with bar:
        whole, known, begin = bar.add_task("all", total=None), dict[str, tuple[int, int]](), time.perf_counter()

        def advance(name: str, done: int, total: int) -> None:
            computed = done - known.get(name, (done, total))[0]  # 0 while claims are only counted
            known[name] = (done, total)
            have, wanted = (sum(part) for part in zip(*known.values(), strict=True))
            bar.update(whole, completed=have, total=wanted, description=f"all, last of {name}")
            if bar.disable and 10 * have // wanted > 10 * (have - computed) // wanted:
                console.print(f"{have} of {wanted} results, {time.perf_counter() - begin:.0f} s", highlight=False)

        yield advance


def _show(found: list[Finding], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(record.document(found), indent=1))
        return
    console = Console()
    for name in dict.fromkeys(finding.claim for finding in found):
        console.print(f"\n[bold]{name}: {escape(experiment(name).CLAIM.sentence)}[/]")
        grid = Table.grid(padding=(0, 2, 0, 0))
        for each in found:
            if each.claim == name:
                grid.add_row(f"[{_COLOURS[each.verdict]}]{each.verdict}[/]", each.name, _paragraph(each))
        console.print(grid)


def _paragraph(finding: Finding) -> str:
    """Return what was asked and found, the rule, and what there is to know beside it."""
    cases = sum(finding.tally.values())
    tally = ", ".join(f"{word} {count}" for word, count in finding.tally.items() if count)
    decided = f"; {finding.case} decides; of {cases} cases: {tally}" if cases > 1 else ""
    effect = record.shown(finding.effect, finding.question.unit)
    rule = f"holds if {finding.question.rule}"
    note = f"\n[dim]{escape(finding.answer.note)}[/]" if finding.answer.note else ""
    return f"{escape(finding.question.what)}\n[bold]{escape(effect)}[/] [dim]({escape(rule + decided)})[/]{note}"


if __name__ == "__main__":
    app()
