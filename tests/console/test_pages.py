"""Every page of the console in a real browser, against a real node: what it shows, and that everybody can use it."""

import re
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.console.conftest import Console, OpenPage, StartConsole, say, until
from tidegate.broker.settings import Features
from tidegate.mqtt.properties import Property
from tidegate.testing import BrokerThread
from tidegate.testing.raw import RawClient

PAGES = ("overview", "publishers", "groups", "cluster", "rpc", "spaces", "policy", "reports")
READY = {
    "overview": ".notes li",
    "publishers": ".vrow",
    "groups": ".why b",
    "cluster": ".empty",
    "rpc": ".empty",
    "spaces": ".empty",
    "policy": ".empty",
    "reports": ".list a",
}


def wait_ready(page: Page, name: str) -> None:
    page.locator(READY[name]).first.wait_for()


# Dark differs in colours alone, and these three pages have all of them.
@pytest.mark.parametrize("scheme, pages", [("light", PAGES), ("dark", PAGES[:3])])
def test_no_page_has_a_fault_that_axe_knows(
    busy_console: Console, open_page: OpenPage, scheme: str, pages: tuple[str, ...]
) -> None:
    page = open_page(busy_console, color_scheme=scheme)
    for name in pages:
        page.goto(f"{busy_console.url}/#/{name}")
        wait_ready(page, name)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{name}: {found.generate_report()}"


def test_every_page_fits_a_phone(busy_console: Console, open_page: OpenPage) -> None:
    page = open_page(busy_console, viewport={"width": 375, "height": 740})
    for name in PAGES:
        page.goto(f"{busy_console.url}/#/{name}")
        wait_ready(page, name)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 375, f"{name} is {width} wide"
    expect(page.locator("#side")).to_be_hidden()
    page.click("#menu")
    page.click("nav a[data-page=groups]")
    expect(page.locator("#title")).to_have_text("Shared groups")
    expect(page.locator("#side")).to_be_hidden()


def test_the_overview_tells_what_is_going_on(busy_console: Console, open_page: OpenPage) -> None:
    page = open_page(busy_console)
    expect(page.locator(".node .name")).to_have_text("harbour")
    expect(page.locator(".notes")).to_contain_text("Held because they are too fast: camera")
    expect(page.locator("[data-tile=held] .value")).to_have_text("1")
    expect(page.locator("[data-tile=latency] .value")).to_contain_text("ms")
    queue = page.locator("tr", has_text="archive")
    expect(queue).to_contain_text("(away)")
    expect(queue.locator("td").nth(1)).to_have_text("5")
    label = page.locator("canvas").first.get_attribute("aria-label") or ""
    assert label.startswith("Throughput, now: in ")


