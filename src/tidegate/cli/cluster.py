"""`tidegate cluster`: a head and its edges, to run on one machine and to look at."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.client_options import Password, PasswordFile, Username, secret
from tidegate.cli.options import Overrides
from tidegate.cli.status import ExitStatus, report

if TYPE_CHECKING:
    from typing import Any

    from tidegate.cli.cluster_orders import Login
    from tidegate.cluster.local import LocalCluster

app = typer.Typer(
    no_args_is_help=True, help="Run a cluster on this machine, or look at one.", rich_markup_mode=None
)

Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="Any node of the cluster, where clients connect: host:port.")
]


@app.command("up")
def up_command(
    edges: Annotated[int, typer.Option(min=1, max=64, help="Edges beside the head.")] = 2,
    heads: Annotated[
        int, typer.Option(min=1, max=8, help="Heads; the second takes over when the first dies.")
    ] = 1,
    port: Annotated[
        int,
        typer.Option(
            min=0,
            max=65_000,
            help="The head's port; other heads, edges and last the heads' links have the next ones. 0: free ones.",
        ),
    ] = 1883,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep sessions here, one folder a node. Default: in memory."),
    ] = None,
    is_left: Annotated[
        bool, typer.Option("--no-restart", help="Leave a node that ended by itself as it is.")
    ] = False,
    overrides: Overrides = None,
) -> None:
    """Start a head and its edges, one process each, and stop them all on Ctrl-C.

    Publishers connect to the head, subscribers to any edge; a message reaches both. A node that ends by itself is
    started again, at most 5 times a minute.
    """
    from tidegate.cluster.local import ClusterError, LocalCluster

    _stop_by_signal()
    try:
        with LocalCluster(
            edges=edges, heads=heads, port=port, host=host, data=data, settings=overrides or (), is_bound=True
        ) as cluster:
            for node in cluster.nodes:
                typer.echo(f"{node.name} {node.addresses[0]} pid {node.pid}")
            typer.echo("cluster ready")
            _watch(cluster, restarts=not is_left)
    except ClusterError as error:
        report(error)
        raise typer.Exit(error.status) from None


def _stop_by_signal() -> None:
    """The first signal to end is a Ctrl-C, also that of a terminal that is closed; others do not disturb the stop."""
    import signal

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # it is under nohup
        numbers.append(signal.SIGHUP)

    def stop(*_: object) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in numbers:
        signal.signal(number, stop)


def _watch(cluster: "LocalCluster", *, restarts: bool) -> None:
    """Until Ctrl-C, or no node is left."""
    import time
    from contextlib import suppress

    from tidegate.cluster.supervision import Supervisor

    def say(text: str) -> None:
        with suppress(OSError):  # the terminal may be gone
            typer.echo(text, err=True)

    supervisor = Supervisor(cluster.nodes, say, restarts=restarts)
    try:
        while not supervisor.is_over:
            time.sleep(0.2)
            supervisor.look()
    except KeyboardInterrupt:
        say("stopping")
    else:
        say("error: no node is left")
        raise typer.Exit(ExitStatus.FAILURE)


@app.command("status")
def status_command(
    address: Address = "127.0.0.1:1883",
    head: Annotated[str, typer.Option("--head", metavar="ADDRESS", help="The same as ADDRESS.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines instead of a table.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 5.0,
    username: Username = None,
    password: Password = None,
    password_file: PasswordFile = None,
) -> None:
    """How every node of a cluster is, as its head sees it; `head` is the one that an edge is linked with."""
    import asyncio
    import json

    address = head or address
    login = (username, secret(username, password, password_file))
    nodes = asyncio.run(_nodes(address, timeout, login))
    if not nodes:
        typer.echo(f"error: {address} says nothing about a cluster", err=True)
        typer.echo("hint: is it a head or an edge? `tidegate serve --role head`", err=True)
        raise typer.Exit(ExitStatus.FAILURE)
    if as_json:
        for _, node in sorted(nodes.items()):
            typer.echo(json.dumps(node, sort_keys=True))
        return
    for line in status_lines(nodes):
        typer.echo(line)


STATUS_COLUMNS = (
    "name", "role", "address", "head", "linked", "drain", "clients", "subscriptions", "queued_messages", "load"
)  # fmt: skip
LATEST_COLUMNS = ("clients", "subscriptions", "queued_messages", "load")
"""What nobody knows of a node whose link is away."""


def status_lines(nodes: "dict[str, dict[str, Any]]") -> list[str]:
    """A table, one line a node."""

    def cell(node: "dict[str, Any]", column: str) -> str:
        is_known = column not in LATEST_COLUMNS or node.get("linked", True)
        return str(node.get(column, "")) if is_known else "–"

    rows = [list(STATUS_COLUMNS)]
    rows += [[cell(node, column) for column in STATUS_COLUMNS] for _, node in sorted(nodes.items())]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


async def _nodes(address: str, timeout: float, login: "Login") -> "dict[str, dict[str, Any]]":
    """What is retained about the cluster; of an edge, what its head told it."""
    import asyncio
    import json

    from tidegate.cli.cluster_orders import connected

    found: dict[str, dict[str, Any]] = {}
    async with connected(address, login) as client:
        await client.subscribe("$SYS/cluster/+")
        try:
            async with asyncio.timeout(timeout):
                async for message in client.messages:
                    value = json.loads(message.payload)
                    name = message.topic.rpartition("/")[2]
                    if name == "balancing":
                        continue  # no node
                    found |= value if name == "nodes" else {name: value}
                    # A node that is away may have counted fewer than there are now.
                    wanted = max(
                        (node.get("nodes", 0) for node in found.values() if node.get("linked", True)), default=0
                    )
                    if wanted and len(found) >= wanted:
                        break
        except TimeoutError:
            pass  # what has come is what there is
    return found


Node = Annotated[
    str, typer.Argument(metavar="NODE", help="Name of the edge, as `tidegate cluster status` shows it.")
]
Head = Annotated[str, typer.Option("--head", metavar="ADDRESS", help="The head, where clients connect.")]


@app.command("plan")
def plan_command(
    node: Node,
    head: Head = "127.0.0.1:1883",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 15.0,
    username: Username = None,
    password: Password = None,
    password_file: PasswordFile = None,
) -> None:
    """Where the clients of an edge would go if it were drained. Nothing is done."""
    import asyncio

    from tidegate.cli.cluster_orders import order

    login = (username, secret(username, password, password_file))
    found = asyncio.run(order(head, "plan", node, f"$SYS/cluster/plan/{node}", timeout, login))
    _require(found, node)
    _refuse(found["reason"])
    for target, count in sorted(found["targets"].items()):
        typer.echo(f"{count} clients to {target}")
    if found["stay"]:
        typer.echo(f"{found['stay']} clients stay: MQTT 3.1.1, without a session to hand over, or with a will due")
    if not found["targets"]:
        typer.echo("nobody would move")


@app.command("drain")
def drain_command(
    node: Node,
    head: Head = "127.0.0.1:1883",
    is_resumed: Annotated[
        bool, typer.Option("--stop", help="Stop a drain, or let the edge take clients again after one.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1.0, help="Seconds to wait for the end.")] = 600.0,
    username: Username = None,
    password: Password = None,
    password_file: PasswordFile = None,
) -> None:
    """Move every client that can be moved from an edge to others, losing nothing; new ones go elsewhere."""
    import asyncio

    from tidegate.cli.cluster_orders import order

    what = "resume" if is_resumed else "drain"
    login = (username, secret(username, password, password_file))
    found = asyncio.run(order(head, what, node, f"$SYS/cluster/drain/{node}", timeout, login))
    _require(found, node)
    if found["state"] != "refused":
        typer.echo(f"{found['state']}: {found['moved']} moved, {found['failed']} failed, {found['stay']} stay")
    _refuse(found["reason"])
    if found["failed"]:
        raise typer.Exit(ExitStatus.FAILURE)


@app.command("balance")
def balance_command(
    state: Annotated[str, typer.Argument(metavar="on|off", help="off: nothing is moved for load's sake.")],
    head: Head = "127.0.0.1:1883",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 5.0,
    username: Username = None,
    password: Password = None,
    password_file: PasswordFile = None,
) -> None:
    """Stop moving clients between edges, for example while somebody measures, or go on with it."""
    import asyncio

    from tidegate.cli.cluster_orders import order

    if state not in ("on", "off"):
        raise typer.BadParameter("say on or off")
    login = (username, secret(username, password, password_file))
    found = asyncio.run(order(head, "balance", state, "$SYS/cluster/balancing", timeout, login))
    _require(found, "balancing")
    typer.echo(f"balancing is {'on' if found['is_on'] else 'off'}, policy {found['policy']}")


def _require(found: "dict[str, Any]", node: str) -> None:
    if not found:
        typer.echo(f"error: no answer about {node}", err=True)
        typer.echo(
            "hint: name the head with --head and an edge that `tidegate cluster status` lists", err=True
        )
        raise typer.Exit(ExitStatus.FAILURE)


def _refuse(reason: str) -> None:
    """The head says why it did not do it."""
    if reason:
        typer.echo(f"error: {reason}", err=True)
        raise typer.Exit(ExitStatus.FAILURE)
