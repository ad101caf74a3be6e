"""Pages about parts of Tidegate that may not be installed: each against the real thing, or left out without it."""

import asyncio
import importlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import DEADLINE, Console, OpenPage, StartConsole
from tests.console.test_actions import confirm
from tidegate.console.rooms import find_room
from tidegate.demo.processes import Program
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient


def needs(room: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_room(room) is None, reason=f"tidegate.{room} is not installed")


@contextmanager
def running(name: str, *arguments: str, ready: str) -> Iterator[Program]:
    program = Program(name, arguments)
    try:
        program.wait_line(lambda line: ready in line)
        yield program
    finally:
        program.stop()


def write_policies(folder: Path) -> Any:
    """v1 and v2, which is current, and v3; the rate of `meter` is another one in each."""
    pa = importlib.import_module("pyarrow")
    schema = importlib.import_module("tidegate.lake.arrow").arrow_schema(
        importlib.import_module("tidegate.schema").POLICY_TABLES["baselines"]
    )
    now = datetime.now(UTC)

    def column(field: Any, rate: float) -> Any:
        if field.name in ("client_id", "rate"):
            return pa.array(["meter"] if field.name == "client_id" else [rate], field.type)
        if field.nullable:
            return pa.nulls(1, field.type)
        is_list, is_time = pa.types.is_list(field.type), pa.types.is_timestamp(field.type)
        plain = "" if pa.types.is_string(field.type) else 1
        return pa.array([[] if is_list else now if is_time else plain], field.type)

    store = importlib.import_module("tidegate.policy").PolicyStore(folder)
    for number in (1, 2, 3):
        table = pa.table([column(field, number * 10.0) for field in schema], schema=schema)
        period = {"input_from": now - timedelta(hours=1), "input_to": now}
        store.write({"baselines": table}, version=f"v{number}", **period)
    store.activate("v1")
    store.activate("v2")
    return store


