"""`tidegate lake`: look at what nodes recorded, and look after it."""

from datetime import timedelta
from typing import Annotated, Any

import typer

from tidegate.cli import lake_generate
from tidegate.cli.status import ExitStatus

app = typer.Typer(
    no_args_is_help=True,
    help="Look after recorded traffic (the folder that lake.path of a node names), or make some up.",
    rich_markup_mode=None,
)

Place = Annotated[
    str, typer.Argument(metavar="LAKE", help="Folder, or address such as s3://bucket/lake, of the lake.")
]
OnlyTables = Annotated[
    list[str] | None, typer.Option("--table", metavar="NAME", help="Only this table; may be repeated.")
]
UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def _open(place: str, tables: list[str] | None) -> tuple[Any, tuple[str, ...]]:
    from tidegate.lake.errors import LakeError, require_pyarrow
    from tidegate.schema import TABLES

    require_pyarrow()
    from tidegate.lake.target import Target

    for name in tables or ():
        if name not in TABLES:
            raise LakeError("", f"there is no table {name}", f"tables are {', '.join(TABLES)}")
    return Target.open(place), tuple(tables or ())


@app.command("ls")
def ls_command(place: Place, tables: OnlyTables = None) -> None:
    """One line a table: files, rows, bytes, hours, nodes, first and last row."""
    target, names = _open(place, tables)
    from tidegate.lake.catalog import scan, summaries
    from tidegate.lake.upkeep import mark_replaced

    files = list(scan(target, names))
    mark_replaced(target, files)
    found = summaries(files)
    typer.echo("table\tfiles\trows\tbytes\thours\tnodes\tfirst\tlast")
    for name, each in found.items():
        first = f"{each.first:%Y-%m-%dT%H:%M:%SZ}" if each.first else "-"
        last = f"{each.last:%Y-%m-%dT%H:%M:%SZ}" if each.last else "-"
        typer.echo(
            f"{name}\t{each.files}\t{each.rows}\t{each.size}\t{len(each.hours)}\t{len(each.nodes)}\t{first}\t{last}"
        )
    aside = sum(1 for each in files if not each.state.is_data)
    if not found:
        typer.echo("no file is complete yet: half a minute after its first row it is", err=True)
    if aside:
        typer.echo(f"{aside} files do not count; tidegate lake check {place} says why", err=True)


@app.command("check")
def check_command(place: Place, tables: OnlyTables = None) -> None:
    """Open every file and name those that readers set aside; exit status 1 if any is damaged, foreign or double.

    Files that are being written, or that a crash left (names with _), are named and do no harm.
    """
    target, names = _open(place, tables)
    from tidegate.lake.catalog import State, mark_duplicates, scan
    from tidegate.lake.upkeep import mark_replaced

    files = list(scan(target, names))
    mark_replaced(target, files)
    mark_duplicates(target, files)
    bad = 0
    for each in files:
        if each.state is not State.GOOD:
            typer.echo(f"{each.state}\t{each.path}\t{each.problem}")
            bad += not each.state.is_data and each.state is not State.TEMPORARY
        elif each.unknown:
            typer.echo(f"columns\t{each.path}\tunknown and ignored: {', '.join(each.unknown)}")
    good = sum(each.state.is_data for each in files)
    typer.echo(f"{good} files good, {bad} set aside", err=True)
    if bad:
        typer.echo("hint: move them away; `tidegate lake compact` deletes doubles", err=True)
        raise typer.Exit(ExitStatus.FAILURE)


@app.command("compact")
def compact_command(
    place: Place,
    tables: OnlyTables = None,
    current: Annotated[
        bool, typer.Option("--current", help="Also the hour that is still being written.")
    ] = False,
    least: Annotated[int, typer.Option(min=2, help="Leave hours with fewer files alone.")] = 2,
) -> None:
    """Make one file of the many that a node wrote in an hour; may be interrupted, and run beside nodes."""
    target, names = _open(place, tables)
    from tidegate.lake.upkeep import compact

    done = compact(
        target,
        tables=names,
        least=least,
        include_current=current,
        say=lambda line: typer.echo(line, err=True),
    )
    typer.echo(f"files {done.files} into {done.into}, rows {done.rows}, bytes freed {done.freed}")


@app.command("prune")
def prune_command(
    place: Place,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            metavar="AGE",
            help="Delete hours that ended so long ago: 90m, 12h, 30d, 8w. Default: none, temporary files only.",
        ),
    ] = None,
    tables: OnlyTables = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
) -> None:
    """Delete old hours, and temporary files that nobody wrote to for an hour."""
    age = None if older_than is None else parse_age(older_than)
    target, names = _open(place, tables)
    from tidegate.lake.upkeep import prune

    done = prune(
        target,
        older_than=age,
        tables=names,
        is_dry=dry_run,
        say=lambda line: typer.echo(line, err=True),
    )
    typer.echo(f"files {done.files}, rows {done.rows}, bytes {done.freed}")


def parse_age(text: str) -> timedelta:
    """`30d` and the like; refuses anything else, and nothing at all."""
    number, unit = text[:-1], text[-1:]
    if unit not in UNITS or not number.isdecimal() or not 0 < int(number) < 1_000_000:
        raise typer.BadParameter(f"{text!r} is no age; write 90m, 12h, 30d or 8w")
    return timedelta(seconds=int(number) * UNITS[unit])


app.command("generate")(lake_generate.command)
