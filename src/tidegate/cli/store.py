"""`tidegate store`: look after the data folder of a broker that is not running."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.status import ExitStatus

app = typer.Typer(
    no_args_is_help=True, help="Check, export, import, compact or recover a data folder.", rich_markup_mode=None
)

Folder = Annotated[
    Path, typer.Argument(metavar="DIR", help="The folder that `tidegate serve --data` uses.", file_okay=False)
]


@app.command("check")
def check_command(folder: Folder) -> None:
    """Read the whole store and name what is wrong with it; exit status 1 if anything is."""
    from tidegate.broker.store.maintenance import check

    findings = check(folder)
    for table, count in findings.counts.items():
        typer.echo(f"{table} {count}")
    typer.echo(f"bytes {findings.size_bytes}")
    if findings.orphans:
        typer.echo(
            f"{findings.orphans} messages have no owner; the next start or compact deletes them", err=True
        )
    for problem in findings.problems:
        typer.echo(f"problem: {problem}", err=True)
    if findings.problems:
        typer.echo(
            "hint: keep a copy of the folder; `tidegate store recover` saves what can be read",
            err=True,
        )
        raise typer.Exit(ExitStatus.FAILURE)
    typer.echo("ok")


@app.command("export")
def export_command(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write JSON lines; - for standard output.")
    ],
) -> None:
    """Write the store as JSON lines, one row each."""
    from tidegate.broker.store.transfer import export_file, export_store

    counts = export_store(folder, sys.stdout) if str(file) == "-" else export_file(folder, file)
    typer.echo(f"{counts.total()} rows exported", err=True)


@app.command("import")
def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export` wrote; - for standard input.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.", file_okay=False)],
) -> None:
    """Make a store of exported JSON lines, in an empty folder."""
    from tidegate.broker.store.errors import StoreError
    from tidegate.broker.store.transfer import import_store

    if str(file) == "-":
        counts = import_store(sys.stdin, folder, "standard input")
    else:
        try:
            with file.open(encoding="utf-8") as source:
                counts = import_store(source, folder, str(file))
        except OSError as error:
            raise StoreError(file, error.strerror or str(error), "name a file that `export` wrote") from error
        except UnicodeDecodeError as error:
            raise StoreError(file, "is not text", "name a file that `export` wrote") from error
    typer.echo(f"{counts.total()} rows imported", err=True)


@app.command("compact")
def compact_command(folder: Folder) -> None:
    """Give free space back to the disk; may be interrupted at any moment."""
    from tidegate.broker.store.maintenance import compact

    done = compact(folder)
    typer.echo(f"bytes {done.before_bytes} {done.after_bytes}")
    typer.echo(f"{done.orphans} messages without owner deleted", err=True)


@app.command("recover")
def recover_command(folder: Folder) -> None:
    """Save what can be read of a damaged store; the damaged file is kept beside it under another name."""
    from tidegate.broker.store.maintenance import locked, store_path
    from tidegate.broker.store.recovery import recover

    path = store_path(folder)
    with locked(path):
        aside, outcome = recover(path)
    typer.echo(outcome.as_text())
    typer.echo(f"the damaged file is {aside}", err=True)
