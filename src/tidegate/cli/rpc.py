"""`tidegate rpc`: the parts of the RPC backbone as programs, and tools to look at what they do."""

import json
import time
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tidegate.cli.rpc_options import Common, serve
from tidegate.cli.status import ExitStatus

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Call devices behind gateways: routers, workers, gateways, and tools. Options that say where the backbone is "
    "stand in front of the command: tidegate rpc --url mqtt://broker router",
)


@app.callback()
def _common(
    context: typer.Context,
    url: Annotated[
        str, typer.Option("--url", "-L", envvar="TIDEGATE_URL", help="The MQTT broker of the gateways.")
    ] = "mqtt://localhost",
    backend: Annotated[
        str, typer.Option(envvar="TIDEGATE_RPC_BACKEND", help="mqtt, or rabbitmq+redis.")
    ] = "mqtt",
    amqp: Annotated[
        str, typer.Option(envvar="TIDEGATE_RPC_AMQP", help="RabbitMQ, with rabbitmq+redis.")
    ] = "amqp://guest:guest@localhost/",
    redis: Annotated[
        str, typer.Option(envvar="TIDEGATE_RPC_REDIS", help="Redis, with rabbitmq+redis.")
    ] = "redis://localhost",
    namespace: Annotated[
        str, typer.Option(help="Backbones of different names do not see each other.")
    ] = "main",
    types: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Device types, TOML. Default: shelf labels.")
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Signs correlations; so does the variable TIDEGATE_RPC_SECRET."),
    ] = None,
    default_gateway: Annotated[str, typer.Option(help="For devices without a route. Default: refuse.")] = "",
    window: Annotated[
        int, typer.Option(min=1, help="Unanswered requests a router may have at a gateway.")
    ] = 1000,
    username: Annotated[str | None, typer.Option(envvar="TIDEGATE_USERNAME", help="At the broker.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its password; or the variable TIDEGATE_PASSWORD.")
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the hops of requests there.")
    ] = None,
    trace_sample: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of requests traced.")] = 1.0,
) -> None:
    context.obj = Common(
        url=url,
        backend=backend,
        amqp=amqp,
        redis=redis,
        namespace=namespace,
        types=types,
        secret_file=secret_file,
        default_gateway=default_gateway,
        window=window,
        username=username,
        password_file=password_file,
        trace=trace,
        trace_sample=trace_sample,
    )


@app.command("router")
def router(
    context: typer.Context,
    role: Annotated[
        Literal["both", "forward", "back"], typer.Option(help="Requests to gateways, replies to callers.")
    ] = "both",
    replicas: Annotated[int, typer.Option(min=1, max=1000, help="Routers of each role in this process.")] = 1,
    cpu: Annotated[
        float, typer.Option(min=0.0, help="Processors one router may use, for experiments; 0: no limit.")
    ] = 0.0,
    name: Annotated[str, typer.Option(help="Of the first; default: made up.")] = "",
) -> None:
    """Route requests to gateways and replies to callers. Start as many as you like, anywhere."""
    from tidegate.rpc import BackRouter, ForwardRouter
    from tidegate.rpc.budget import Budget
    from tidegate.rpc.options import new_name
    from tidegate.rpc.reporting import report

    common: Common = context.obj
    options, types = common.options(), common.device_types()

    async def make(stack: AsyncExitStack, files: ExitStack) -> list[Any]:
        observer = common.observer(files, name or new_name("router"))
        waits: list[Any] = []
        forwards = []
        for number in range(replicas):
            own = f"{name}-{number}" if name else ""
            if role != "forward":
                budget = Budget(cpu) if cpu else None
                back = BackRouter(options, types, name=own and f"{own}b", observer=observer, budget=budget)
                waits.append((await stack.enter_async_context(back)).wait_closed())
            if role != "back":
                budget = Budget(cpu) if cpu else None
                forward = ForwardRouter(
                    options, types, name=own and f"{own}f", observer=observer, budget=budget
                )
                waits.append((await stack.enter_async_context(forward)).wait_closed())
                forwards.append(forward)
        if forwards:
            waits.append(report(options, forwards))
        return waits

    count = f"{replicas} " if replicas > 1 else ""
    serve(f"routing: {count}{role if role != 'both' else 'forward and back'}", make)


