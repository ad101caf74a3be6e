"""What happens at the node is on the page soon: with many publishers, after a restart, when a console hangs."""

import json
import os
import re
import signal
import time
from contextlib import ExitStack

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Console, OpenPage, StartConsole, say, until
from tests.integration.broker.gate_traffic import publish
from tidegate.broker.settings import Features
from tidegate.console.feed import GROUPS, PUBLISHERS
from tidegate.console.watch import ALL_PUBLISHERS, PULSE
from tidegate.mqtt import Publish
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

MANY = 10_000
SOON = 2.0  # seconds from the event to the page


def expect_past(page: Page, words: str) -> None:
    """What was calm before is not said to be calm now, and numbers look like what they are."""
    expect(page.locator(".notes")).to_contain_text(re.compile(rf"{words} \d\d:\d\d:\d\d"))
    expect(page.locator(".notes .good")).to_have_count(0)
    expect(page.locator(".tiles.past")).to_have_count(1)
    # A page that is opened now knows it, too.
    page.evaluate("location.hash = '#/cluster'")
    expect(page.locator("#title")).to_have_text("Cluster")
    page.evaluate("location.hash = '#/overview'")
    expect(page.locator(".notes")).to_contain_text(words)
    expect(page.locator(".tiles.past")).to_have_count(1)


