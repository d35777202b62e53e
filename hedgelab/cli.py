"""The command line: `hedgelab demo | replay | play | matrix | costs | router | learners | metrics | trace`."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hedgelab.sheets import Sheet

if TYPE_CHECKING:
    from hedgelab.comparison import Advance, Comparison
    from hedgelab.contract import Learner
    from hedgelab.router import Router
    from hedgelab.routing import Evaluation
    from hedgelab.storage.costs import Costs
    from hedgelab.trace import Trace

app = typer.Typer(
    help="Which draft model should draft next? Replay selection policies over recorded traces.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
trace_app = typer.Typer(help="Look at recorded traces.", no_args_is_help=True)
app.add_typer(trace_app, name="trace")
router_app = typer.Typer(help="Choose drafters by the prompt alone: the offline router.", no_args_is_help=True)
app.add_typer(router_app, name="router")

TraceArgument = Annotated[str, typer.Argument(help="A bundled trace's name, or a trace folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
DraftLength = Annotated[int | None, typer.Option("--k", help="Draft length; default: the trace's, or 5 for the demo.")]
Replicates = Annotated[int, typer.Option(help="Coin replicates to average over.", min=1)]
Seed = Annotated[int, typer.Option(help="Seed of coins and policies.", min=0)]
LearnerOptions = Annotated[
    list[str] | None,
    typer.Option("--learner", help="A registered name, FILE.py:NAME, or all; again for more. [normalhedge]"),
]
CostsOption = Annotated[
    str | None,
    typer.Option("--costs", help="Add modelled speed-ups: a file of call costs, or bundled for those of hedgelab."),
]
SettingOptions = Annotated[
    list[str] | None, typer.Option("--set", help="A parameter of the learner, NAME=VALUE; with one learner only.")
]
AmongOptions = Annotated[
    list[str] | None,
    typer.Option("--among", help="Choose among these drafters: a name, or a pattern as 'ngram-*'; again for more."),
]
RouterOption = Annotated[
    Path | None, typer.Option("--router", help="Show this offline router too (`hedgelab router train`).")
]


@contextmanager
def _plain_errors() -> Iterator[None]:
    # errors that say what was wrong with the input end here in one line; anything else is a fault and keeps its
    # traceback
    try:
        yield
    except (ValueError, TypeError, OSError, MemoryError) as error:
        from hedgelab.references import USER_FILES

        if any(frame.filename in USER_FILES for frame in traceback.extract_tb(error.__traceback__)):
            raise  # in the user's own code: the place matters
        Console(stderr=True, highlight=False).print(f"[bold red]error:[/] {_escaped(str(error))}")
        raise typer.Exit(2) from None


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)


def _words(value: object) -> str:
    """Return a table cell's text: of a dict its entries as name=value."""
    return ", ".join(f"{key}={entry}" for key, entry in value.items()) if isinstance(value, dict) else str(value)


def _console() -> Console:
    # tables keep their columns when the output goes to a file
    return Console(highlight=False, width=None if sys.stdout.isatty() else 160)


def _open(name: str, *, may_be_empty: bool = False) -> Trace:
    from hedgelab.trace import open_trace, sample_trace

    folder = _folder(name)
    opened = open_trace(folder) if folder.exists() else sample_trace(name)  # which lists those there are
    if not opened.manifest.complete:
        note = f"note: {name} is incomplete: its recording was interrupted ({opened.sequences} texts so far)"
        Console(stderr=True, highlight=False).print(_escaped(note), soft_wrap=True)
    if not (opened.sequences or may_be_empty):
        raise ValueError(f"{name} holds no text yet; --resume of the command that records it goes on")
    return opened


def _open_among(name: str, patterns: list[str] | None) -> Trace:
    """Return a trace with the drafters that some pattern matches, all without patterns."""
    recorded = _open(name)
    if not patterns:
        return recorded
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in recorded.drafters):
            raise ValueError(f"--among {pattern!r} matches none of the drafters {', '.join(recorded.drafters)}")
    return recorded.among([name for name in recorded.drafters if any(fnmatchcase(name, p) for p in patterns)])


