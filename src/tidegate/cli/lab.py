"""`tidegate lab`: run the papers' experiments again and render what came out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tidegate.cli.status import ExitStatus, report

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

app = typer.Typer(
    no_args_is_help=True, help="Run the papers' experiments and compare the numbers.", rich_markup_mode=None
)

RESULTS = Path("results")
QUICK_RESULTS = Path("build/lab")  # rough numbers must not replace good ones

Out = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where results go. Default: results; with --quick: build/lab."),
]


@app.command("list")
def list_command() -> None:
    """Name the experiments, one a line, with what they ask."""
    from tidegate.lab.registry import PAPERS

    for paper in PAPERS:
        typer.echo(f"{paper.number} {paper.name}: {paper.title}")
        for experiment in paper.experiments:
            typer.echo(f"  {experiment.name:<16} {'+'.join(experiment.parts):<9} {experiment.question}")


@app.command("run")
def run_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="An experiment, or a paper's number or name for all of it.")
    ],
    quick: Annotated[bool, typer.Option("--quick", help="Rough numbers within a minute.")] = False,
    seeds: Annotated[
        int, typer.Option(min=0, max=100_000, help="Repetitions; 0: as many as the experiment says.")
    ] = 0,
    only: Annotated[
        Literal["real", "sim"] | None, typer.Option(help="Brokers over sockets only, or the simulator only.")
    ] = None,
    events: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write each simulated message as a JSON line.")
    ] = None,
    out: Out = None,
) -> None:
    """Run experiments, write JSON, figures and pages. Ctrl-C stops every broker that was started."""
    import signal
    from contextlib import ExitStack

    from tidegate.lab import figures
    from tidegate.lab.errors import UnknownExperiment
    from tidegate.lab.events import EventFile
    from tidegate.lab.experiment import Context, Part
    from tidegate.lab.registry import find
    from tidegate.lab.run import run, verdicts, write_pages

    try:
        chosen = find(name)
    except UnknownExperiment as error:
        report(error)
        raise typer.Exit(ExitStatus.USAGE) from None
    figures.check()
    part = None if only is None else Part(only)
    folder = out or (QUICK_RESULTS if quick else RESULTS)
    # A service manager's way to say Ctrl-C: unwind, so that brokers are stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    ran: list[str] = []
    with ExitStack() as stack:
        bar = _Bar(stack.enter_context(_progress()))
        record = stack.enter_context(EventFile(events)).write if events is not None else None
        context = Context(is_quick=quick, seeds=seeds, only=part, progress=bar, record=record)
        for paper, experiment in chosen:
            if part is not None and part not in experiment.parts:
                typer.echo(f"{experiment.name} has no part {part.value}: left out", err=True)
                continue
            typer.echo(str(run(paper, experiment, context, folder)))
            ran.append(experiment.name)
        papers = {paper.name: paper for paper, _ in chosen}.values()
        for paper in papers:
            for path in write_pages(paper, folder):
                typer.echo(str(path))
    for paper in papers:
        for line in verdicts(paper, ran, folder):
            typer.echo(line, err=True)


@app.command("report")
def report_command(
    out: Out = None,
    readme: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also put the headline numbers between the lab marks of this file."
        ),
    ] = None,
) -> None:
    """Render all pages again from the JSON of earlier runs; runs nothing."""
    from tidegate.lab import render
    from tidegate.lab.registry import PAPERS
    from tidegate.lab.run import load, write_pages

    folder = out or RESULTS
    written = [path for paper in PAPERS for path in write_pages(paper, folder)]
    for path in written:
        typer.echo(str(path))
    if not written:
        typer.echo(f"error: there are no results in {folder}", err=True)
        typer.echo("hint: run an experiment first: tidegate lab run backoff --quick", err=True)
        raise typer.Exit(ExitStatus.FAILURE)
    kept = [(paper, load(paper, folder)) for paper in PAPERS]
    typer.echo(str(render.write_summary(kept, folder)))
    if readme is not None:
        shown = [entry for _, entries in kept for entry in entries]
        if not render.write_readme(readme, shown):
            typer.echo(f"error: {readme} has no place for the table", err=True)
            typer.echo(f"hint: put {render.BEGIN} and {render.END} on lines of their own", err=True)
            raise typer.Exit(ExitStatus.FAILURE)


def _progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    # Data goes to stdout; a bar that nobody watches is not drawn.
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[text]}"),
        console=console,
        disable=not console.is_terminal,
    )


class _Bar:
    """The lab's progress as bars of rich, one a phase."""

    def __init__(self, progress: "Progress") -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def start(self, text: str, steps: int) -> None:
        self._task = self._progress.add_task(text, total=steps, text="")
        if self._progress.disable:
            typer.echo(f"{text}: {steps} steps", err=True)

    def step(self, text: str = "") -> None:
        if self._task is not None:
            self._progress.update(self._task, advance=1, text=text)