@pytest.mark.serial
def test_a_new_client_and_its_messages_are_seen_within_two_seconds(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    page = open_page(start_console(tidegate_broker))
    connections = page.locator("[data-tile=connections] .value")
    expect(connections).to_have_text("1")  # the console itself
    page.locator("[data-tile=in] .value", has_text="0").wait_for()
    with RawClient(tidegate_broker.port) as client:
        client.connect("meter")
        began = time.monotonic()
        client.send_bytes(b"".join(publish(number) for number in range(500)))
        expect(page.locator("[data-tile=in] .value")).to_have_text(re.compile(r"^[1-9]\d\d"))
        expect(connections).to_have_text("2")
        assert time.monotonic() - began < SOON


def test_a_restart_of_the_node_is_survived_and_the_page_goes_on(
    start_console: StartConsole, open_page: OpenPage
) -> None:
    with BrokerThread(name="first") as broker:
        port = broker.port
        console = start_console(broker)
        page = open_page(console)
        expect(page.locator(".node .name")).to_have_text("first")
    expect(page.locator("#banner")).to_contain_text("The node cannot be reached")
    expect(page.locator("#node .badge")).to_have_text("not connected")
    expect_past(page, "Not connected since")
    with BrokerThread(name="second", port=port) as broker, RawClient(port) as client:
        broker.operator_socket()  # where the console was before
        client.connect("meter")
        client.publish("t", b"1", qos=1)
        expect(page.locator(".node .name")).to_have_text("second")
        expect(page.locator("#banner")).to_be_hidden()
        expect(page.locator("[data-tile=connections] .value")).to_have_text("2")
        expect(page.locator(".notes")).not_to_contain_text("since")
        expect(page.locator(".tiles.past")).to_have_count(0)
        page.goto(f"{console.url}/#/publishers")
        expect(page.locator(".vrow", has_text="meter")).to_be_visible()


def test_the_page_says_that_the_console_is_gone_and_goes_on_with_the_next(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    console = Console(tidegate_broker.port)
    page = open_page(console)
    expect(page.locator("#node .badge")).to_have_text(re.compile("load"))
    console.stop()
    expect(page.locator("#banner")).to_contain_text("The console does not answer")
    expect_past(page, "The console does not answer since")
    again = start_console(tidegate_broker, "--http-port", console.port)
    assert again.port == console.port
    expect(page.locator("#banner")).to_be_hidden()
    expect(page.locator("[data-tile=connections] .value")).to_have_text("1")
    expect(page.locator(".notes")).to_contain_text("Nothing stands out")


def test_a_console_that_hangs_harms_nobody(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    console = start_console(tidegate_broker)
    page = open_page(console, "publishers")
    page.locator(".vtable").wait_for()
    with RawClient(tidegate_broker.port) as meter, RawClient(tidegate_broker.port) as reader:
        meter.connect("meter")
        reader.connect("reader")
        reader.subscribe("t", qos=1)
        os.kill(console.process.pid, signal.SIGSTOP)
        try:
            for number in range(100):
                meter.publish("t", b"%d" % number, qos=1)
                reader.acknowledge(message := reader.take(Publish))
                assert message.payload == b"%d" % number
        finally:
            os.kill(console.process.pid, signal.SIGCONT)
        expect(page.locator(".vrow", has_text="meter")).to_be_visible()


def test_nobody_looking_costs_the_node_one_small_report_a_second(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    def asked() -> set[str]:
        def look() -> set[str]:
            sessions = tidegate_broker.broker.core.sessions.values()
            kept = [each for session in sessions for each in session.subscriptions.values()]
            return {each.topic_filter.decode() for each in kept}

        return tidegate_broker.call(look)

    console = start_console(tidegate_broker)
    page = open_page(console, "publishers")
    until(lambda: {PUBLISHERS, ALL_PUBLISHERS} <= asked())
    page.goto(f"{console.url}/#/overview")
    until(lambda: GROUPS in asked() and ALL_PUBLISHERS not in asked())
    assert PUBLISHERS in asked()
    page.goto("about:blank")
    until(lambda: not any("tide/publishers" in each or "tide/groups" in each for each in asked()))
    assert any("tide/pulse" in each for each in asked())


def test_the_clock_of_the_nodes_machine_does_not_matter(
    start_console: StartConsole, open_page: OpenPage
) -> None:
    with BrokerThread(features=Features(sys_interval=0)) as broker:
        page = open_page(start_console(broker))
        for count in (7, 8):
            say(broker, PULSE, {"at": time.time() - 3_600, "uptime": float(count), "connections": count})
            expect(page.locator("[data-tile=connections] .value")).to_have_text(str(count))
        expect(page.locator("#banner")).to_be_hidden(timeout=1)
        # Nothing more comes: that is told all the same.
        expect(page.locator("#banner")).to_contain_text("The node has said nothing for some seconds")
        expect_past(page, "The node has said nothing since")


def many_publishers(broker: BrokerThread, round_number: int) -> None:
    """Pages as a node with ten thousand publishers sends them."""

    def row(number: int) -> dict[str, object]:
        state = "held" if number == 4_321 else "normal"
        return {
            "client": f"meter-{number:05d}", "user": None, "address": "10.0.0.1:5000",
            "rate": number / 7 + round_number, "trained_rate": number / 7, "dispersion": 1.0, "state": state,
            "hold": 0.5 if state == "held" else 0,
            "rank": number + 1, "class": None, "pinned": None, "excused": 0, "held_bytes": 0,
        }  # fmt: skip

    def send() -> None:
        pages = [list(range(at, at + 250)) for at in range(0, MANY, 250)]
        for at, numbers in enumerate(pages):
            document = {"at": time.time(), "round": round_number, "page": at, "pages": len(pages)}
            payload = json.dumps(document | {"rows": [row(number) for number in numbers]}).encode()
            broker.broker.publish("$SYS/tide/publishers/all", payload)

    broker.call(send)


@pytest.mark.serial
def test_ten_thousand_publishers_do_not_stall_the_table(
    start_console: StartConsole, open_page: OpenPage
) -> None:
    with BrokerThread(features=Features(sys_interval=0)) as broker:
        console = start_console(broker)
        page = open_page(console, "publishers")
        page.locator(".vtable").wait_for()

        def is_asked_for() -> bool:
            route = broker.broker.core.index.route(b"$SYS/tide/publishers/all")
            return bool(route.targets)

        until(lambda: broker.call(is_asked_for))
        many_publishers(broker, 1)
        page.locator("[role=table][aria-rowcount='10001']").wait_for()
        expect(page.locator(".vrow").first).to_contain_text("meter-04321")  # held, so on top
        page.get_by_role("button", name="Rate", exact=True).click()
        expect(page.locator(".vrow").first).to_contain_text("meter-09999")
        page.evaluate(
            """() => {
              window.worst = 0;
              let last = performance.now();
              const look = (now) => {
                window.worst = Math.max(window.worst, now - last);
                last = now;
                requestAnimationFrame(look);
              };
              requestAnimationFrame(look);
            }"""
        )
        scroller = page.locator(".vbody")
        for share in (0.1, 0.5, 0.9, 1.0):
            scroller.evaluate(f"(each) => {{ each.scrollTop = each.scrollHeight * {share}; }}")
            many_publishers(broker, round(share * 100))
            page.wait_for_timeout(300)
        expect(page.locator(".vrow").last).to_contain_text("meter-00000")
        assert page.locator(".vrow").count() < 60
        assert page.evaluate("window.worst") < 500


def test_publishers_come_and_go(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    page = open_page(start_console(tidegate_broker), "publishers")
    with ExitStack() as stack:
        client = stack.enter_context(RawClient(tidegate_broker.port))
        client.connect("meter-7")
        client.publish("t", b"1", qos=1)
        expect(page.locator(".vrow", has_text="meter-7")).to_be_visible()
    expect(page.locator(".vrow", has_text="meter-7")).to_have_count(0)
