"""`tidegate rpc`: the parts of the RPC backbone as programs, and tools to look at what they do."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from tidegate.cli import rpc_tools
from tidegate.cli.rpc_options import Common, serve

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
    telemetry: Annotated[
        bool, typer.Option("--telemetry", help="Announce every hop, for tidegate rpc record.")
    ] = False,
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
        telemetry=telemetry,
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
    from tidegate.rpc.budget import Budget, Overhead
    from tidegate.rpc.forward import PREFETCH
    from tidegate.rpc.options import new_name
    from tidegate.rpc.reporting import report

    common: Common = context.obj
    options, types = common.options(), common.device_types()

    async def make(stack: AsyncExitStack) -> list[Any]:
        observer = await common.observer(stack, name or new_name("router"))
        waits: list[Any] = []
        forwards: list[ForwardRouter] = []
        budgets: list[Budget] = []
        for number in range(replicas):
            own = f"{name}-{number}" if name else ""
            if role != "forward":
                budget = make_budget(budgets)
                back = BackRouter(options, types, name=own and f"{own}b", observer=observer, budget=budget)
                waits.append((await stack.enter_async_context(back)).wait_closed())
            if role != "back":
                budget = make_budget(budgets)
                forward = ForwardRouter(
                    options,
                    types,
                    name=own and f"{own}f",
                    observer=observer,
                    budget=budget,
                    # What a slow one holds waits for it, and not for those that are started because of it.
                    prefetch=max(2, round(PREFETCH * (cpu or 1.0))),
                )
                waits.append((await stack.enter_async_context(forward)).wait_closed())
                forwards.append(forward)
        if forwards:
            waits.append(report(options, forwards, budgets))
        return waits

    overhead = Overhead()

    def make_budget(budgets: list[Budget]) -> Budget | None:
        if not cpu:
            return None
        budgets.append(Budget(cpu, overhead))
        return budgets[-1]

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

    async def make(stack: AsyncExitStack) -> list[Any]:
        observer = await common.observer(stack, new_name("worker"))
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

    async def make(stack: AsyncExitStack) -> list[Any]:
        observer = await common.observer(stack, new_name("gateways"))
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

    async def make(stack: AsyncExitStack) -> list[Any]:
        observer = await common.observer(stack, new_name("routes"))
        part = RouteManager(common.options(), common.device_types(), rule=rule, observer=observer)
        return [(await stack.enter_async_context(part)).wait_closed()]

    serve(f"keeping routes: {rule} rule", make)


@app.command("keeper")
def keeper(context: typer.Context) -> None:
    """Keep leases and return addresses for devices that cannot echo; one of these, for the mqtt backend only."""
    from tidegate.rpc import Keeper

    common: Common = context.obj

    async def make(stack: AsyncExitStack) -> list[Any]:
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

    async def make(stack: AsyncExitStack) -> list[Any]:
        gateway_name = common.default_gateway or "000000000000"
        part = HttpRouter(common.options(), gateway=gateway_name, timeout=timeout, host=host, port=port)
        await stack.enter_async_context(part)
        typer.echo(f"http://{host}:{part.port}/route")
        return [part.wait_closed()]

    serve("routing over HTTP", make)


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
        environment = common.environment()
        scaler = Scaler(
            common.options(), scale, command, environment=environment, speed=cpu or 1.0, told=told
        )
        await scaler.run()
        return 0

    status = run(work())
    raise typer.Exit(0 if status == SIGTERM_STATUS else status)


for _tool in (rpc_tools.call, rpc_tools.dispatch, rpc_tools.dead, rpc_tools.trace, rpc_tools.record):
    app.command(_tool.__name__)(_tool)
