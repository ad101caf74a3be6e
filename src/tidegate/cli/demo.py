"""`tidegate demo`: see in a minute what Tidegate does when things go wrong."""

from typing import Annotated

import typer

from tidegate.cli.console_beside import is_console_installed
from tidegate.cli.status import ExitStatus


def command(
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="For the node: 1883, or the next free one; 0: a free one.")
    ] = 1883,
    http_port: Annotated[
        int | None, typer.Option(min=0, max=65_535, help="For the console: 1888, or the next free one.")
    ] = None,
    sensors: Annotated[int, typer.Option(min=1, max=2_000, help="So many, one message a second each.")] = 200,
    once: Annotated[bool, typer.Option("--once", help="Tell the story once and end.")] = False,
    pace: Annotated[
        float, typer.Option(min=0.05, max=10, help="Times as long as usual for each step.")
    ] = 1.0,
    no_console: Annotated[bool, typer.Option("--no-console", help="Without the web page.")] = False,
) -> None:
    """Start a node and let things go wrong; the console shows how the node answers, the terminal what to look at.

    Sensors, a crew with a slow worker, a flood, calls to shelf labels through an RPC gateway, and a small cluster
    whose head moves subscribers in a burst. Everything runs on this machine, keeps nothing, and ends with Ctrl-C.
    """
    import signal

    from tidegate.demo.story import Stage, tell

    has_console = not no_console and is_console_installed()
    if not has_console and not no_console:
        typer.echo(
            "the web page needs more: pip install 'tidegate[console]'; watch with tidegate top", err=True
        )

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
        signal.signal(signal.SIGHUP, end)
    stage = Stage(
        say=lambda line: print(line, flush=True),
        sensors=sensors,
        port=port,
        http_port=http_port,
        has_console=has_console,
        scale=pace,
    )
    try:
        tell(stage, is_endless=not once)
    except KeyboardInterrupt:
        raise typer.Exit(ExitStatus.OK) from None
