"""`tidegate serve`: run a node until it is told to stop."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.options import Config, Overrides, names_a_port, read_settings
from tidegate.cli.status import ExitStatus, report
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.settings import Settings

Port = Annotated[
    int | None,
    typer.Option(
        min=0, max=65_535, help="Port for MQTT; 0 picks a free one. Default 1883, or the next free one."
    ),
]


def command(
    config: Config = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on; 0.0.0.0 for every interface. Default 127.0.0.1.")
    ] = None,
    port: Port = None,
    websocket_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Also accept MQTT over WebSocket on this port.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Keep sessions, queues and retained messages in this folder. Default: in memory.",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE", help="single, head or edge of a cluster; see docs/cluster.md. Default single."
        ),
    ] = None,
    head: Annotated[
        list[str] | None,
        typer.Option(metavar="ADDRESS", help="Link address of a head, host:port; may be repeated."),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="Serve Prometheus metrics on this port.")
    ] = None,
    console: Annotated[
        bool, typer.Option("--console", help="Start the web console beside it, a process of its own.")
    ] = False,
    console_port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="For the console; default 1888, or the next free one."),
    ] = None,
    console_username: Annotated[
        str | None,
        typer.Option(
            envvar="TIDEGATE_USERNAME",
            metavar="USER",
            help="The console's account, if the node has accounts.",
        ),
    ] = None,
    console_password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Its password, the first line; so is the variable TIDEGATE_PASSWORD."
        ),
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")
    ] = None,
    log_format: Annotated[str | None, typer.Option(metavar="FORMAT", help="auto, human or json.")] = None,
    overrides: Overrides = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C."""
    from tidegate.cli.console_beside import Account, beside, choose_listener, require_console

    if console:
        require_console()
    given = {
        "data": None if data is None else str(data),
        "metrics.port": metrics_port,
        "cluster.role": role,
        "cluster.heads": head or None,
        "log.level": log_level,
        "log.format": log_format,
    }
    options: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    options |= listener_options(read_settings(config, overrides), host, port, websocket_port)
    settings = read_settings(config, overrides, options)

    import uvloop

    from tidegate import log
    from tidegate.node import serve
    from tidegate.settings import misspelt_variables

    log.configure(settings.log.level, settings.log.format)
    for name, right in misspelt_variables(os.environ).items():
        logging.getLogger("tidegate.settings").warning(
            "environment variable ignored", extra={"variable": name, "hint": f"did you mean {right}?"}
        )
    port_fallback = port is None and not names_a_port(config, overrides)

    def reload() -> "Settings":
        """SIGHUP: the same sources again, and the options this process was started with still win."""
        fresh = read_settings(config, overrides, options)
        log.configure(fresh.log.level, fresh.log.format)
        return fresh

    account = Account(console_username, console_password_file)
    try:
        listener = choose_listener(settings, account) if console else 0
        status = uvloop.run(
            serve(
                settings,
                port_fallback=port_fallback,
                reload=reload,
                beside=beside(console_port, listener, account) if console else None,
            )
        )
    except TidegateError as error:
        report(error)
        status = ExitStatus.STARTUP
    raise typer.Exit(status)


def listener_options(
    settings: "Settings", host: str | None, port: int | None, websocket_port: int | None
) -> dict[str, object]:
    """`--host`, `--port` and `--websocket-port` as keys of the listeners they mean.

    They change the first listener of their kind; if the file names none, they add one.
    """
    options: dict[str, object] = {}
    free = len(settings.listeners)

    def place(type: str, values: dict[str, object]) -> None:
        nonlocal free
        index = next((at for at, listener in enumerate(settings.listeners) if listener.type == type), free)
        if index == free:
            free += 1
            values = {"type": type} | values
        options.update(
            {f"listeners.{index}.{key}": value for key, value in values.items() if value is not None}
        )

    if host is not None or port is not None:
        place("tcp", {"host": host, "port": port})
    if websocket_port is not None:
        place("ws", {"host": host, "port": websocket_port})
    return options