def _routes(file: Path | None, recorded: Trace) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `compare` takes of a router's file, and what JSON says about it; both empty without a file."""
    from hedgelab.router import load_router

    if file is None:
        return {}, {}
    router = load_router(file)
    router.fits(recorded)
    router.refuse_seen(recorded)
    if len(router.about.drafters) < len(recorded.drafters):
        note = f"note: the router chooses among {len(router.about.drafters)} of {len(recorded.drafters)} drafters"
        Console(stderr=True, highlight=False).print(_escaped(f"{note}; --among gives others the same"), soft_wrap=True)
    return {"router": router.route(recorded)}, {"router": _about(router)}


def _about(router: Router) -> dict[str, Any]:
    """Return what is known about a router, as values that JSON can hold."""
    from hedgelab.storage.typed_json import to_document

    return to_document(router.about)


def _folder(name: str) -> Path:
    """Return a trace's folder, from its path or from the name of a bundled one."""
    from hedgelab.storage.manifest import MANIFEST

    bundled = Path(__file__).resolve().parent / "data" / name
    return bundled if (bundled / MANIFEST).exists() and not (Path(name) / MANIFEST).exists() else Path(name)


def _costs(given: str) -> Costs:
    from hedgelab.storage.costs import Costs

    return Costs.load(None if given == "bundled" else given)


@contextmanager
def _progress(label: str, total: int) -> Iterator[Advance]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)


def _check_suffix(figure: Path) -> None:
    if figure.suffix.lower() not in (".png", ".pdf", ".svg"):
        raise ValueError(f"figure: {str(figure)!r} must end in .png, .pdf or .svg")


def _learners(references: list[str] | None, settings: list[str] | None) -> list[Learner]:
    from hedgelab.algorithms import learners as registered
    from hedgelab.references import learner_of

    references = references or ["normalhedge"]
    if "all" in references:
        if len(references) > 1:
            raise ValueError("--learner all goes alone")
        references = [name for name in registered() if name != "fixed"]
    if settings and len(references) > 1:
        raise ValueError("--set goes with one --learner")
    if len(set(references)) < len(references):
        raise ValueError("a --learner is given twice")
    return [learner_of(reference, settings or []) for reference in references]


def _print_comparison(comparison: Comparison, console: Console, caveats: bool = False) -> None:
    from hedgelab.comparison import POOLED, cell, half_width

    summary = comparison.summary()
    settings = ", ".join(f"{name}={value}" for name, value in comparison.settings.items() if value is not None)
    trace = comparison.trace
    console.print(
        f"[bold]{_escaped(trace.manifest.name)}[/]: {trace.sequences} texts of {len(set(trace.prompt_ids))} prompts, "
        f"{trace.rows} tokens, "
        f"{len(trace.drafters)} drafters; {settings}"
    )
    rows = []
    for policy in comparison.policies:
        numbers = summary[POOLED][policy.name]
        name = f"{policy.name}: {comparison.best_fixed}" if policy.name == "best fixed drafter" else policy.name
        shown = [cell(numbers["mat"]), cell(numbers["mat_mean_of_requests"])]
        shown += [cell(numbers["rounds"], 0), cell(numbers["regret_rounds"], 0)]
        if comparison.costs:
            shown.append(cell(numbers["speedup"], 2) if "speedup" in numbers else "-")
        rows.append([name, policy.feedback if policy.kind == "learner" else "oracle", *shown])
    header = ["policy", "feedback", "MAT (tokens / rounds)", "MAT (mean of prompts)", "rounds", "regret in rounds"]
    header += ["modelled speed-up"] if comparison.costs else []
    _print_sheet(Sheet(f"{POOLED}, 95% intervals over prompts", header, rows, left=2), console)
    if comparison.costs:
        console.print(_escaped(_costs_note(comparison.costs, comparison.trace) + _SELECTING), soft_wrap=True)
    for policy in comparison.policies if caveats else ():
        for note in policy.caveats:
            console.print(f"{_escaped(policy.name)}: {_escaped(note)}", soft_wrap=True)
    rows = [
        [policy.name, *(half_width(summary[domain][policy.name]["mat"]) for domain in comparison.domains)]
        for policy in comparison.policies
    ]
    title = "MAT (tokens / rounds) by domain, ± half of the 95% interval"
    _print_sheet(Sheet(title, ["policy", *comparison.domains], rows), console)