@app.command("worker")
def worker(
    context: typer.Context,
    application: Annotated[
        str,
        typer.Option("--app", metavar="MODULE:NAME", help="A dict of coroutine functions by kind of task."),
    ] = "tidegate.rpc.tasks:HANDLERS",
    concurrency: Annotated[int, typer.Option(min=1, max=10_000, help="Tasks at a time.")] = 50,
    silence: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds without an answer after which a call is sent again; 0: never."),
    ] = 2.0,
) -> None:
    """Take tasks and do them. Without --app, tasks of the kind `calls` call devices: {"calls": [{"device": …}]}."""
    from tidegate.rpc import Retry, TaskWorker
    from tidegate.rpc.options import new_name
    from tidegate.rpc.tasks import load_handlers

    common: Common = context.obj
    handlers = load_handlers(application)
    options, types = common.options(), common.device_types()

    async def make(stack: AsyncExitStack, files: ExitStack) -> list[Any]:
        observer = common.observer(files, new_name("worker"))
        call_retry = Retry(attempts=20, silence=silence or None)
        part = TaskWorker(
            options, handlers, types, concurrency=concurrency, call_retry=call_retry, observer=observer
        )
        return [(await stack.enter_async_context(part)).wait_closed()]

    serve(f"working: {', '.join(sorted(handlers))}", make)


@app.command("gateway")
def gateway(
    context: typer.Context,
    gateways: Annotated[
        list[str] | None, typer.Argument(metavar="[GATEWAY]...", help="Names; default 000000000000.")
    ] = None,
    count: Annotated[int, typer.Option(min=0, max=10_000, help="So many, named gw0, gw1 and so on.")] = 0,
    devices: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Devices that advertise, so that they get routes.")
    ] = 0,
    latency: Annotated[float, typer.Option(min=0.0, help="Seconds a device takes.")] = 0.0,
    jitter: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share by which that varies.")] = 0.0,
    loss: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of requests that vanish.")] = 0.0,
    nack: Annotated[float, typer.Option(min=0.0, max=1.0, help="Share of requests a device refuses.")] = 0.0,
    noise: Annotated[float, typer.Option(min=0.0, help="dB by which what is heard varies.")] = 4.0,
    speed: Annotated[float, typer.Option(min=0.0, help="Metres a second at which devices move.")] = 0.0,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What devices remember when this process dies.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
) -> None:
    """Emulate gateways with devices behind them: latency, loss, NACK, and radio that moves and fades."""
    from random import Random

    from tidegate.rpc import Behaviour, Emulator
    from tidegate.rpc.options import new_name
    from tidegate.rpc.radio import Field

    common: Common = context.obj
    names = [*(gateways or []), *(f"gw{number}" for number in range(count))] or ["000000000000"]
    behaviour = Behaviour(latency=latency, jitter=jitter, loss=loss, nack=nack)
    field = None
    if devices:
        field = Field(names, 20.0 * len(names), 20.0, noise=noise, random=Random(seed))
        for number in range(devices):
            field.add(f"{number:012x}", speed=speed)
    kind = common.device_types()[0]

    async def make(stack: AsyncExitStack, files: ExitStack) -> list[Any]:
        observer = common.observer(files, new_name("gateways"))
        part = Emulator(
            common.options(), names, kind, behaviour, field=field, state=state, seed=seed, observer=observer
        )
        return [(await stack.enter_async_context(part)).wait_closed()]

    serve(f"emulating: {len(names)} gateways", make)


@app.command("routes")
def routes(
    context: typer.Context,
    rule: Annotated[str, typer.Option(help="aged, or thesis.")] = "aged",
    list_routes: Annotated[bool, typer.Option("--list", help="Print the routes and end.")] = False,
) -> None:
    """Keep routes from what gateways hear of devices; one of these for a backbone, a second one takes over."""
    from tidegate.cli.client_options import run
    from tidegate.rpc import RouteManager
    from tidegate.rpc.backends import make_store
    from tidegate.rpc.options import new_name

    common: Common = context.obj

    async def show() -> int:
        store = make_store(common.options(), new_name("show"))
        await store.open()
        for device, name in sorted((await store.routes()).items()):
            typer.echo(f"{device} {name}")
        await store.close()
        return 0

    if list_routes:
        raise typer.Exit(run(show()))

    async def make(stack: AsyncExitStack, _: ExitStack) -> list[Any]:
        part = RouteManager(common.options(), common.device_types(), rule=rule)
        return [(await stack.enter_async_context(part)).wait_closed()]

    serve(f"keeping routes: {rule} rule", make)


