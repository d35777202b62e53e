"""`python -m paper_figures`: draw the figures from results of the claims."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

import typer

import paper_figures
from experiments.runner import OUT, MissingError, Plan, results_of
from experiments.settings import ClaimError
from hedgelab.storage.shards import write_atomically
from hedgelab.trace import TraceError
from paper_figures import style

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

SUFFIXES = (".png", ".pdf")
# nothing that changes from run to run
METADATA: dict[str, dict[str, Any]] = {".png": {"Software": None}, ".pdf": {"CreationDate": None}}


@app.command()
def draw(
    figures: Annotated[list[str] | None, typer.Argument(help="Figures; default: all.", metavar="[NAME]...")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the figures.")] = Path(__file__).parent,
    results: Annotated[Path, typer.Option(help="Folder of the results.")] = OUT,
    quick: Annotated[bool, typer.Option("--quick", help="Draw results of quick settings.")] = False,
) -> None:
    """Draw figures as PNG and PDF; one whose results are missing says how to compute them."""
    names = figures or list(paper_figures.NAMES)
    unknown = [name for name in names if name not in paper_figures.NAMES]
    if unknown:
        typer.echo(f"Error: no figure {', '.join(unknown)}; there are {', '.join(paper_figures.NAMES)}", err=True)
        raise typer.Exit(2)
    plan, missing = Plan(quick, out=results), 0
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        module: Any = importlib.import_module(f"paper_figures.{name}")
        try:
            found = results_of(module.CLAIM, plan)
        except MissingError as error:
            typer.echo(f"{name}: {error}", err=True)
            missing += 1
            continue
        except (ClaimError, TraceError, OSError) as error:
            typer.echo(f"Error: {error}", err=True)
            raise typer.Exit(2) from None
        with style.used():
            figure = module.draw(found)
            for suffix in SUFFIXES:
                figure.savefig(out / f"{name}{suffix}", metadata=METADATA[suffix])
        typer.echo(f"{out / name}.png, .pdf: {module.CAPTION}")
    if missing:
        raise typer.Exit(1)
    if not figures and not quick:
        write_atomically(out / "README.md", gallery().encode())


def gallery() -> str:
    """Return a page of all figures with their captions."""
    parts = ["# Figures\n\n`python -m experiments run all && python -m paper_figures` draws them, as PNG and PDF.\n"]
    for name in paper_figures.NAMES:
        module: Any = importlib.import_module(f"paper_figures.{name}")
        parts.append(f"## {name}\n\nClaim `{module.CLAIM}`.\n\n![{name}]({name}.png)\n\n{module.CAPTION}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    app()