@needs("policy")
def test_a_policy_is_compared_applied_and_rolled_back(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    store = write_policies(tmp_path)
    page = open_page(start_console(tidegate_broker, "--policy", tmp_path), "policy")
    changed = page.locator(".panel", has_text="What changed")
    expect(changed.locator("tr", has_text="meter")).to_contain_text("1020")  # 10, then 20
    page.locator("tr", has_text="v3").get_by_role("button", name="Apply").click()
    confirm(page, "Apply")
    expect(page.locator(".toast")).to_contain_text("v3 is current")
    assert store.current() == "v3"
    page.get_by_role("button", name="Roll back").click()
    confirm(page, "Roll back")
    expect(page.locator(".toast", has_text="v2 is current again")).to_be_visible()
    assert store.current() == "v2"


@needs("lake.catalog")
def test_the_lake_is_shown_without_any_reports(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(start_console(tidegate_broker, "--lake", tmp_path), "reports")
    expect(page.locator(".panel", has_text="No folder of reports was named")).to_be_visible()
    expect(page.get_by_role("region", name="Tables of the lake")).to_be_attached()


@needs("rpc.recording")
def test_calls_are_shown_hop_by_hop_and_dead_tasks_are_replayed(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    url = f"mqtt://127.0.0.1:{tidegate_broker.port}"
    common = ("tidegate", "rpc", "--url", url, "--telemetry", "--default-gateway", "gw0")
    with ExitStack() as stack:
        stack.enter_context(running("gateway", *common, "gateway", "--count", "1", ready="emulating"))
        stack.enter_context(running("router", *common, "router", ready="routing"))
        console = start_console(tidegate_broker)
        page = open_page(console, "rpc")
        page.locator(".empty").first.wait_for()
        stack.enter_context(running("shop", "tidegate.demo.shop", url, ready="ready"))
        expect(page.locator(".badge", has_text="ack")).to_be_visible()
        expect(page.locator("tr", has_text="the whole call").locator("td").nth(2)).to_contain_text("ms")
        bury(url)
        row = page.locator("tr", has_text="task-13")
        expect(row).to_contain_text("its deadline was over")
        row.get_by_role("button", name="Replay").click()
        confirm(page, "Replay")
        expect(page.locator(".toast.bad")).to_contain_text("nobody serves the queue")
        stack.enter_context(running("worker", *common, "worker", ready="working"))
        row.get_by_role("button", name="Replay").click()
        confirm(page, "Replay")
        expect(page.locator(".toast", has_text="task-13 is on the queue again")).to_be_visible()
        expect(row).to_have_count(0)


@needs("rpc.recording")
def test_a_dead_task_is_dropped_from_the_page(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    bury(f"mqtt://127.0.0.1:{tidegate_broker.port}")
    page = open_page(start_console(tidegate_broker), "rpc")
    row = page.locator("tr", has_text="task-13")
    row.get_by_role("button", name="Drop").click()
    confirm(page, "Drop")
    expect(page.locator(".toast", has_text="task-13 is gone")).to_be_visible()
    expect(row).to_have_count(0)


RUBBISH = {
    "telemetry/hops": (
        b'[[1.0, "reply", ["x"], "d", "p"]]',
        b'[[1e20, "reply", "x", "d", "p"]]',
        b'[[1e400, "reply", "x", "d", "p"]]',
        b'[[1.0, "reply", "x", "d", "p", "g", "ack", 1, {}, []]]',
        b"[" * 100_000,
    ),
    "dead/tasks/letter-1": (b"[" * 100_000, b'{"id": [], "created": NaN, "attempt": 1e400, "reason": {}}'),
}


@needs("rpc.recording")
def test_rubbish_does_not_cost_the_console_its_node(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    page = open_page(start_console(tidegate_broker), "rpc")
    page.locator(".empty").first.wait_for()
    with RawClient(tidegate_broker.port) as stranger:
        stranger.connect("stranger")
        for kind, payloads in RUBBISH.items():
            for payload in payloads:
                stranger.publish(f"tide/rpc/main/{kind}", payload, qos=1, retain=kind.startswith("dead"))
        expect(page.locator("tr", has_text="letter-1")).to_be_visible()
        stranger.publish("tide/rpc/main/dead/tasks/letter-1", b"", qos=1, retain=True)
        expect(page.locator("tr", has_text="letter-1")).to_have_count(0)


def bury(url: str) -> None:
    """A worker takes a task that is too late, buries it, and goes.

    In a thread: the browser's loop counts as running in ours.
    """
    rpc, messages = importlib.import_module("tidegate.rpc"), importlib.import_module("tidegate.rpc.messages")
    make_queue = importlib.import_module("tidegate.rpc.backends").make_queue
    handlers = importlib.import_module("tidegate.rpc.tasks").HANDLERS
    options = rpc.Options(url=url)
    task = messages.Task(id="task-13", kind="calls", body={"calls": []}, created=1.7e9, deadline=1.7e9 + 5)

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


@needs("space.serve")
def test_a_space_tells_its_version_size_and_load(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    url = f"mqtt://127.0.0.1:{tidegate_broker.port}"
    with running("space", "tidegate", "space", "serve", "--space", "home", "--url", url, ready="space ready"):
        page = open_page(start_console(tidegate_broker, "--space", "home"), "spaces")
        facts = page.locator(".panel", has_text="home").locator("dl")
        expect(facts).to_contain_text("Triples0")
        expect(facts).to_contain_text("requests a second")


@needs("cluster.local")
def test_a_real_edge_is_drained_from_the_page(open_page: OpenPage) -> None:
    local = importlib.import_module("tidegate.cluster.local")
    with ExitStack() as stack:
        cluster = stack.enter_context(local.LocalCluster(edges=2))
        url = cluster.head.addresses[0]
        stack.enter_context(running("crowd", "tidegate.demo.crowd", url, "10", ready="ready"))
        console = Console(int(url.rpartition(":")[2]))
        stack.callback(console.stop)
        page = open_page(console, "cluster")
        expect(page.locator("svg.map .box")).to_have_count(3)
        wait_clients(page, 10)
        page.locator("tr", has_text="edge0").get_by_role("button", name="Drain").click()
        confirm(page, "Drain")
        expect(page.locator(".log")).to_contain_text("drain of edge0: done")
        expect(page.locator("tr", has_text="edge1").locator("td").nth(4)).to_have_text("10")


def wait_clients(page: Page, count: int) -> None:
    """Until the edges have so many together."""
    from tests.console.conftest import until

    def together() -> int:
        cells = page.locator("tbody tr:has-text('edge') td:nth-child(5)").all_inner_texts()
        return sum(int(cell) for cell in cells if cell.isdecimal())

    until(lambda: together() == count)
