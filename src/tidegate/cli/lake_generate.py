"""`tidegate lake generate`: a lake to play with."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import typer


def command(
    lake: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the new lake.")],
    rows: Annotated[
        int, typer.Option(min=1_000, help="Messages, about; at level full that many rows.")
    ] = 1_000_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same lake.")] = 1,
    hours: Annotated[int, typer.Option(min=1, max=10_000, help="Hours of traffic.")] = 24,
    start: Annotated[
        str, typer.Option(metavar="TIME", help="First hour, UTC unless it has a zone; a Monday by default.")
    ] = "2026-01-05T00:00",
    clients: Annotated[int, typer.Option(min=0, help="Publishers; 0: as fits the rows.")] = 0,
    topics: Annotated[int, typer.Option(min=0, help="Topics; 0: as fits the publishers.")] = 0,
    nodes: Annotated[int, typer.Option(min=1, max=100, help="Nodes that recorded it.")] = 2,
    level: Annotated[
        Literal["full", "summary", "mixed"],
        typer.Option(help="One row a message, sums over 10 s, or both by turns."),
    ] = "full",
    anomalies: Annotated[
        float, typer.Option(min=0.0, max=0.5, help="Share of the publishers that go wrong.")
    ] = 0.02,
) -> None:
    """Make a lake of a made-up fleet: rhythm of the day, jitter, bursts, faulty and hostile devices, gateways, calls.

    What was planted is told in DIR/_labels, which readers of the lake pass over. Then: tidegate pipeline run --lake DIR
    """
    from tidegate.cli.status import ExitStatus
    from tidegate.lake.errors import require_pyarrow

    require_pyarrow()
    from tidegate.lake.generate import GeneratedLevel, GenerateSettings, generate

    try:
        begin = datetime.fromisoformat(start)
    except ValueError:
        typer.echo(f"error: {start!r} is not a time", err=True)
        typer.echo("hint: as in 2026-01-05T00:00", err=True)
        raise typer.Exit(ExitStatus.USAGE) from None
    settings = GenerateSettings(
        rows=rows,
        seed=seed,
        hours=hours,
        start=begin,
        clients=clients,
        topics=topics,
        nodes=nodes,
        level=GeneratedLevel(level),
        anomalies=anomalies,
    )

    def progress(done: int, so_far: int) -> None:
        if sys.stderr.isatty():
            typer.echo(f"\rhour {done} of {hours}, {so_far:,} rows", err=True, nl=done == hours)

    made = generate(lake, settings, progress)
    for name, count in made.rows.items():
        typer.echo(f"{name} {count}")
    typer.echo(f"{made.files} files, {made.bytes / 1e6:.1f} MB", err=True)