def _kinds_sheet(comparison: Comparison) -> Sheet:
    from hedgelab.comparison import POOLED, half_width

    columns = (POOLED, *comparison.domains)
    rows = [
        [best.kind, f"{best.best} (of {best.drafters})", *(half_width(best.mat[domain]) for domain in columns)]
        for best in comparison.kinds()
    ]
    return Sheet("MAT of the best drafter of each kind, alone", ["kind", "drafter", *columns], rows, left=2)


_SELECTING = "; learners with full information pay for scoring every drafter in every round"


def _costs_note(costs: Costs, trace: Trace) -> str:
    from hedgelab.cost import unknown

    note = (
        f"modelled speed-up over plain decoding; costs measured on {costs.machine.processor}, {costs.threads} thread, "
        "one text; -: not known"
    )
    if reasons := unknown(trace, costs):
        name, why = next(iter(reasons.items()))
        note += f", since no cost is known of {len(reasons)} of {len(trace.drafters)} drafters ({name}: {why})"
    return f"{note}. Provisional: {costs.machine.provisional}" if costs.machine.provisional else note


@app.command()
def demo(
    trace: Annotated[str, typer.Option(help="A bundled trace's name (t06, greedy), or a trace folder.")] = "t06",
    k: DraftLength = None,
    figure: Annotated[Path, typer.Option(help="Where to draw; the suffix chooses the format.")] = Path(
        "hedgelab-demo.png"
    ),
    router: RouterOption = None,
    as_json: AsJson = False,
    replicates: Replicates = 8,
    seed: Seed = 0,
    costs: CostsOption = None,
) -> None:
    """Replay six learners and the oracles on a bundled real trace; print the comparison and draw the figure."""
    from hedgelab.comparison import STREAMS, compare, default_learners, regret_curves

    with _plain_errors():
        _check_suffix(figure)
        figure.parent.mkdir(parents=True, exist_ok=True)
        recorded = _open(trace)
        # 5 drafts a round unless the trace holds fewer
        length = min(5, recorded.k) if k is None else k
        routes, about = _routes(router, recorded)
        policies = default_learners()
        curves_of = [policy.name for policy in policies if policy.feedback != "bandit"]
        with _progress("replaying", replicates * (len(policies) + 1) + STREAMS * len(curves_of)) as advance:
            comparison = compare(
                recorded,
                policies,
                k=length,
                replicates=replicates,
                seed=seed,
                routes=routes,
                costs=_costs(costs) if costs else None,
                objective="length",
                advance=advance,
            )
            curves = regret_curves(recorded, curves_of, k=length, objective="length", seed=seed, advance=advance)
        from hedgelab.figure import draw

        draw(comparison, curves, figure)
        if as_json:
            print(json.dumps({**comparison.document(), **about, "figure": str(figure)}, indent=1))
            return
        console = _console()
        _print_comparison(comparison, console)
        _print_sheet(_kinds_sheet(comparison), console)
        console.print(f"figure: {figure}", soft_wrap=True)


