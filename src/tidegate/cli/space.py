"""`tidegate space`: an RDF broker with standing queries, and commands to talk to one."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tidegate.cli import client_options as options
from tidegate.cli.status import ExitStatus, report
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.client import Client
    from tidegate.space.knowledge import Space
    from tidegate.space.watch import Watch

app = typer.Typer(
    no_args_is_help=True, help="Share RDF: spaces of triples, SPARQL, and watches.", rich_markup_mode=None
)

Name = Annotated[str, typer.Option("--space", "-s", help="Which space.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="SPARQL; - reads it from standard input.")]
Patience = Annotated[float, typer.Option("--timeout", "-W", min=0.1, help="Seconds to wait for an answer.")]


def _server(
    url: str | None, username: str | None, password_file: Path | None, client_id: str = ""
) -> options.Server:
    return options.Server(
        url=url,
        host=None,
        port=None,
        client_id=client_id,
        username=username,
        password=None,
        password_file=password_file,
        protocol_version="5",
        keep_alive=60,
        connect_timeout=10.0,
        cafile=None,
        cert=None,
        key=None,
        tls=False,
        insecure=False,
    )


@app.command("serve")
def serve_command(
    spaces: Annotated[
        list[str] | None, typer.Option("--space", "-s", help="A space to offer; may be repeated.")
    ] = None,
    url: options.Url = None,
    username: options.Username = None,
    password_file: options.PasswordFile = None,
    no_mqtt: Annotated[bool, typer.Option("--no-mqtt", help="HTTP only.")] = False,
    http_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Serve the SPARQL protocol on this port; 0 picks a free one."),
    ] = None,
    http_host: Annotated[str, typer.Option(help="Address for it.")] = "127.0.0.1",
    certfile: Annotated[
        Path | None, typer.Option("--cert", help="Certificate for HTTPS, a PEM file.")
    ] = None,
    keyfile: Annotated[Path | None, typer.Option("--key", help="Its private key.")] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep triples and watches here. Default: in memory.")
    ] = None,
    no_sync: Annotated[
        bool, typer.Option("--no-sync", help="Faster; a power failure may lose the last updates.")
    ] = False,
    rights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Who may read and write what; TOML. Default: everybody."),
    ] = None,
    reply: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILTER",
            help="Topics that answers may go to; may be repeated. Default: any outside tide/space.",
        ),
    ] = None,
    query_time: Annotated[float, typer.Option(min=0.1, help="Seconds a query may take.")] = 5.0,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Queries answered at once.")] = 4,
    queue: Annotated[int, typer.Option(min=1, max=100_000, help="Requests that wait, of each type.")] = 256,
    snapshot_bytes: Annotated[
        int, typer.Option(min=1000, hidden=True, help="Bytes of journal after which a snapshot is written.")
    ] = 64 * 1024 * 1024,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "info",
) -> None:
    """Run a space broker until SIGTERM or Ctrl-C; SIGHUP reads the rights file again.

    It is a client of an MQTT 5 broker (--url, by default mqtt://localhost) and can be a SPARQL endpoint besides.
    """
    import uvloop

    from tidegate import log
    from tidegate.net.tls import server_context

    log.configure(log_level, "auto")
    if (certfile is None) != (keyfile is None):
        raise typer.BadParameter("--cert and --key belong together")
    try:
        module = _import()
        chosen = module.ServeOptions(
            spaces=list(dict.fromkeys(spaces or ["default"])),
            client=None
            if no_mqtt
            else lambda: _server(url or "mqtt://localhost", username, password_file).client(
                reconnect=True, send_queue_size=10_000, receive_queue_size=10_000
            ),
            http_host=http_host,
            http_port=http_port,
            tls=None if certfile is None or keyfile is None else server_context(certfile, keyfile),
            data=data,
            sync=not no_sync,
            rights=module.SpaceRights() if rights is None else _load_rights(rights),
            rights_file=rights,
            limits=module.SpaceLimits(query_time=query_time, snapshot_bytes=snapshot_bytes),
            query_workers=workers,
            queue=queue,
            reply=reply or ["#"],
        )
        uvloop.run(module.serve(chosen, lambda line: print(line, flush=True)))
    except TidegateError as error:
        report(error)
        raise typer.Exit(ExitStatus.STARTUP) from None


def _import() -> Any:
    """The room needs what not everybody has installed."""
    try:
        import aiohttp  # noqa: F401

        from tidegate.space import serve
    except ImportError as error:
        typer.echo(f"error: {error.name} is not installed", err=True)
        typer.echo("hint: pip install 'tidegate[space]'", err=True)
        raise typer.Exit(ExitStatus.STARTUP) from None
    return serve


def _load_rights(path: Path) -> Any:
    from tidegate.space.rights import load_rights

    return load_rights(path)


def _read(text: str) -> str:
    """To be called before the loop runs: inside, Ctrl-C would wait for the end of the input."""
    return sys.stdin.read() if text == "-" else text


def _talk(client: "options.Server", name: str, work: Any, *, reconnect: bool = False) -> None:
    """Run `work(space)` with a connection; errors become two lines. With `reconnect` it outlives losses of it."""
    _import()

    async def main() -> int:
        from tidegate.space.knowledge import Space

        connection: Client = client.client(reconnect=reconnect)
        async with connection:
            telling = asyncio.create_task(_tell_of_losses(connection)) if reconnect else None
            try:
                await work(Space(connection, name))
            finally:
                if telling is not None:
                    telling.cancel()
        return 0

    try:
        raise typer.Exit(options.run(main()))
    except TidegateError as error:
        raise typer.Exit(options.report_refusal(error, client.username)) from None


async def _tell_of_losses(connection: "Client") -> None:
    from tidegate.space.link import follow_link

    def tell(is_there: bool) -> None:
        words = "is back" if is_there else "is lost; trying again"
        print(f"{connection.endpoint} {words}", file=sys.stderr, flush=True)

    await follow_link(connection, tell)


@app.command("query")
def query_command(
    text: Text,
    space: Name = "default",
    accept: Annotated[
        str, typer.Option("--accept", "-a", help="Content type wanted. Default: the broker's choice.")
    ] = "",
    url: options.Url = None,
    username: options.Username = None,
    password_file: options.PasswordFile = None,
    timeout: Patience = 10.0,
) -> None:
    """Ask a space and print the answer, as JSON unless --accept says text/csv, text/turtle, …"""
    asked = _read(text)

    async def work(target: "Space") -> None:
        from tidegate.space.requests import Operation

        reply = await target.request(Operation.QUERY, asked, accept=accept or None, timeout=timeout)
        sys.stdout.buffer.write(reply.body if reply.body.endswith(b"\n") else reply.body + b"\n")
        sys.stdout.flush()

    _talk(_server(url, username, password_file), space, work)


@app.command("update")
def update_command(
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="SPARQL update; - reads standard input.")
    ] = None,
    insert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Insert this RDF file: .ttl, .nt, .jsonld or .rdf.")
    ] = None,
    remove: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Remove the triples in this file.")
    ] = None,
    space: Name = "default",
    url: options.Url = None,
    username: options.Username = None,
    password_file: options.PasswordFile = None,
    timeout: Patience = 60.0,
) -> None:
    """Change a space; prints the version after it and how many triples came and went."""
    if sum(each is not None for each in (text, insert, remove)) != 1:
        raise typer.BadParameter("give one of TEXT, --insert and --remove")
    path = insert or remove
    kinds = {".ttl": "text/turtle", ".nt": "application/n-triples", ".jsonld": "application/ld+json"}
    kinds[".rdf"] = "application/rdf+xml"
    if path is not None and path.suffix not in kinds:
        raise typer.BadParameter(f"{path}: the name must end in {', '.join(kinds)}")
    try:
        body = _read(text or "").encode() if path is None else path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{path}: {error.strerror}") from None

    async def work(target: "Space") -> None:
        from tidegate.space.requests import Operation

        kind = None if path is None else kinds[path.suffix]
        operation = Operation.UPDATE if path is None else Operation.INSERT if insert else Operation.REMOVE
        reply = await target.request(operation, body, content_type=kind, timeout=timeout)
        print(reply.body.decode())

    _talk(_server(url, username, password_file), space, work)


@app.command("watch")
def watch_command(
    text: Annotated[
        str | None, typer.Argument(metavar="[TEXT]", help="SPARQL; - reads it from standard input.")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(metavar="TERM", help="Watch triples with this subject, such as <urn:lamp>.")
    ] = None,
    predicate: Annotated[str | None, typer.Option(metavar="TERM", help="With this predicate.")] = None,
    object_: Annotated[
        str | None, typer.Option("--object", metavar="TERM", help="With this object, such as <urn:a> or 5.")
    ] = None,
    space: Name = "default",
    policy: Annotated[
        str,
        typer.Option("--policy", help="How to look for lost changes: active, adaptive, fixed, paper, off."),
    ] = "active",
    count: Annotated[
        int | None, typer.Option("--count", "-C", min=1, help="End after so many changes.")
    ] = None,
    url: options.Url = None,
    username: options.Username = None,
    password_file: options.PasswordFile = None,
) -> None:
    """Print the answer of a query, then every change of it: one JSON object a line, none lost.

    Instead of a query, --subject, --predicate and --object tell which triples to watch; terms are written as in SPARQL.
    """
    import json

    if (text is None) == (not any((subject, predicate, object_))):
        raise typer.BadParameter("give either TEXT, or some of --subject, --predicate and --object")
    watched = None if text is None else _read(text)

    async def work(target: "Space") -> None:
        from tidegate.space.terms import row_json

        def show(kind: str, watch: "Watch", fields: dict[str, Any]) -> None:
            rows = {
                name: [row_json(watch.variables, row) for row in each] if isinstance(each, list) else each
                for name, each in fields.items()
            }
            print(json.dumps({"event": kind, **rows}, ensure_ascii=False), flush=True)

        async with target.watch(watched, s=subject, p=predicate, o=object_, policy=policy) as watch:
            first = {"version": watch.version, "number": watch.number}
            show("answer", watch, {**first, "rows": list(watch.rows.elements())})
            seen = 0
            async for change in watch:
                fields = {"version": change.version, "number": change.number}
                show("change", watch, {**fields, "added": change.added, "removed": change.removed})
                seen += 1
                if seen == count:
                    return

    _talk(_server(url, username, password_file), space, work, reconnect=True)


@app.command("token")
def token_command() -> None:
    """Make a token for a rights file: the token to stdout, the line for the file to stderr."""
    _import()
    from tidegate.space.rights import digest_of, new_token

    token = new_token()
    typer.echo(token)
    typer.echo(f'NAME = "{digest_of(token)}"', err=True)
