"""Everything that fills the console's pages, as real programs: a plant, a flood, calls, a space, policies, a cluster.

For tests and for `make pictures`; nothing here is made up but the numbers in the policy snapshots.
"""

import asyncio
import importlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tidegate.demo.burst import BUDGET, LOOK, SCREENS
from tidegate.demo.crowd import UPLINK
from tidegate.demo.processes import Program

DEADLINE = 30.0
ROOT = Path(__file__).resolve().parents[2]
SENSORS = 40
RPC = ("--telemetry", "--default-gateway", "gw0")
TRIPLES = "PREFIX p: <http://plant.example/> INSERT DATA {{ {} }}"


@contextmanager
def running(name: str, *arguments: str, ready: str) -> Iterator[Program]:
    program = Program(name, arguments)
    try:
        program.wait_line(lambda line: ready in line, DEADLINE)
        yield program
    finally:
        program.stop()


def write_policies(folder: Path, *snapshots: Mapping[str, float]) -> Any:
    """v1, v2 and so on, each with the rates of some publishers; the last but one is current, after the first."""
    pa = importlib.import_module("pyarrow")
    schema = importlib.import_module("tidegate.lake.arrow").arrow_schema(
        importlib.import_module("tidegate.schema").POLICY_TABLES["baselines"]
    )
    now = datetime.now(UTC)

    def column(field: Any, rates: Mapping[str, float]) -> Any:
        if field.name in ("client_id", "rate"):
            return pa.array(list(rates) if field.name == "client_id" else list(rates.values()), field.type)
        if field.nullable:
            return pa.nulls(len(rates), field.type)
        is_list, is_time = pa.types.is_list(field.type), pa.types.is_timestamp(field.type)
        # As steady as a machine is: with a wide spread the node would take a flood for a habit.
        plain: Any = "" if pa.types.is_string(field.type) else 0.05 if field.name == "dispersion" else 1
        return pa.array([[] if is_list else now if is_time else plain] * len(rates), field.type)

    store = importlib.import_module("tidegate.policy").PolicyStore(folder)
    for number, rates in enumerate(snapshots, 1):
        table = pa.table([column(field, rates) for field in schema], schema=schema)
        period = {"input_from": now - timedelta(hours=25 - number), "input_to": now - timedelta(hours=1)}
        store.write({"baselines": table}, version=f"v{number}", **period)
    store.activate("v1")
    if len(snapshots) > 2:
        store.activate(f"v{len(snapshots) - 1}")
    return store


def bury(url: str) -> None:
    """A worker takes a task that is too late, buries it, and goes.

    In a thread: the browser's loop counts as running in ours.
    """
    rpc, messages = importlib.import_module("tidegate.rpc"), importlib.import_module("tidegate.rpc.messages")
    make_queue = importlib.import_module("tidegate.rpc.backends").make_queue
    handlers = importlib.import_module("tidegate.rpc.tasks").HANDLERS
    options = rpc.Options(url=url)
    made = time.time() - 60
    task = messages.Task(id="task-13", kind="calls", body={"calls": []}, created=made, deadline=made + 5)

    async def work() -> None:
        queue = make_queue(options, "shop")
        await queue.open()
        async with asyncio.timeout(DEADLINE), rpc.TaskWorker(options, handlers) as worker:
            await queue.put("tasks.normal", task.encode(), deadline=None)
            while not await queue.dead("tasks"):
                await asyncio.sleep(0.02)
            assert worker.counters["buried"] == 1
        await queue.close()

    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, work()).result()


def update_space(url: str, space: str, count: int, start: int = 0) -> None:
    """So many triples more."""
    data = " ".join(f"p:tank{each} p:level {each % 90} ." for each in range(start, start + count))
    command = [sys.executable, "-m", "tidegate", "space", "update", "--space", space, "--url", url]
    subprocess.run([*command, TRIPLES.format(data)], check=True, capture_output=True, timeout=DEADLINE)


def start_calls(stack: ExitStack, url: str) -> None:
    """Labels behind a gateway, a router, and a shop that sets prices."""
    common = ("tidegate", "rpc", "--url", url, *RPC)
    radio = ("--count", "1", "--latency", "0.02", "--jitter", "0.5")
    stack.enter_context(running("the gateway", *common, "gateway", *radio, ready="emulating"))
    stack.enter_context(running("the router", *common, "router", ready="routing"))
    stack.enter_context(running("the shop", "tidegate.demo.shop", url, ready="ready"))


def start_cluster(stack: ExitStack) -> tuple[str, Program]:
    """A head and two edges of small uplinks: its address, and the crowd, which takes `burst` as an order."""
    settings = (f"cluster.uplink={UPLINK:g}", f"cluster.budgets=news/#={BUDGET:g}", f"cluster.interval={LOOK:g}")
    local = importlib.import_module("tidegate.cluster.local")
    cluster = stack.enter_context(local.LocalCluster(edges=2, settings=settings))
    url = str(cluster.head.addresses[0])
    return url, stack.enter_context(running("the crowd", "tidegate.demo.crowd", url, str(SCREENS), ready="ready"))


class Plant:
    """A node with all that its pages show, but a cluster; `flood` and `slow` are what happens there."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.policy, self.lake = folder / "policy", folder / "lake"
        sensors = {f"sensor-{number:03d}": 1.0 for number in range(SENSORS)}
        cameras = {"camera-1": 10.0, "camera-2": 10.0}
        old = {name: rate / 2 if name < "sensor-004" else rate for name, rate in sensors.items()}
        write_policies(self.policy, old | {"old-gauge": 0.2}, sensors | cameras, sensors)
        # Whatever the load: a flood that nobody reads is so cheap that it may cause none.
        settings = ("name=harbour", "backoff.always=true", f"policy.path={self.policy}")
        settings += (f"lake.path={self.lake}", "lake.roll_seconds=2")
        serve = ["tidegate", "serve", "--port", "0", "--log-level", "error"]
        serve += [part for each in settings for part in ("--set", each)]
        node = stack.enter_context(running("the node", *serve, ready="tidegate ready on"))
        self.url = "mqtt" + node.lines[0].partition("ready on mqtt")[2].partition(" ")[0]
        host, _, port = self.url.removeprefix("mqtt://").rpartition(":")
        self.port = int(port)
        plant = ("tidegate.demo.plant", self.url, str(SENSORS))
        self._plant = stack.enter_context(running("the plant", *plant, ready="ready"))
        flood = ("tidegate.demo.flood", host, port, "2")
        self._flood = stack.enter_context(running("the flood", *flood, ready="ready"))
        space = ("tidegate", "space", "serve", "--space", "home", "--url", self.url)
        stack.enter_context(running("the space", *space, ready="space ready"))
        update_space(self.url, "home", 250)
        start_calls(stack, self.url)
        bury(self.url)

    def options(self) -> list[str]:
        """Of a console that shows all of it."""
        return [
            *("--policy", str(self.policy), "--lake", str(self.lake), "--reports", str(ROOT / "results")),
            *("--space", "home"),
        ]

    def slow(self) -> None:
        self._plant.order("slow")

    def flood(self) -> None:
        self._flood.order("go")
