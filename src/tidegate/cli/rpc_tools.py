"""`tidegate rpc`, the tools: call a device, hand in a task, look at dead ones, at traces, and record calls."""

import json
import socket
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tidegate.cli.rpc_options import Common, serve
from tidegate.cli.status import ExitStatus

if TYPE_CHECKING:
    from tidegate.rpc import Dispatcher
    from tidegate.rpc.messages import Task
    from tidegate.rpc.telemetry import Sink


def call(
    context: typer.Context,
    device: Annotated[str, typer.Argument(metavar="DEVICE")],
    method: Annotated[str, typer.Argument(metavar="METHOD")],
    fields: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...")] = None,
    deadline: Annotated[float, typer.Option("--deadline", "-W", help="Seconds to wait.")] = 10.0,
    priority: Annotated[str, typer.Option(help="high, normal or low.")] = "normal",
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole result.")] = False,
) -> None:
    """Call one device and print the outcome; exits with 0 if the device did it."""
    from tidegate.cli.client_options import run
    from tidegate.rpc import Backbone, Retry

    common: Common = context.obj
    types = common.device_types()
    given = _fields(types, device, method, fields or [])

    async def work() -> int:
        async with AsyncExitStack() as stack:
            observer = await common.observer(stack, f"call-{time.time_ns():x}")
            # Until the deadline, whatever is away.
            retry = Retry(attempts=1000, longest=1.0)
            async with Backbone(common.options(), types, retry=retry, observer=observer) as backbone:
                result = await backbone.call(device, method, given, deadline=deadline, priority=priority)
        if as_json:
            typer.echo(json.dumps({name: getattr(result, name) for name in result.__slots__}))
        else:
            typer.echo(f"{result} after {result.seconds * 1e3:.0f} ms, request {result.request_id}")
        return ExitStatus.OK if result.is_ok else ExitStatus.FAILURE

    raise typer.Exit(run(work()))


def _fields(types: Any, device: str, method: str, texts: list[str]) -> dict[str, Any]:
    """NAME=VALUE as the types that were declared; what was not declared stays text, and is refused with a reason."""
    kinds = {}
    for each in types:
        if each.owns(device):
            kinds = {f.name: f.kind for m in each.methods if m.name == method for f in m.fields}
            break
    read: dict[str, Any] = {
        "integer": int,
        "number": float,
        "boolean": lambda text: {"true": True, "false": False}[text],
        "bytes": bytes.fromhex,
    }
    given: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise typer.BadParameter(f"field {text!r}: write NAME=VALUE")
        try:
            given[name] = read.get(kinds.get(name, ""), str)(value)
        except (ValueError, KeyError):
            raise typer.BadParameter(f"field {name} is {kinds[name]}, not {value!r}") from None
    return given


