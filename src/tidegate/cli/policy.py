"""`tidegate policy`: what the pipeline learnt, and which version of it nodes follow."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tidegate.policy import PolicyStore

app = typer.Typer(
    no_args_is_help=True,
    help="Show, compare, apply and take back policy snapshots: the folder that policy.path of a node names.",
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the snapshots.", file_okay=False)]
ROWS = 20


def _store(folder: Path) -> "PolicyStore":
    from tidegate.lake.errors import require_pyarrow
    from tidegate.policy import PolicyError, PolicyStore

    require_pyarrow()
    if not folder.is_dir():
        raise PolicyError(str(folder), "there is no such folder", "name the folder that policy.path names")
    return PolicyStore(folder)


@app.command("show")
def show_command(
    folder: Folder,
    version: Annotated[
        str | None, typer.Argument(metavar="[VERSION]", help="Default: the current one.")
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="NAME", help="Print rows of this table.")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="ID", help="What it says of this client.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows to print.")] = ROWS,
) -> None:
    """All versions, or with VERSION, --table or --client what one of them says."""
    store = _store(folder)
    current = store.current()
    if version is None and table is None and client is None:
        typer.echo("version\tcreated\tinput\ttables")
        for name in store.versions():
            manifest = store.manifest(name)
            tables = " ".join(f"{each}={entry.rows}" for each, entry in manifest.tables.items())
            mark = "*" if name == current else ""
            typer.echo(
                f"{name}{mark}\t{manifest.created}\t{manifest.input_from}/{manifest.input_to}\t{tables}"
            )
        return
    version = version or current
    if version is None:
        from tidegate.policy import PolicyError

        raise PolicyError(str(folder), "no version is current", "tidegate policy apply DIR VERSION")
    manifest = store.manifest(version)
    if table is None and client is None:
        for name in ("version", "created", "input_from", "input_to", "notes"):
            typer.echo(f"{name}\t{getattr(manifest, name)}")
        for each, entry in manifest.tables.items():
            typer.echo(f"{each}\t{entry.rows} rows\t{entry.bytes} bytes\t{entry.sha256}")
        return
    for name in [table] if table is not None else ["baselines", "members"]:
        if table is None and name not in manifest.tables:
            continue
        _print(store, version, name, client, limit)


def _print(store: "PolicyStore", version: str, table: str, client: str | None, limit: int) -> None:
    import pyarrow.compute as pc

    data = store.read(version, table)
    if client is not None and "client_id" in data.column_names:
        data = data.filter(pc.equal(data["client_id"], client))
    names = data.column_names
    typer.echo("\t".join(names))
    for row in data.slice(0, limit).to_pylist():
        typer.echo("\t".join(_text(row[name]) for name in names))
    if data.num_rows > limit:
        typer.echo(f"{data.num_rows - limit} more; --limit shows them", err=True)


@app.command("diff")
def diff_command(
    folder: Folder,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A version.")],
    new: Annotated[
        str | None, typer.Argument(metavar="[NEW]", help="Another; default: the current one.")
    ] = None,
    factor: Annotated[
        float, typer.Option("--factor", min=1.0, help="Name publishers whose rate changed by more than this.")
    ] = 1.5,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows to print of each table.")] = ROWS,
) -> None:
    """What one version says and another does not: publishers and members that came, went, or changed their pace."""
    store = _store(folder)
    from tidegate.policy import PolicyError
    from tidegate.policy.compare import compare

    new = new or store.current()
    if new is None:
        raise PolicyError(str(folder), "no version is current", "name two versions")
    before, after = store.manifest(old), store.manifest(new)
    for name in sorted({*before.tables, *after.tables}):
        rows = [m.tables[name].rows if name in m.tables else 0 for m in (before, after)]
        typer.echo(f"{name}\t{rows[0]} rows\t{rows[1]} rows")
    for table, value in (("baselines", "rate"), ("members", "service")):
        if table in before.tables and table in after.tables:
            _differences(
                table, compare(store.read(old, table), store.read(new, table), table, value, factor), limit
            )


def _differences(table: str, found: dict[str, list[tuple[str, ...]]], limit: int) -> None:
    for kind, rows in found.items():
        for row in rows[:limit]:
            typer.echo("\t".join((table, kind, *row)))
        if len(rows) > limit:
            typer.echo(f"{table}: {len(rows) - limit} more that are {kind}; --limit shows them", err=True)


@app.command("apply")
def apply_command(
    folder: Folder, version: Annotated[str, typer.Argument(metavar="VERSION", help="The version to follow.")]
) -> None:
    """Make a version current, after reading all of it; nodes that follow the folder take it within seconds."""
    manifest = _store(folder).activate(version)
    typer.echo(f"current {manifest.version}")


@app.command("rollback")
def rollback_command(folder: Folder) -> None:
    """Make current what was current before; once more goes back further."""
    manifest = _store(folder).rollback()
    typer.echo(f"current {manifest.version}")


def _text(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