@app.command()
def replay(
    trace: TraceArgument = "t06",
    learner: LearnerOptions = None,
    setting: SettingOptions = None,
    k: DraftLength = None,
    objective: Annotated[str, typer.Option(help="length or acceptance.")] = "length",
    estimator: Annotated[str | None, typer.Option(help="C, B, A (length); gamma, alpha (acceptance).")] = None,
    feedback: Annotated[
        str | None, typer.Option(help="delayed, censored or bandit; default: what the learner is made for.")
    ] = None,
    granularity: Annotated[str, typer.Option(help="Learn at every token, or round starts only.")] = "token",
    delay_mode: Annotated[str, typer.Option(help="queue or padded: what is done about late losses.")] = "queue",
    carry_over: Annotated[bool, typer.Option(help="Keep the learner's state across prompts.")] = False,
    context: Annotated[bool, typer.Option(help="Show learners the drafters' confidences.")] = False,
    among: AmongOptions = None,
    router: RouterOption = None,
    replicates: Replicates = 1,
    seed: Seed = 0,
    costs: CostsOption = None,
    as_json: AsJson = False,
) -> None:
    """Replay learners over a trace, beside the oracles."""
    from hedgelab.comparison import compare

    with _plain_errors():
        recorded = _open_among(trace, among)
        routes, about = _routes(router, recorded)
        policies = _learners(learner, setting)
        options: dict[str, Any] = {
            "objective": objective,
            "estimator": estimator,
            "feedback": feedback,
            "granularity": granularity,
            "delay_mode": delay_mode,
            "carry_over": carry_over,
            "context": context,
        }
        with _progress("replaying", (1 + len(policies)) * replicates) as advance:
            comparison = compare(
                recorded,
                policies,
                k=k,
                replicates=replicates,
                seed=seed,
                routes=routes,
                advance=advance,
                costs=_costs(costs) if costs else None,
                **options,
            )
        if as_json:
            print(json.dumps({**comparison.document(), **about}, indent=1))
            return
        _print_comparison(comparison, _console(), caveats=True)


@app.command("play")
def play_game(
    world: Annotated[
        str,
        typer.Argument(
            help="fair-coins, gap, drifting, switching, alternating, greedy, block, breakaway, or a .npy file (T, N)."
        ),
    ] = "gap",
    rounds: Annotated[int | None, typer.Option(help="Rounds T. [10000]", min=1)] = None,
    drafters: Annotated[int | None, typer.Option(help="Drafters N. [16]", min=1)] = None,
    world_setting: Annotated[
        list[str] | None,
        typer.Option("--world", help="NAME=VALUE: gap=0.1, mean, best; speed, amplitude; switches, at; length; last."),
    ] = None,
    learner: LearnerOptions = None,
    setting: SettingOptions = None,
    delay: Annotated[int, typer.Option(help="Rounds that a loss is late.", min=0)] = 0,
    delay_mode: Annotated[str, typer.Option(help="queue, bold, padded or qpm-d.")] = "queue",
    seeds: Annotated[int, typer.Option(help="Games to average over.", min=1)] = 10,
    seed: Seed = 0,
    figure: Annotated[Path | None, typer.Option(help="Draw the regret curves here (.png, .pdf, .svg).")] = None,
    as_json: AsJson = False,
) -> None:
    """Play the token game, one loss vector a round: regret of learners side by side."""
    from hedgelab.contest import contest, world_of
    from hedgelab.references import assignments, number_or_text

    with _plain_errors():
        if figure:
            _check_suffix(figure)
        policies = _learners(learner, setting)
        own = {name: number_or_text(text) for name, text in assignments(world_setting or (), "--world").items()}
        losses = world_of(world, rounds, drafters, **own)
        with _progress("playing", seeds * len(policies)) as advance:
            result = contest(
                losses, policies, seeds=seeds, seed=seed, delay=delay, delay_mode=delay_mode, advance=advance
            )
        if figure:
            from hedgelab.figure import draw_contest

            draw_contest(result, figure)
        if as_json:
            print(json.dumps(result.document(), indent=1))
            return
        console = _console()
        console.print(
            f"[bold]{_escaped(result.world)}[/]: {result.rounds} rounds, {result.drafters} drafters, "
            f"delay {delay} ({delay_mode}), {seeds} seeds; sqrt(T ln N / 2) = {result.unit:.1f}"
        )
        table = Table()
        for heading in ("learner", "feedback", "mean regret [95% interval]", "/ sqrt(T ln N / 2)", "caveats"):
            table.add_column(heading, justify="left" if heading in ("learner", "feedback", "caveats") else "right")
        for name in sorted(result.regret, key=lambda name: result.final(name).estimate):
            final = result.final(name)
            spread = "" if final.low != final.low else f" [{final.low:.1f}, {final.high:.1f}]"
            table.add_row(
                _escaped(name),
                result.feedback[name],
                _escaped(f"{final.estimate:.1f}{spread}"),
                f"{final.estimate / result.unit:.3f}" if result.unit else "",
                _escaped("; ".join(result.notes[name])),
            )
        console.print(table)
        if figure:
            console.print(f"figure: {figure}", soft_wrap=True)