def dispatch(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(metavar="KIND", help="Which of the workers' coroutines.")],
    body: Annotated[str, typer.Argument(metavar="JSON", help="What it is given, an object.")],
    deadline: Annotated[float, typer.Option("--deadline", "-W", help="Seconds to wait.")] = 180.0,
    priority: Annotated[str, typer.Option(help="high, normal or low.")] = "normal",
    id: Annotated[str, typer.Option(help="The same id is the same task to devices.")] = "",
) -> None:
    """Put a task on the queue, wait for its end and print what the worker returned."""
    from tidegate.cli.client_options import run
    from tidegate.rpc import Dispatcher

    common: Common = context.obj
    try:
        content = json.loads(body)
        if not isinstance(content, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise typer.BadParameter(f"{body!r}: {error}", param_hint="JSON") from None

    async def work() -> int:
        async with AsyncExitStack() as stack:
            observer = await common.observer(stack, f"dispatch-{time.time_ns():x}")
            dispatcher = await stack.enter_async_context(Dispatcher(common.options(), observer=observer))
            tracked = await dispatcher.submit(kind, content, deadline=deadline, priority=priority, id=id)
            result = await tracked
        reason = f" ({result.reason})" if result.reason else ""
        typer.echo(f"{result.id} {result.outcome}{reason}: {json.dumps(result.value)}")
        return ExitStatus.OK if result.is_ok else ExitStatus.FAILURE

    raise typer.Exit(run(work()))


def dead(
    context: typer.Context,
    action: Annotated[
        Literal["list", "show", "replay", "drop"], typer.Argument(help="What to do with dead tasks.")
    ] = "list",
    task_id: Annotated[str, typer.Argument(metavar="[TASK]", help="Which one; `all` for all.")] = "",
    deadline: Annotated[float, typer.Option(help="Seconds a replayed task has.")] = 180.0,
) -> None:
    """Look at tasks that failed for good, do them again, or drop them."""
    from tidegate.cli.client_options import run
    from tidegate.rpc import Dispatcher

    common: Common = context.obj
    if action != "list" and not task_id:
        raise typer.BadParameter("which task? `tidegate rpc dead list` names them", param_hint="TASK")

    async def work() -> int:
        async with Dispatcher(common.options()) as dispatcher:
            tasks = await dispatcher.dead()
            chosen = [task for task in tasks if task_id in ("", "all", task.id)]
            done = await _deal(dispatcher, action, task_id, chosen, deadline)
        for task in chosen:
            if action == "show":
                typer.echo(task.encode())
                continue
            word = ""
            if action != "list":
                word = {"replay": "replayed: ", "drop": "dropped: "}[action] if task.id in done else "left: "
            typer.echo(f"{word}{task.id} {task.kind} after {task.attempt} attempts: {task.reason}")
        if action in ("replay", "drop") and chosen and not done:
            typer.echo(
                f"error: no dead task could be {'replayed' if action == 'replay' else 'dropped'}", err=True
            )
            typer.echo("hint: what cannot be read can only be dropped", err=True)
            return ExitStatus.FAILURE
        if task_id and not chosen:
            typer.echo(f"error: no dead task {task_id!r}", err=True)
            typer.echo("hint: `tidegate rpc dead list` names them", err=True)
            return ExitStatus.FAILURE
        return ExitStatus.OK

    raise typer.Exit(run(work()))


async def _deal(
    dispatcher: "Dispatcher", action: str, task_id: str, chosen: "list[Task]", deadline: float
) -> set[str]:
    """Replay or drop; gives the ids of those it was done to."""
    if action == "replay" and task_id == "all":
        return {task.id for task in await dispatcher.replay_all(deadline=deadline)}
    if action == "drop" and task_id == "all":
        return {task.id for task in await dispatcher.drop_all()}
    if action == "replay":
        return {task_id} if chosen and await dispatcher.replay(task_id, deadline=deadline) else set()
    if action == "drop":
        return {task_id} if chosen and await dispatcher.drop(task_id) else set()
    return set()


def trace(
    request_id: Annotated[
        str, typer.Argument(metavar="ID", help="Of a request, or the beginning; or a task's.")
    ],
    folder: Annotated[Path, typer.Option("--from", metavar="DIR", help="Where the parts write: --trace.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the event record.")] = False,
) -> None:
    """Show where a request was, and for how long."""
    from tidegate.rpc.trace import find

    found = find(folder, request_id)
    if as_json:
        typer.echo(json.dumps(found.record()))
        return
    typer.echo(f"request {found.key}, {found.seconds * 1e3:.1f} ms")
    began = before = found.hops[0].at
    for hop in found.hops:
        typer.echo(
            f"{(hop.at - began) * 1e3:10.2f} ms  +{(hop.at - before) * 1e3:8.2f}  {hop.step:<10} {hop.part:<24} "
            f"{hop.device} {hop.gateway} {hop.outcome}".rstrip()
        )
        before = hop.at


def record(
    context: typer.Context,
    lake: Annotated[
        str, typer.Option(metavar="PATH", help="Lake for tables rpc and beacon, as `lake.path` of a broker.")
    ] = "",
    folder: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Folder for rpc.jsonl and beacon.jsonl instead."),
    ] = None,
) -> None:
    """Write a row for every call and every advertisement of parts that were started with --telemetry."""
    from tidegate.rpc.recording import Collector, RowFiles

    common: Common = context.obj
    if bool(lake) == (folder is not None):
        raise typer.BadParameter("where to? give either --lake PATH or --to DIR", param_hint="--lake")

    async def make(stack: AsyncExitStack) -> list[Any]:
        sink = _lake(stack, lake) if folder is None else stack.enter_context(RowFiles(folder))
        part = await stack.enter_async_context(Collector(common.options(), sink))
        return [part.wait_closed()]

    serve("recording", make)


def _lake(stack: AsyncExitStack, path: str) -> "Sink":
    from tidegate.lake.errors import require_pyarrow

    require_pyarrow()
    from tidegate.lake.recorder import Recorder
    from tidegate.lake.settings import LakeSettings

    recorder = Recorder(LakeSettings(path=path), f"rpc-{socket.gethostname()}")
    stack.callback(recorder.close)
    return recorder
