"""`tidegate clients`: orders to a running node about one of its clients."""

import json
from typing import Annotated, Any

import typer

from tidegate.cli import client_options as options
from tidegate.cli.status import ExitStatus
from tidegate.errors import TidegateError
from tidegate.mqtt.codes import ReasonCode


class NoOrdersError(TidegateError):
    """The server took the order for a message like any other."""


app = typer.Typer(
    no_args_is_help=True,
    help="Tell a running node what to do about a client: let it go on, serve it before others, end its session.",
    rich_markup_mode=None,
)

ClientName = Annotated[str, typer.Argument(metavar="CLIENT", help="Its client identifier.")]


@app.command("release")
@options.with_server(has_will=False)
def release_command(
    client: ClientName,
    server: options.Server,
    seconds: Annotated[float, typer.Option(min=0, help="How long it is not held again.")] = 60.0,
) -> None:
    """Let a held publisher go on.

    Orders need no right from the user who runs the node, on its machine; others must be allowed to write
    $tide/control/# by the node's rights file.
    """
    _order(server, "release", {"client": client, "seconds": seconds})
    typer.echo(f"{client} is released, and not held again for {seconds:g} s")


@app.command("class")
@options.with_server(has_will=False)
def class_command(
    client: ClientName,
    band: Annotated[str, typer.Argument(metavar="CLASS", help="urgent, normal, bulk; rate: by its rate, as others.")],
    server: options.Server,
) -> None:
    """Serve a publisher in a class of its own, also when it comes back, until the node stops."""
    _order(server, "pin", {"client": client, "band": None if band == "rate" else band})
    typer.echo(f"{client} is served {'by its rate' if band == 'rate' else f'as {band}'}")


@app.command("end")
@options.with_server(has_will=False)
def end_command(client: ClientName, server: options.Server) -> None:
    """Disconnect a client and drop its session with all that waits for it. Its name is free then for any account."""
    _order(server, "end", {"client": client})
    typer.echo(f"the session of {client} is over")


def _order(server: options.Server, name: str, order: dict[str, Any]) -> None:
    async def work() -> int:
        async with server.as_operator().client(reconnect=False) as client:
            answer = await client.publish(f"$tide/control/{name}", json.dumps(order), qos=1)
        if answer.reason_code == ReasonCode.NO_MATCHING_SUBSCRIBERS:
            raise NoOrdersError(f"{client.endpoint} takes no orders: it is no Tidegate node, or an old one")
        return ExitStatus.OK

    try:
        status = options.run(work())
    except TidegateError as error:
        status = options.report_refusal(error, server.username)
    if status:
        raise typer.Exit(status)
