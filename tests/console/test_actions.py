"""What an operator does from the page reaches the node; who is none, or says no when asked, changes nothing."""

from contextlib import ExitStack

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.console.conftest import Console, OpenPage, StartConsole, is_held, say, until
from tidegate.broker.settings import Features
from tidegate.console.feed import PUBLISHERS
from tidegate.mqtt import Publish
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient


def confirm(page: Page, button: str) -> None:
    page.locator("dialog:not(.sheet) footer").get_by_role("button", name=button, exact=True).click()


def open_publisher(page: Page, name: str) -> None:
    page.locator(".vrow", has_text=name).click()
    page.locator("dialog.sheet").wait_for()


def expect_in_sight(page: Page, words: str) -> None:
    """A note, and nothing over it: a dialog lies over all that is not in it, and takes its clicks."""
    note = page.locator(".toast", has_text=words)
    expect(note).to_be_visible()
    hit = """(note) => {
      const { left, top, width, height } = note.getBoundingClientRect();
      return document.elementFromPoint(left + width / 2, top + height / 2) === note;
    }"""
    assert note.evaluate(hit), f"{words!r} is hidden"


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
    expect_in_sight(page, "camera is released")
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
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
    [
        ("Plan", "plan", "was asked for"),
        ("Drain", "drain", "edge0 is being drained"),
        ("Take clients again", "resume", "edge0 takes clients again"),
    ],
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
    if topic == "resume":
        say(tidegate_broker, "$SYS/cluster/drain/edge0", {"node": "edge0", "state": "done", "moved": 7})
    with RawClient(tidegate_broker.port) as head:
        head.connect("head")
        head.subscribe("$tide/cluster/#", qos=1)
        page = open_page(start_console(tidegate_broker), "cluster")
        page.get_by_role("button", name=button).click()
        if button != "Plan":
            confirm(page, button)
        message = head.take(Publish)
        assert (message.topic, message.payload) == (f"$tide/cluster/{topic}", b"edge0")
        expect(page.locator(".toast")).to_contain_text(words)


def test_a_question_ends_with_the_page_that_asked_it(busy_console: Console, open_page: OpenPage) -> None:
    page = open_page(busy_console, "publishers")
    open_publisher(page, "meter-2")
    page.get_by_role("button", name="Set class").click()
    expect(page.locator("dialog[open]")).to_have_count(2)
    page.evaluate("location.hash = '#/groups'")
    expect(page.locator("#title")).to_have_text("Shared groups")
    expect(page.locator("dialog")).to_have_count(0)
    page.locator("nav a[data-page=overview]").click()  # nothing lies over the page
    expect(page.locator("#title")).to_have_text("Overview")


def test_the_details_of_a_publisher_are_live_wherever_its_row_is(
    busy_node: BrokerThread, busy_console: Console, open_page: OpenPage
) -> None:
    page = open_page(busy_console, "publishers")
    open_publisher(page, "meter-4")
    sheet = page.locator("dialog.sheet")
    expect(sheet.locator("dl")).to_contain_text("by its rate")
    page.get_by_label("Search publishers", exact=True).evaluate(
        "(each) => { each.value = 'camera'; each.dispatchEvent(new Event('input')); }"
    )
    expect(page.locator(".vrow")).to_have_count(1)
    sheet.get_by_role("button", name="Set class").focus()
    with RawClient(busy_node.operator_socket()) as other:
        other.connect("other")
        other.publish("$tide/control/pin", b'{"client": "meter-4", "band": "urgent"}', qos=1)
    expect(sheet.locator("dl")).to_contain_text("urgent, by an operator")
    focused = page.evaluate("document.activeElement.textContent")
    assert focused == "Set class"  # what changes takes nobody's place away


def test_the_details_of_a_publisher_that_is_gone_say_so(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    page = open_page(start_console(tidegate_broker), "publishers")
    with RawClient(tidegate_broker.port) as meter:
        meter.connect("meter")
        meter.publish("t", b"1", qos=1)
        open_publisher(page, "meter")
    expect(page.locator("dialog.sheet .badge")).to_have_text("gone")


def test_the_focus_stays_with_its_publisher_when_the_order_changes(
    start_console: StartConsole, open_page: OpenPage
) -> None:
    def tell(**rates: float) -> None:
        rows = [
            {"client": name, "rate": rate, "trained_rate": rate, "state": "normal"}
            for name, rate in rates.items()
        ]
        say(broker, PUBLISHERS, {"at": 1.0, "total": len(rows), "rows": rows}, retain=False)

    with BrokerThread(features=Features(sys_interval=0)) as broker:
        page = open_page(start_console(broker), "publishers")
        until(lambda: broker.call(lambda: bool(broker.broker.core.index.route(PUBLISHERS.encode()).targets)))
        tell(anna=3.0, bert=2.0, carl=1.0)
        expect(page.locator(".vrow > :first-child")).to_have_text(["anna", "bert", "carl"])
        page.locator(".vrow", has_text="bert").focus()
        tell(anna=3.0, bert=2.0, carl=9.0, dora=8.0)
        expect(page.locator(".vrow > :first-child")).to_have_text(["carl", "dora", "anna", "bert"])
        assert page.evaluate("document.activeElement.firstChild.textContent") == "bert"
        page.keyboard.press("Enter")
        expect(page.locator("dialog.sheet h2")).to_have_text("bert")
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
        tell(anna=3.0, carl=9.0, dora=8.0, emil=2.0)  # somebody else is where bert was
        expect(page.locator(".vrow > :first-child")).to_have_text(["carl", "dora", "anna", "emil"])
        expect(page.locator(".vbody")).to_be_focused()
        page.keyboard.press("Enter")
        page.keyboard.press("ArrowUp")
        expect(page.locator(".vrow", has_text="anna")).to_be_focused()
        expect(page.locator("dialog")).to_have_count(0)


def test_a_viewer_sees_no_buttons_and_is_refused(
    busy_node: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    page = open_page(start_console(busy_node, "--read-only"), "publishers")
    open_publisher(page, "meter-1")
    expect(page.locator("dialog.sheet")).to_contain_text(
        "Actions need the operator role: start the console without --read-only."
    )
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
        expect_in_sight(page, "no publisher of this name is connected")
        page.get_by_role("button", name="Close").click()
        expect(page.locator("dialog")).to_have_count(0)
        expect_in_sight(page, "no publisher of this name is connected")  # it stays when the dialog goes


def test_the_toast_of_an_order_without_rights_names_the_right(open_page: OpenPage) -> None:
    from tests.integration.broker.test_operating import Operators
    from tidegate.broker.hooks import Hooks

    with (
        ExitStack() as stack,
        BrokerThread(hooks=Hooks(authoriser=Operators())) as broker,
        RawClient(broker.port) as meter,
    ):
        meter.connect("meter")
        meter.publish("t", b"1", qos=1)
        console = Console(broker.port)
        stack.callback(console.stop)
        page = open_page(console, "publishers")
        open_publisher(page, "meter")
        page.get_by_role("button", name="Release").click()
        confirm(page, "Release")
        expect(page.locator(".toast.bad")).to_contain_text("topic write $tide/control/#")