def test_a_long_name_does_not_push_the_columns_after_it_out_of_sight(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    name = "abcdefgh" * 4
    with RawClient(tidegate_broker.port) as away, RawClient(tidegate_broker.port) as meter:
        away.connect(name[::-1], properties={Property.SESSION_EXPIRY_INTERVAL: 3_600})
        away.subscribe("t", qos=1)
        away.disconnect()
        meter.connect(name)
        meter.publish("t", b"1", qos=1)
        page = open_page(start_console(tidegate_broker))
        for label, client in (("Publishers that matter most", name), ("Longest queues", name[::-1])):
            region = page.get_by_role("region", name=label)
            cell = region.locator("td.id", has_text=client)
            expect(cell).to_have_attribute("title", re.compile(f"^{client}"))
            assert region.evaluate("(each) => each.scrollWidth <= each.clientWidth"), label
            assert cell.evaluate("(each) => each.scrollWidth > each.clientWidth"), "it ends in dots"


def test_publishers_are_searched_sorted_and_filtered(busy_console: Console, open_page: OpenPage) -> None:
    page = open_page(busy_console, "publishers")
    names = page.locator(".vrow > :first-child")
    expect(names.first).to_have_text("camera")  # trouble first
    page.fill("input[type=search]", "METER-")
    expect(names).to_have_count(5)
    page.fill("input[type=search]", "")
    page.get_by_role("button", name="Client", exact=True).click()
    expect(names.first).to_contain_text("$operator/console-")
    expect(names.nth(1)).to_have_text("camera")
    page.get_by_role("button", name="Client ↑").click()
    expect(names.last).to_contain_text("$operator/console-")
    page.locator(".chip", has_text="held").click()
    expect(names).to_have_text(["camera"])
    expect(page.locator("[role=columnheader][aria-sort=descending]")).to_contain_text("Client")


def test_the_table_is_used_with_the_keyboard_alone(busy_console: Console, open_page: OpenPage) -> None:
    page = open_page(busy_console, "publishers")
    page.locator(".vrow").nth(2).wait_for()
    page.locator(".vrow[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    focused = page.evaluate("document.activeElement.getAttribute('aria-rowindex')")
    assert focused == "4"
    page.keyboard.press("Enter")
    expect(page.locator("dialog.sheet")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog.sheet")).to_have_count(0)


def test_a_group_shows_members_and_why_the_last_choice_fell(
    busy_console: Console, open_page: OpenPage
) -> None:
    page = open_page(busy_console, "groups")
    expect(page.locator("h2", has_text="$share/crew/jobs/+")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(2)
    expect(page.locator(".why")).to_contain_text(re.compile("Last choice: (anna|bert): "))
    expect(page.locator(".legend")).to_contain_text("anna")


@pytest.mark.parametrize(
    "name, words",
    [
        ("cluster", "This node is no part of a cluster"),
        ("rpc", "No calls are heard in the namespace main"),
        ("spaces", "Nobody serves a space called default"),
    ],
)
def test_a_page_whose_room_is_not_there_says_so_plainly(
    busy_console: Console, open_page: OpenPage, name: str, words: str
) -> None:
    page = open_page(busy_console, name)
    expect(page.locator(".empty:visible")).to_contain_text(words)
    expect(page.locator(".empty:visible code")).to_contain_text("tidegate ")


def test_reports_of_the_lab_are_listed_and_rendered(busy_console: Console, open_page: OpenPage) -> None:
    page = open_page(busy_console, "reports")
    page.locator(".list a").first.click()
    expect(page.locator(".report table").first).to_be_visible()
    picture = page.locator(".report img").first
    picture.scroll_into_view_if_needed()
    until(lambda: picture.evaluate("(each) => each.naturalWidth") > 100)


def test_a_report_with_scripts_runs_in_a_sandbox(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage, tmp_path: Path
) -> None:
    script = "try { parent.document; out = 'free'; } catch { out = 'alone'; } document.body.append(out);"
    (tmp_path / "report.html").write_text(f"<body><script>let out; {script}</script></body>")
    page = open_page(start_console(tidegate_broker, "--reports", tmp_path), "reports")
    page.locator(".list a").click()
    expect(page.frame_locator("iframe").locator("body")).to_have_text("alone", use_inner_text=True)


def test_the_cluster_page_shows_nodes_drains_and_events(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    state = {
        "sessions": 4,
        "subscriptions": 3,
        "queued_messages": 0,
        "load": "LOW",
        "linked": True,
        "address": "h:1",
    }
    for name, role, clients in (("head", "head", 1), ("edge0", "edge", 7), ("edge1", "edge", 2)):
        say(tidegate_broker, f"$SYS/cluster/{name}", {"name": name, "role": role, "clients": clients} | state)
    page = open_page(start_console(tidegate_broker), "cluster")
    expect(page.locator("svg.map .box")).to_have_count(3)
    expect(page.locator("tbody tr", has_text="edge0")).to_contain_text("7")
    say(
        tidegate_broker,
        "$SYS/cluster/drain/edge0",
        {"node": "edge0", "state": "running", "moved": 3, "failed": 0, "total": 7},
    )
    expect(page.locator(".panel", has_text="Plans, drains")).to_contain_text("3 of 7 moved")
    say(
        tidegate_broker,
        "$SYS/cluster/edge1",
        {"name": "edge1", "role": "edge", "clients": 9} | state | {"linked": False},
    )
    expect(page.locator(".log")).to_contain_text("edge1 is not reachable")
    expect(page.locator("svg.map .link.down")).to_have_count(1)
    budgets = page.locator(".panel", has_text="Latency budgets")
    expect(budgets).to_contain_text("No edge counts by topic")
    late = {"topic": "late", "budget": 2.0, "wait": 1.5, "subscribers": 8}
    early = {"topic": "early", "budget": 40.0, "wait": 0.0, "subscribers": 3}
    edge = {"state": "HIGH", "uplink": 0.9, "waiting": {"late": 30}, "budgets": [early, late]}
    say(tidegate_broker, "$SYS/cluster/balancing", {"policy": "deadline", "step": "idle", "edges": {"edge0": edge}})
    expect(budgets.locator("tbody tr").first).to_contain_text("late")
    expect(budgets.locator("tbody tr").first).to_contain_text("75")
    expect(budgets.locator("tbody tr")).to_have_count(2)


def test_the_map_has_the_links_that_there_are(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    def tell(name: str, role: str, **more: object) -> None:
        state = {"role": role, "clients": 1, "load": "LOW", "linked": True, "address": "h:1"}
        say(tidegate_broker, f"$SYS/cluster/{name}", {"name": name} | state | more)

    def links() -> set[tuple[str, bool]]:
        found = page.locator("svg.map .link").evaluate_all(
            "(all) => all.map((each) => [each.dataset.link, each.classList.contains('down')])"
        )
        return {(name, is_down) for name, is_down in found}

    for head in ("head0", "head1", "head2"):
        tell(head, "head")
    tell("edge0", "edge", head="head0")
    tell("edge1", "edge", head="head2", linked=False)
    page = open_page(start_console(tidegate_broker), "cluster")
    expect(page.locator("svg.map .box")).to_have_count(5)
    heads = {("head0 head1", False), ("head0 head2", False), ("head1 head2", False)}
    assert links() == heads | {("edge0 head0", False), ("edge1 head2", True)}
    tell("edge2", "edge")  # nobody says whose it is
    expect(page.locator("svg.map .box")).to_have_count(6)
    unknown = {("edge2 head0", False), ("edge2 head1", False), ("edge2 head2", False)}
    assert links() == heads | unknown | {("edge0 head0", False), ("edge1 head2", True)}
    tidegate_broker.call(lambda: tidegate_broker.broker.publish("$SYS/cluster/edge1", b"", retain=True))
    expect(page.locator("svg.map .box")).to_have_count(5)
    expect(page.locator(".log")).to_contain_text("edge1 has left the cluster")
    expect(page.locator("tbody tr", has_text="edge1")).to_have_count(0)


def test_the_rpc_page_lists_dead_tasks(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    task = {
        "id": "t-17",
        "kind": "new-price",
        "attempt": 5,
        "reason": "no route",
        "created": 1_700_000_000,
        "body": {},
    }
    say(tidegate_broker, "tide/rpc/main/dead/tasks/t-17", task)
    page = open_page(start_console(tidegate_broker), "rpc")
    row = page.locator("tbody tr", has_text="t-17")
    expect(row).to_contain_text("no route")


def test_a_node_that_reports_nothing_is_named_as_such(
    tidegate_broker_factory: object, start_console: StartConsole, open_page: OpenPage
) -> None:
    broker = tidegate_broker_factory(features=Features(sys_interval=0))  # type: ignore[operator]
    page = open_page(start_console(broker))
    expect(page.locator("#node .badge")).to_have_text("connected")
    expect(page.locator("#banner")).to_contain_text("The node tells nothing about itself")
    expect(page.locator("#banner .hint")).to_contain_text("features.sys_interval")
    expect(page.locator("[data-tile=connections] .value")).to_have_text("–")


def test_the_theme_is_chosen_and_remembered(busy_console: Console, open_page: OpenPage) -> None:
    page = open_page(busy_console)
    for theme in ("light", "dark"):
        page.click("#theme")
        expect(page.locator("#theme")).to_have_text(f"Theme: {theme}")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
