"""Pages about parts of Tidegate that may not be installed: each against the real thing, or left out without it."""

import re
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.console.conftest import Console, OpenPage, StartConsole, until
from tests.console.scenery import bury, running, start_cluster, update_space, write_policies
from tests.console.test_actions import confirm
from tidegate.client import operators_way
from tidegate.console.rooms import find_room
from tidegate.demo.burst import SCREENS
from tidegate.mqtt import Publish
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient


def needs(room: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_room(room) is None, reason=f"tidegate.{room} is not installed")


@needs("policy")
def test_a_policy_is_compared_applied_and_rolled_back(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    store = write_policies(tmp_path, *({"meter": number * 10.0} for number in (1, 2, 3)))
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


@needs("policy")
def test_the_policy_page_says_what_changed_also_after_going_back_to_the_first(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    store = write_policies(tmp_path, *({"meter": number * 10.0} for number in (1, 2, 3)))
    page = open_page(start_console(tidegate_broker, "--policy", tmp_path), "policy")
    changed = page.locator(".panel", has_text="What changed")
    for _ in range(2):
        expect(changed.locator("tr", has_text="meter")).to_contain_text("1020")
        store.rollback()
        expect(changed).to_contain_text("This is the first snapshot in force")
        expect(changed.locator("tr")).to_have_count(0)
        store.activate("v2")
    expect(changed.locator("tr", has_text="meter")).to_contain_text("1020")


@needs("policy")
def test_a_comparison_that_fails_late_does_not_disturb_the_next(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    store = write_policies(tmp_path, *({"meter": number * 10.0} for number in (1, 2, 3)))
    page = open_page(start_console(tidegate_broker, "--policy", tmp_path), "overview")
    asked: list[Route] = []
    looks: list[str] = []

    def hold_the_first(route: Route) -> None:
        asked.append(route)
        if len(asked) > 1:
            route.continue_()

    page.route("**/api/policy/diff?*", hold_the_first)
    page.on("request", lambda request: looks.append(request.url) if request.url.endswith("/policy") else None)
    page.evaluate("location.hash = '#/policy'")
    until(lambda: page.evaluate("1") == 1 and len(asked) == 1)
    store.activate("v3")
    changed = page.locator(".panel", has_text="What changed")
    expect(changed).to_contain_text("v2 to v3")
    asked[0].abort()
    looks.clear()
    until(lambda: page.evaluate("1") == 1 and len(looks) == 3)
    expect(changed).to_contain_text("v2 to v3")
    assert len(asked) == 2


@needs("policy")
def test_a_folder_of_policies_that_makes_no_sense_is_told_and_the_page_goes_on(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    store = write_policies(tmp_path, *({"meter": number * 10.0} for number in (1, 2, 3)))
    pointer = next(path for path in tmp_path.iterdir() if path.is_file() and path.read_text() == "v2\n")
    pointer.write_text("../elsewhere\n")
    page = open_page(start_console(tidegate_broker, "--policy", tmp_path), "policy")
    expect(page.locator(".empty")).to_contain_text(pointer.name)
    pointer.write_text("v2\n")
    expect(page.locator(".panel", has_text="In force").locator("b")).to_have_text("v2")
    expect(page.locator(".empty")).to_be_hidden()
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


@needs("space.serve")
def test_a_space_tells_its_version_size_and_load_and_counts_only_after_a_change(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    url = f"mqtt://127.0.0.1:{tidegate_broker.port}"
    asked: list[str] = []

    def count(kind: str) -> int:
        asked.extend(each.payload.decode() for each in listener.barrier() if isinstance(each, Publish))
        return sum(kind in each for each in asked)

    with (
        running("space", "tidegate", "space", "serve", "--space", "home", "--url", url, ready="space ready"),
        RawClient(tidegate_broker.port) as listener,
    ):
        listener.connect("listener")
        listener.subscribe("tide/space/home/query")
        page = open_page(start_console(tidegate_broker, "--space", "home"), "spaces")
        facts = page.locator(".panel", has_text="home").locator("dl")
        expect(facts).to_contain_text("Triples0")
        expect(facts).to_contain_text("requests a second")
        until(lambda: count("ASK") >= 3)
        assert count("COUNT") == 1
        update_space(url, "home", 7)
        expect(facts).to_contain_text("Triples7")
        assert count("COUNT") == 2


@needs("space.serve")
def test_a_space_that_hangs_does_not_hold_up_the_others_on_the_page(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    url = f"mqtt://127.0.0.1:{tidegate_broker.port}"
    asked: list[str] = []

    def asks_of(name: str) -> int:
        publishes = [each for each in hung.barrier() if isinstance(each, Publish)]
        asked.extend(each.topic for each in publishes if each.payload.startswith(b"ASK"))
        return asked.count(f"tide/space/{name}/query")

    with (
        running("space", "tidegate", "space", "serve", "--space", "home", "--url", url, ready="space ready"),
        RawClient(tidegate_broker.port) as hung,
    ):
        hung.connect("hung")
        hung.subscribe("tide/space/+/query", qos=0)
        open_page(start_console(tidegate_broker, "--space", "hung", "--space", "home"), "spaces")
        until(lambda: asks_of("hung") == 3)  # each takes the console's whole patience
        assert asked.count("tide/space/home/query") > 3


@needs("cluster.local")
def test_a_real_cluster_is_balanced_and_an_edge_drained_and_resumed_on_the_page(open_page: OpenPage) -> None:
    with ExitStack() as stack:
        url, crowd = start_cluster(stack)
        console = Console(Path(operators_way(url).removeprefix("unix:")))
        stack.callback(console.stop)
        page = open_page(console, "cluster")
        expect(page.locator("svg.map .box")).to_have_count(3)
        wait_clients(page, SCREENS)
        crowd.order("burst")
        plans = page.locator(".panel", has_text="Plans, drains and balancing")
        expect(plans).to_contain_text("was in trouble (")
        expect(plans.locator("li").first).to_have_text(
            re.compile(r"^\d+ clients of news/\d from edge\d to edge\d$")
        )
        expect(page.locator(".log")).to_contain_text(re.compile(r"edge\d is in trouble \(\w+\): \d+ clients of news/"))
        crowd.order("calm")
        edge0 = page.get_by_role("region", name="Nodes").locator("tr", has_text="edge0")
        edge0.get_by_role("button", name="Drain").click()
        confirm(page, "Drain")
        expect(page.locator(".log")).to_contain_text("drain of edge0: done")
        expect(edge0.locator("td").nth(4)).to_have_text("0")
        edge0.get_by_role("button", name="Take clients again").click()
        confirm(page, "Take clients again")
        expect(page.locator(".toast", has_text="edge0 takes clients again")).to_be_visible()
        expect(edge0.get_by_role("button", name="Drain")).to_be_visible()


def wait_clients(page: Page, count: int) -> None:
    """Until the edges have so many together."""

    def together() -> int:
        cells = page.locator("tbody tr:has-text('edge') td:nth-child(5)").all_inner_texts()
        return sum(int(cell) for cell in cells if cell.isdecimal())

    until(lambda: together() == count)
