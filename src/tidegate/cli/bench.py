"""`tidegate bench`: put a stated load on any MQTT broker and see what it costs."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.status import ExitStatus
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from tidegate.load import Result


class NobodyListensError(TidegateError):
    """There is no broker to measure."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"cannot connect to {host}:{port}: nobody listens there")
        self.hint = "start the broker (tidegate serve), or correct --host and --port"


def command(
    mode: Annotated[
        str,
        typer.Argument(
            metavar="MODE", help="pairs, fanout, fanin, shared, trickle, idle (needs --pid) or hold."
        ),
    ] = "pairs",
    host: Annotated[str, typer.Option(help="Address of the broker.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port of the broker.")] = 1883,
    pid: Annotated[
        int | None, typer.Option(min=1, help="The broker's process, if it runs here: measures its CPU time.")
    ] = None,
    qos: Annotated[int | None, typer.Option(min=0, max=2, help="QoS of messages and subscriptions.")] = None,
    protocol: Annotated[
        int | None, typer.Option(min=4, max=5, help="4 is MQTT 3.1.1 (default; shared: 5).")
    ] = None,
    publishers: Annotated[int | None, typer.Option(min=1, help="How many clients publish.")] = None,
    subscribers: Annotated[
        int | None, typer.Option(min=1, help="How many clients subscribe, or are held.")
    ] = None,
    payload: Annotated[int, typer.Option(metavar="BYTES", help="Size of a message.")] = 64,
    seconds: Annotated[float | None, typer.Option(help="How long to measure.")] = None,
    warmup: Annotated[float, typer.Option(help="Seconds of load before that.")] = 1.0,
    window: Annotated[
        int | None, typer.Option(help="Messages sent and not yet received, per publisher.")
    ] = None,
    inflight: Annotated[
        int | None, typer.Option(help="Unacknowledged messages of a publisher at QoS 1 and 2.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="trickle: messages a second and publisher.")] = None,
    connect_rate: Annotated[
        float | None, typer.Option(help="New connections a second, 0 for no limit. Default 1500.")
    ] = None,
    keep_alive: Annotated[int | None, typer.Option(help="hold: keep-alive of the clients, seconds.")] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Clients are called tb-NAME-…, so that the broker knows them again. Default: by chance."),
    ] = None,
    username: Annotated[str | None, typer.Option(help="User name of all clients.")] = None,
    password: Annotated[
        str | None, typer.Option(envvar="TIDEGATE_BENCH_PASSWORD", help="Password of all clients.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for stdout.")
    ] = None,
) -> None:
    """Measure a broker: messages a second, latency, drops, and its CPU time per message with --pid.

    Every message is counted. Exits with 1 if one was lost or came twice, or if a client was lost.
    """
    from tidegate.load import ConnectionRefused, run

    try:
        result = run(
            mode=mode,
            host=host,
            port=port,
            pid=pid,
            progress=lambda line: typer.echo(f"{mode}: {line}", err=True),
            qos=qos,
            protocol=protocol,
            publishers=publishers,
            subscribers=subscribers,
            payload_bytes=payload,
            seconds=seconds,
            warmup=warmup,
            window=window,
            inflight=inflight,
            rate=rate,
            connect_rate=connect_rate,
            keep_alive=keep_alive,
            name=name,
            username=username,
            password=password,
        )
    except ConnectionRefused as error:
        # The load tool names the first of its many clients; nobody there is a fault of the address.
        if "ECONNREFUSED" in str(error):
            raise NobodyListensError(host, port) from error
        raise
    text = json.dumps(result.as_dict(), indent=2)
    if json_file is not None and str(json_file) == "-":
        typer.echo(text)
    else:
        if json_file is not None:
            json_file.write_text(text + "\n", encoding="utf-8")
        _print_table(result)
    if not result.is_exact:
        raise typer.Exit(ExitStatus.FAILURE)


def rows(result: "Result") -> list[tuple[str, str]]:
    """What a reader wants to see, as names and values; what the mode does not measure is left out."""
    described = f"{result.publishers} to {result.subscribers} clients, QoS {result.qos}, MQTT " + (
        "5" if result.protocol == 5 else "3.1.1"
    )
    known: list[tuple[str, str | None]] = [
        ("load", described),
        ("messages a second", f"{result.messages_per_second:,.0f}" if result.delivered else None),
        ("latency, median", _number(result.latency_p50_ms, "{:.3f} ms")),
        ("latency, 99 %", _number(result.latency_p99_ms, "{:.3f} ms")),
        ("broker CPU a message", _number(result.broker_cpu_us_per_message, "{:.2f} µs")),
        ("broker CPU", _number(result.broker_cpu_share, "{:.1%} of a core")),
        ("this tool's CPU", f"{result.tool_cpu_share:.1%} of a core"),
        ("connections a second", _number(result.connects_per_second, "{:,.0f}")),
        ("memory a connection", _number(result.pss_bytes_per_connection, "{:,.0f} bytes")),
        ("received of expected", f"{result.received:,} of {result.expected:,}" if result.expected else None),
        ("lost", f"{result.drops:,}"),
        ("repeated", f"{result.repeats:,}"),
        ("refused", f"{result.refused:,}"),
        ("clients lost", f"{result.disconnects:,}"),
        ("pings answered", _number(result.pings, "{:,}")),
        ("pings unanswered", _number(result.unanswered_pings, "{:,}")),
        ("sent late", _number(result.late_sends, "{:,}")),
        ("window", f"{result.settings['window']} a publisher" if result.delivered else None),
    ]
    return [(name, value) for name, value in known if value is not None]


def _number(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)


def _print_table(result: "Result") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"tidegate bench {result.mode}", show_header=False)
    table.add_column("what")
    table.add_column("value", justify="right")
    for name, value in rows(result):
        table.add_row(name, value)
    # A pipe has no width: the table must not be wrapped by somebody's idea of 80 columns.
    width = None if sys.stdout.isatty() else 100
    Console(width=width, no_color=bool(os.environ.get("NO_COLOR")) or None).print(table)
