"""What an operator does from the page reaches the node; who is none, or says no when asked, changes nothing."""

import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Console, OpenPage, StartConsole, is_held, say, until
from tidegate.mqtt import Publish
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient


def confirm(page: Page, button: str) -> None:
    page.locator("dialog:not(.sheet) footer").get_by_role("button", name=button, exact=True).click()


def open_publisher(page: Page, name: str) -> None:
    page.locator(".vrow", has_text=name).click()
    page.locator("dialog.sheet").wait_for()


def test_a_held_publisher_is_released_after_a_question(
    busy_node: BrokerThread, busy_console: Console, open_page: OpenPage
) -> None:
    page = open_page(busy_console, "publishers")
    open_publisher(page, "camera")
    page.get_by_role("button", name="Release").click()
    confirm(page, "Cancel")
    assert is_held(busy_node, "camera")
    page.get_by_role("button", name="Release").click()
    confirm(page, "Release")
    expect(page.locator(".toast")).to_contain_text("camera is released")
    assert not is_held(busy_node, "camera")
    expect(page.locator(".vrow", has_text="camera")).to_contain_text("released")


def test_a_publisher_is_put_into_a_class(busy_console: Console, open_page: OpenPage) -> None:
    page = open_page(busy_console, "publishers")
    open_publisher(page, "meter-3")
    page.get_by_role("button", name="Set class").click()
    page.locator("dialog select").select_option("bulk")
    confirm(page, "Set class")
    expect(page.locator(".toast")).to_contain_text("meter-3 is served as bulk")
    expect(page.locator(".vrow", has_text="meter-3")).to_contain_text("bulk")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)


@pytest.mark.parametrize(
    "button, topic, words",
    [("Plan", "plan", "was asked for"), ("Drain", "drain", "edge0 is being drained")],
)
def test_an_edge_is_drained_by_an_order_to_the_head(
    tidegate_broker: BrokerThread,
    start_console: StartConsole,
    open_page: OpenPage,
    button: str,
    topic: str,
    words: str,
) -> None:
    state = {"role": "edge", "clients": 7, "load": "LOW", "linked": True, "address": "h:1"}
    say(tidegate_broker, "$SYS/cluster/edge0", {"name": "edge0"} | state)
    with RawClient(tidegate_broker.port) as head:
        head.connect("head")
        head.subscribe("$tide/cluster/#", qos=1)
        page = open_page(start_console(tidegate_broker), "cluster")
        page.get_by_role("button", name=button).click()
        if button == "Drain":
            confirm(page, "Drain")
        message = head.take(Publish)
        assert (message.topic, message.payload) == (f"$tide/cluster/{topic}", b"edge0")
        expect(page.locator(".toast")).to_contain_text(words)


def test_a_viewer_sees_no_buttons_and_is_refused(
    busy_node: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    page = open_page(start_console(busy_node, "--read-only"), "publishers")
    open_publisher(page, "meter-1")
    expect(page.locator("dialog.sheet")).to_contain_text("Actions need the operator role")
    expect(page.get_by_role("button", name="Set class")).to_have_count(0)
    status, answer = page.evaluate(
        """async () => {
          const session = await (await fetch("/api/session")).json();
          const answer = await fetch("/api/actions/pin", {
            method: "POST", headers: { "Content-Type": "application/json", "X-Tidegate-Token": session.token },
            body: JSON.stringify({ client: "meter-1", band: "bulk" }),
          });
          return [answer.status, await answer.json()];
        }"""
    )
    assert status == 403
    assert "may look, and not act" in answer["error"]
    assert busy_node.call(lambda: "meter-1" not in {name for name, _ in busy_node.broker.core.pins})


def test_an_action_that_the_node_refuses_says_why(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    with RawClient(tidegate_broker.port) as meter:
        meter.connect("meter")
        meter.publish("t", b"1", qos=1)
        page = open_page(start_console(tidegate_broker), "publishers")
        open_publisher(page, "meter")
        meter.disconnect()
        until(lambda: "meter" not in tidegate_broker.call(lambda: dict(tidegate_broker.broker.core.sessions)))
        page.get_by_role("button", name="Release").click()
        confirm(page, "Release")
        expect(page.locator(".toast.bad")).to_contain_text("no publisher of this name is connected")


def test_the_toast_of_an_order_without_rights_names_the_right(
    open_page: OpenPage, start_console: StartConsole
) -> None:
    from tests.integration.broker.test_operating import Operators
    from tidegate.broker.hooks import Hooks

    with BrokerThread(hooks=Hooks(authoriser=Operators())) as broker, RawClient(broker.port) as meter:
        meter.connect("meter")
        meter.publish("t", b"1", qos=1)
        page = open_page(start_console(broker), "publishers")
        open_publisher(page, "meter")
        page.get_by_role("button", name="Release").click()
        confirm(page, "Release")
        expect(page.locator(".toast.bad")).to_contain_text("topic write $tide/control/#")