@app.command("keeper")
def keeper(context: typer.Context) -> None:
    """Keep leases and return addresses for devices that cannot echo; one of these, for the mqtt backend only."""
    from tidegate.rpc import Keeper

    common: Common = context.obj

    async def make(stack: AsyncExitStack, _: ExitStack) -> list[Any]:
        part = Keeper(common.options())
        await part.open()
        stack.push_async_callback(part.close)
        return [part.wait_closed()]

    serve("keeping", make)


@app.command("baseline")
def baseline(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="For HTTP; 0: a free one.")] = 8080,
    host: Annotated[str, typer.Option(help="To listen on.")] = "127.0.0.1",
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds until 504.")] = 60.0,
) -> None:
    """The thesis's router over HTTP, for comparison: POST /route. Two of them steal each other's replies."""
    from tidegate.rpc.baseline import HttpRouter

    common: Common = context.obj

    async def make(stack: AsyncExitStack, _: ExitStack) -> list[Any]:
        gateway_name = common.default_gateway or "000000000000"
        part = HttpRouter(common.options(), gateway=gateway_name, timeout=timeout, host=host, port=port)
        await stack.enter_async_context(part)
        typer.echo(f"http://{host}:{part.port}/route")
        return [part.wait_closed()]

    serve("routing over HTTP", make)


@app.command("call")
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
        with ExitStack() as files:
            observer = common.observer(files, f"call-{time.time_ns():x}")
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


@app.command("dispatch")
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
        async with Dispatcher(common.options()) as dispatcher:
            tracked = await dispatcher.submit(kind, content, deadline=deadline, priority=priority, id=id)
            result = await tracked
        reason = f" ({result.reason})" if result.reason else ""
        typer.echo(f"{result.id} {result.outcome}{reason}: {json.dumps(result.value)}")
        return ExitStatus.OK if result.is_ok else ExitStatus.FAILURE

    raise typer.Exit(run(work()))


@app.command("dead")
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
            for task in chosen:
                if action == "replay":
                    await dispatcher.replay(task.id, deadline=deadline)
                elif action == "drop":
                    await dispatcher.drop(task.id)
                if action == "show":
                    typer.echo(task.encode())
                else:
                    done = {"list": "", "replay": "replayed: ", "drop": "dropped: "}[action]
                    typer.echo(f"{done}{task.id} {task.kind} after {task.attempt} attempts: {task.reason}")
        if task_id and not chosen:
            typer.echo(f"error: no dead task {task_id!r}", err=True)
            typer.echo("hint: `tidegate rpc dead list` names them", err=True)
            return ExitStatus.FAILURE
        return ExitStatus.OK

    raise typer.Exit(run(work()))


@app.command("trace")
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


@app.command("autoscale")
def autoscale(
    context: typer.Context,
    minimum: Annotated[int, typer.Option("--min", min=0, help="Routers at least.")] = 1,
    maximum: Annotated[int, typer.Option("--max", min=1, help="Routers at most.")] = 20,
    utilisation: Annotated[float, typer.Option(help="Share of a router's time that should be in use.")] = 0.7,
    max_age: Annotated[
        float, typer.Option(help="Seconds a request may wait before there must be more.")
    ] = 1.0,
    cool_down: Annotated[float, typer.Option(help="Seconds of less load before there are fewer.")] = 30.0,
    cpu: Annotated[float, typer.Option(help="Processors of one router, for experiments; 0: no limit.")] = 0.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print what is decided.")] = False,
) -> None:
    """Start and stop router processes on this machine as the load asks for."""
    import sys

    from tidegate.cli.client_options import SIGTERM_STATUS, run
    from tidegate.rpc.autoscale import Sample, Scale
    from tidegate.rpc.scaler import Scaler

    common: Common = context.obj
    scale = Scale(
        minimum=minimum, maximum=maximum, utilisation=utilisation, max_age=max_age, cool_down=cool_down
    )
    command = [sys.executable, "-m", "tidegate", "rpc", *common.arguments(), "router"]
    if cpu:
        command += ["--cpu", str(cpu)]

    def told(sample: Sample, wanted: int) -> None:
        if not quiet:
            typer.echo(
                f"{sample.arrivals:8.0f}/s  {sample.cost * 1e3:6.2f} ms each  {sample.backlog:6} waiting  "
                f"oldest {sample.oldest:5.2f} s  {sample.replicas} -> {wanted} routers"
            )

    async def work() -> int:
        await Scaler(common.options(), scale, command, told=told).run()
        return 0

    status = run(work())
    raise typer.Exit(0 if status == SIGTERM_STATUS else status)
