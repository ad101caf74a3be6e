"""`tidegate console`: a web page that shows a running node and lets operators act."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli import client_options as options
from tidegate.cli.console_beside import require_console
from tidegate.cli.options import Config, read_settings
from tidegate.cli.status import ExitStatus, report
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.console.settings import ConsoleSettings


@options.with_server(has_will=False, keep_alive=10)
def command(
    server: options.Server,
    http_host: Annotated[
        str, typer.Option(help="Address for browsers. Others than loopback need accounts and TLS.")
    ] = "127.0.0.1",
    http_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Default 1888, or the next free one; 0: a free one.")
    ] = None,
    http_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate for browsers, PEM.")
    ] = None,
    http_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its private key.")] = None,
    accounts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Who may log in: the broker's password file. Default: of --config."
        ),
    ] = None,
    rights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Who may write $tide/control/# there may act. Default: of --config."
        ),
    ] = None,
    operator: Annotated[
        list[str] | None, typer.Option(metavar="USER", help="This user may act, too; may be repeated.")
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="A host name that browsers use for it; may be repeated."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Nobody may act.")] = False,
    policy: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of policy snapshots. Default: of --config.")
    ] = None,
    lake: Annotated[
        str, typer.Option(metavar="DIR", help="The lake to describe. Default: of --config.")
    ] = "",
    reports: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Folder with reports of pipeline or lab; may be repeated."),
    ] = None,
    namespace: Annotated[str, typer.Option(help="Of the RPC backbone to show.")] = "main",
    space: Annotated[list[str] | None, typer.Option(help="A space to show; may be repeated.")] = None,
    config: Config = None,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "info",
    parent: Annotated[int, typer.Option(hidden=True, help="End with this process.")] = 0,
) -> None:
    """Serve a web page that shows a node: traffic, publishers, groups, cluster, calls, spaces, policy, reports.

    It is a process of its own and an ordinary client of the node (--url or --host and --port), so it can hang or end
    without harm. Without accounts it is for this machine only. `tidegate serve --console` starts it beside a broker.
    """
    require_console()

    from dataclasses import replace
    from secrets import token_hex

    import uvloop

    from tidegate import log
    from tidegate.console.serve import serve
    from tidegate.console.settings import PORT, ConsoleSettings

    try:
        settings = _with_config(
            ConsoleSettings(
                host=http_host,
                port=PORT if http_port is None else http_port,
                certfile=http_cert,
                keyfile=http_key,
                password_file=accounts,
                rights_file=rights,
                operators=frozenset(operator or ()),
                names=frozenset(name or ()),
                read_only=read_only,
                policy=policy,
                lake=lake,
                reports=tuple(reports or ()),
                namespace=namespace,
                spaces=tuple(space or ()),
            ),
            config,
        )
        settings.check()
        # A name that says what it is in lists and logs; the number keeps two consoles apart.
        named = replace(server, client_id=server.client_id or f"console-{token_hex(4)}")
        if settings.password_file is not None:  # else its page would show everything to everybody on this machine
            named = named.as_operator()
        named.client()  # an address that can never work is refused here
        log.configure(log_level, "auto")
        uvloop.run(
            serve(
                settings,
                lambda: named.client(operation_timeout=10.0, receive_queue_size=10_000, reports="off"),
                port_fallback=http_port is None,
                parent=parent,
                say=lambda line: print(line, flush=True),
            )
        )
    except TidegateError as error:
        is_setting = report(error) is ExitStatus.CONFIG
        raise typer.Exit(ExitStatus.CONFIG if is_setting else ExitStatus.STARTUP) from None
    except KeyboardInterrupt:
        raise typer.Exit(ExitStatus.OK) from None


def _with_config(settings: "ConsoleSettings", config: Path | None) -> "ConsoleSettings":
    """What the node's own settings file says and no option does: accounts, rights, folders."""
    from dataclasses import replace

    if config is None:
        return settings
    given = read_settings(config, None)
    policy = getattr(getattr(given, "policy", None), "path", "")
    lake = getattr(getattr(given, "lake", None), "path", "")
    return replace(
        settings,
        password_file=settings.password_file or given.accounts.password_file,
        rights_file=settings.rights_file or given.accounts.rights_file,
        policy=settings.policy or (Path(policy) if policy else None),
        lake=settings.lake or str(lake),
    )