def _print_sheet(sheet: Sheet, console: Console) -> None:
    table = Table(title=_escaped(sheet.title), title_justify="left")
    for column, heading in enumerate(sheet.header):
        table.add_column(_escaped(heading), justify="left" if column < sheet.left else "right")
    for row in sheet.cells():
        styles = [" ".join(["bold"] * cell.bold + ["underline"] * cell.underline) for cell in row]
        texts = [_escaped(cell.text) for cell in row]
        table.add_row(*(f"[{style}]{text}[/]" if style else text for style, text in zip(styles, texts, strict=True)))
    console.print(table)


@app.command()
def matrix(
    trace: TraceArgument = "t06",
    k: Annotated[int | None, typer.Option("--k", help="Draft length; default: 5, or the trace's if shorter.")] = None,
    of: Annotated[str, typer.Option("--of", help="mat or acceptance: what table and figure show.")] = "mat",
    figure: Annotated[Path | None, typer.Option(help="Draw the heat map here (.png, .pdf, .svg).")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every drafter in every domain, with intervals over prompts, and whether specialists win at home."""
    from hedgelab.finding import home_advantage
    from hedgelab.matrix import acceptance_matrix

    with _plain_errors():
        if figure:
            _check_suffix(figure)
        if markdown and as_json:
            raise ValueError("--markdown and --json exclude each other")
        table = acceptance_matrix(_open(trace), k)
        found = home_advantage(table)
        sheet = table.sheet(of)
        if figure:
            from hedgelab.heatmap import draw_matrix

            draw_matrix(table, figure, of)
        if as_json:
            print(json.dumps({**table.document(), "finding": found.document()}, indent=1))
            return
        if markdown:
            print("\n".join([*sheet.markdown(), "", *found.markdown()]))
            return
        console = _console()
        _print_sheet(sheet, console)
        console.print("bold: best of its domain; underlined: a specialist at home")
        for line in found.text():
            console.print(_escaped(line), soft_wrap=True)
        for tables in found.sheets():
            _print_sheet(tables, console)
        if figure:
            console.print(f"figure: {figure}", soft_wrap=True)


def _print_evaluation(evaluation: Evaluation, as_json: bool) -> None:
    if as_json:
        print(json.dumps(evaluation.document(), indent=1))
        return
    console = _console()
    recorded, settings = evaluation.trace, evaluation.comparison.settings
    console.print(
        f"[bold]{_escaped(recorded.manifest.name)}[/]: {recorded.sequences} texts, {len(recorded.drafters)} drafters; "
        f"k={settings['k']}, replicates={settings['replicates']}, seed={settings['seed']}"
    )
    for sheet in evaluation.sheets():
        _print_sheet(sheet, console)


@router_app.command("train")
def train_router(
    trace: TraceArgument,
    out: Annotated[Path, typer.Option(help="File of the router (safetensors).")],
    k: Annotated[int | None, typer.Option("--k", help="Draft length of the labels; default: the trace's.")] = None,
    among: AmongOptions = None,
) -> None:
    """Train a router on a trace's prompts: which drafter commits the most tokens per round on each."""
    from hedgelab.routing import best_drafters, train

    with _plain_errors():
        recorded = _open_among(trace, among)
        router = train(recorded, k)
        out.parent.mkdir(parents=True, exist_ok=True)
        router.save(out)
        best = best_drafters(recorded, k)
    names = ", ".join(f"{name} {int((best == recorded.drafters.index(name)).sum())}" for name in router.about.classes)
    print(f"{out}: {len(router.trained_on)} prompts, {len(router.grams)} grams; texts by best drafter: {names}")


@router_app.command("evaluate")
def evaluate_router(
    file: Annotated[Path, typer.Argument(help="A router's file.")],
    trace: TraceArgument,
    k: Annotated[int | None, typer.Option("--k", help="Draft length; default: the router's.")] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="Also on prompts that the router was trained on.")
    ] = False,
    learner: LearnerOptions = None,
    replicates: Replicates = 8,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Evaluate a router on a trace, beside learners and oracles that choose among the same drafters."""
    from hedgelab.router import load_router
    from hedgelab.routing import evaluate

    with _plain_errors():
        recorded, policies = _open(trace), _learners(learner, None)
        with _progress("replaying", replicates * (1 + len(policies))) as advance:
            found = evaluate(
                load_router(file),
                recorded,
                k=k,
                include_seen=include_seen,
                learners=policies,
                replicates=replicates,
                seed=seed,
                advance=advance,
            )
        _print_evaluation(found, as_json)


@router_app.command("validate")
def validate_router(
    trace: TraceArgument = "t06",
    by: Annotated[
        str, typer.Option("--by", help="prompt: cross-validation; domain: each by a router trained on the others.")
    ] = "prompt",
    folds: Annotated[int, typer.Option(help="Folds of prompts.")] = 5,
    k: DraftLength = None,
    among: AmongOptions = None,
    learner: LearnerOptions = None,
    replicates: Replicates = 8,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Train and evaluate routers on one trace: on prompts left out, or on domains left out."""
    from hedgelab.routing import validate

    with _plain_errors():
        recorded, policies = _open_among(trace, among), _learners(learner, None)
        with _progress("replaying", replicates * (1 + len(policies))) as advance:
            found = validate(
                recorded,
                by=by,
                k=k,
                folds=folds,
                learners=policies,
                replicates=replicates,
                seed=seed,
                advance=advance,
            )
        _print_evaluation(found, as_json)


@app.command("costs")
def show_costs(
    trace: TraceArgument = "t06",
    costs: Annotated[
        str, typer.Option("--costs", help="A file of call costs; bundled: those of hedgelab.")
    ] = "bundled",
    k: Annotated[int | None, typer.Option("--k", help="Draft length; default: 5, or the trace's if shorter.")] = None,
    replicates: Replicates = 4,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
) -> None:
    """Show what every drafter's calls cost and how fast decoding with it alone would be, as `hedgelab.cost` models."""
    from hedgelab.cost_table import speedups

    with _plain_errors():
        known, recorded = _costs(costs), _open(trace)
        sheet = speedups(recorded, known, k=min(5, recorded.k) if k is None else k, replicates=replicates)
        if markdown:
            print("\n".join(sheet.markdown()))
            return
        console = _console()
        _print_sheet(sheet, console)
        console.print(_escaped(_costs_note(known, recorded)), soft_wrap=True)


@app.command()
def learners(
    as_json: AsJson = False,
    markdown: Annotated[bool, typer.Option(help="Print the rows of hedgelab/algorithms/README.md.")] = False,
) -> None:
    """List the learners: feedback, parameters, bound and its status, reference, file."""
    from hedgelab.algorithms import LEARNERS, MODULES
    from hedgelab.bounds import BOUNDS, FOR_LEARNER

    rows = [
        {
            "name": name,
            "feedback": policy.feedback,
            "parameters": {key: parameter.default for key, parameter in policy.parameters.items()},
            "bound": policy.bound,
            "status": BOUNDS[FOR_LEARNER[name].theorem].status if name in FOR_LEARNER and policy.bound else "",
            "reference": policy.reference,
            "file": f"hedgelab/algorithms/{Path(MODULES[name].__file__ or '').name}",
        }
        for name, policy in LEARNERS.items()
    ]
    if as_json:
        print(json.dumps(rows, indent=1))
        return
    if markdown:
        for row in rows:
            file = str(row["file"]).rpartition("/")[2]
            bound = str(row["bound"]).replace("*", "\\*").replace("|", "\\|")
            print(f"| `{row['name']}` | {row['feedback']} | {bound} | {row['reference']} | `{file}` |")
        return
    table = Table()
    for heading in (
        "name",
        "feedback",
        "parameters",
        "bound on regret",
        "its status",
        "reference",
        "hedgelab/algorithms",
    ):
        table.add_column(heading, no_wrap=heading == "name", overflow="fold")
    for row in rows:
        row["file"] = str(row["file"]).rpartition("/")[2]
        table.add_row(*(_escaped(_words(value)) for value in row.values()))
    _console().print(table)


@app.command()
def metrics() -> None:
    """List every metric with its formula and aggregation."""
    from hedgelab.metrics import METRICS

    table = Table()
    for heading in ("metric", "formula", "aggregation"):
        table.add_column(heading, no_wrap=heading == "metric")
    for name, metric in METRICS.items():
        table.add_row(name, _escaped(metric.formula), _escaped(metric.aggregation))
    _console().print(table)


@trace_app.command("show")
def show(trace: TraceArgument, as_json: AsJson = False) -> None:
    """Show what a trace holds and where it comes from."""
    with _plain_errors():
        facts = _open(trace, may_be_empty=True).describe()
        if as_json:
            print(json.dumps(facts, indent=1))
            return
        console = _console()
        drafters, domains, measured = (facts.pop(name) for name in ("drafters", "domains", "measured"))
        table = Table(show_header=False)
        for name, value in facts.items():
            table.add_row(name, _escaped(_words(value)))
        console.print(table)
        table = Table(title="drafters", title_justify="left")
        for heading in ("name", "kind", "rule", "depth", "processing", "details"):
            table.add_column(heading)
        for drafter in drafters:
            cells = (drafter[key] for key in ("name", "kind", "rule", "depth", "processing", "details"))
            table.add_row(*(_escaped(_words(value)) for value in cells))
        console.print(table)
        table = Table(title="domains", title_justify="left")
        for heading in ("domain", "prompts", "tokens"):
            table.add_column(heading)
        for name, entry in domains.items():
            table.add_row(_escaped(name), str(entry["sequences"]), str(entry["rows"]))
        console.print(table)
        if "parts" in measured:
            table = Table(title="measured while recording", title_justify="left")
            for heading in ("part", "calls", "ms a call"):
                table.add_column(heading, justify="left" if heading == "part" else "right")
            for name, entry in measured["parts"].items():
                table.add_row(_escaped(name), str(entry["calls"]), f"{1e3 * entry['seconds_per_call']:.2f}")
            console.print(table)


@trace_app.command("cut")
def cut(
    trace: TraceArgument,
    out: Annotated[Path, typer.Argument(help="New folder of the smaller trace.")],
    prompts: Annotated[int, typer.Option(min=1, help="Prompts of each domain to keep, chosen by their ids' hashes.")],
    deflate: Annotated[bool, typer.Option("--deflate", help="Pack it further; opening it then unpacks it.")] = False,
) -> None:
    """Write a trace of fewer prompts, in the smallest encodings that hold it."""
    with _plain_errors():
        small = _open(trace).few_prompts(prompts).save(out, encodings="deflate" if deflate else "compact")
        size = sum(shard.bytes for shard in small.manifest.shards)
    print(f"{small.sequences} texts, {small.rows} tokens, {size / 1e6:.2f} MB in {out}")


@trace_app.command("check")
def check(trace: TraceArgument) -> None:
    """Check every byte of a trace; list all problems, and end with status 1 if there are any."""
    from hedgelab.storage.checking import check_trace

    folder = _folder(trace)
    with _plain_errors():
        problems = check_trace(folder)
    console = _console()
    for problem in problems:
        console.print(_escaped(problem), soft_wrap=True)
    if problems:
        console.print(
            f"[bold red]{len(problems)} problem{'s' if len(problems) > 1 else ''}[/] in {folder}", soft_wrap=True
        )
        raise typer.Exit(1)
    console.print(f"no problems in {folder}", soft_wrap=True)
