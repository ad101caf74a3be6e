"""The stream of a page: none while nobody sees it, patience when it is refused; and addresses that make no sense."""

import http.client
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, Request, expect

from tests.console.conftest import DEADLINE, Console, OpenPage, StartConsole, until
from tests.console.scenery import write_policies
from tidegate.console.app import MAX_STREAMS
from tidegate.testing import BrokerThread

# A browser without a window shows every page, so the page is told what a browser would tell it.
HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def streams(page: Page) -> list[str]:
    """All requests for a stream; they are asked for, and may have ended since."""
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url) if "/api/live" in request.url else None)
    return found


def test_a_page_that_nobody_sees_has_no_stream_and_goes_on_when_it_is_seen(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    page = open_page(start_console(tidegate_broker), "overview")
    expect(page.locator("[data-tile=connections] .value")).to_have_text("1")
    asked = streams(page)
    ended: list[str] = []
    page.on("requestfailed", lambda request: ended.append(request.url))
    page.evaluate(HIDE, True)
    until(lambda: page.evaluate("1") == 1 and len(ended) == 1)  # the browser gave up its connection
    assert "/api/live" in ended[0]
    page.evaluate("location.hash = '#/publishers'")
    expect(page.locator("#title")).to_have_text("Publishers")
    assert asked == []
    page.evaluate(HIDE, False)
    expect(page.locator("#node .badge")).to_contain_text("load")
    assert [each.partition("=")[2] for each in asked] == ["publishers"]
    expect(page.locator("#banner")).to_be_hidden()


def asked_of(page: Page) -> list[tuple[str, bool]]:
    """What the page asks for but streams, and whether it says that it does so by itself."""
    found: list[tuple[str, bool]] = []

    def take(request: Request) -> None:
        path = urlsplit(request.url).path
        if path.startswith("/api/") and path != "/api/live":
            found.append((path, "x-tidegate-poll" in request.headers))

    page.on("request", take)
    return found


def test_only_what_somebody_does_keeps_a_session(
    busy_node: BrokerThread, start_console: StartConsole, open_page: OpenPage, password_file: Path, tmp_path: Path
) -> None:
    write_policies(tmp_path, *({"meter": rate} for rate in (1.0, 2.0, 3.0)))
    console = start_console(busy_node, "--accounts", password_file, "--policy", tmp_path)
    page = open_page(console)
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill("secret-a")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#node .badge")).to_contain_text("load")
    asked = asked_of(page)

    def is_asked(path: str, *, is_marked: bool) -> bool:
        return bool(page.evaluate("1")) and (path, is_marked) in asked

    for name, path in (("overview", "/api/history"), ("groups", "/api/group"), ("policy", "/api/policy/diff")):
        page.goto("about:blank")
        asked.clear()
        page.goto(f"{console.url}/#/{name}")
        until(partial(is_asked, path, is_marked=True))
        expect(page.locator("#node .badge")).to_contain_text("load")
        assert [path for path, is_marked in asked if not is_marked] == ["/api/session"]  # the page was opened
    asked.clear()
    page.keyboard.press("ArrowDown")
    until(partial(is_asked, "/api/session", is_marked=False))
    page.keyboard.press("ArrowDown")  # not for each
    assert [path for path, is_marked in asked if not is_marked] == ["/api/session"]


@contextmanager
def many_streams(console: Console, count: int) -> Iterator[None]:
    def ask(path: str, cookie: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", console.port, timeout=DEADLINE)
        stack.enter_context(closing(connection))
        connection.request("GET", path, headers={"Cookie": cookie})
        return stack.enter_context(connection.getresponse())

    with ExitStack() as stack:
        cookie = (ask("/api/session", "").getheader("set-cookie") or "").partition(";")[0]
        opened: list[http.client.HTTPResponse] = []

        def open_one() -> bool:
            """The server sees a little later that a browser has closed its stream."""
            answer = ask("/api/live", cookie)
            if answer.status == 200:
                opened.append(answer)
                answer.readline()
            return len(opened) == count

        until(open_one)
        yield


def test_a_stream_that_is_refused_is_asked_for_again_with_patience_and_the_page_stays(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    console = start_console(tidegate_broker)
    page = open_page(console, "spaces")
    expect(page.locator("#node .badge")).to_contain_text("load")
    with many_streams(console, MAX_STREAMS - 1):
        page.get_by_label("Name of a space").fill("half a na")
        asked, others = streams(page), asked_of(page)
        page.evaluate(HIDE, True)
        with many_streams(console, 1):
            page.evaluate(HIDE, False)
            expect(page.locator("#banner")).to_contain_text("too many pages are open")
            until(lambda: page.evaluate("1") == 1 and len(asked) == 3)  # at once, after 1 s, after 2 s more
            expect(page.get_by_label("Name of a space")).to_have_value("half a na")
        expect(page.locator("#banner")).to_be_hidden()  # 4 s later
        assert len(asked) == 4
        assert others.count(("/api/session", True)) == 3
        assert all(is_marked for _, is_marked in others)
        expect(page.get_by_label("Name of a space")).to_have_value("half a na")


def test_an_address_that_makes_no_sense_shows_the_overview(
    tidegate_broker: BrokerThread, start_console: StartConsole, open_page: OpenPage
) -> None:
    page = open_page(start_console(tidegate_broker), "toString")
    expect(page.locator("#title")).to_have_text("Overview")
    page.evaluate("location.hash = '#/publishers/100%'")
    expect(page.locator("#title")).to_have_text("Publishers")
    expect(page.get_by_label("Search publishers")).to_have_value("100%")


SHARES = """async () => {
  const { Shares } = await import("/static/js/shares.js");
  const shares = new Shares();
  const members = (sent) => Object.entries(sent).map(([client, number]) => ({ client, sent: number }));
  const tell = (at, sent) => shares.take(members(sent), at);
  const names = () => shares.chart().series.map((each) => each.name);
  const last = (name) => {
    const { series, columns } = shares.chart();
    return columns[series.find((each) => each.name === name)?.key]?.at(-1);
  };
  const odd = (number) => JSON.parse(`{"at": ${number}, "__proto__": ${2 * number}, "zoe": 0}`);
  const found = {};
  tell(10, odd(1));
  tell(12, odd(5));
  found.odd = [names(), last("at"), last("__proto__"), last("zoe"), shares.at];
  shares.load([10, 12], [["at", [0, 2]], ["__proto__", [0, 4]]]);
  tell(14, odd(7));
  found.loaded = [last("at"), last("__proto__")];
  shares.load([60], []);
  tell(64, odd(57));
  found.gap = last("at");
  tell(65, { zoe: 0 });
  tell(66, { zoe: 0 });
  found.left = names();
  for (let at = 70; at < 70 + 300; at += 1) tell(at, { zoe: at });
  found.forgotten = names();
  const numbers = Array.from({ length: 12 }, (_, at) => at);
  const crowd = (each) => Object.fromEntries(numbers.map((at) => [`m${String(at).padStart(2, "0")}`, at * each]));
  tell(500, crowd(0));
  for (let at = 501; at < 900; at += 1) tell(at, crowd(at));
  found.crowd = [names(), last("m11"), last("5 others"), new Set(shares.chart().series.map((each) => each.color)).size];
  return found;
}"""


def test_shares_over_time_hold_any_name_and_forget_who_left(busy_console: Console, open_page: OpenPage) -> None:
    page = open_page(busy_console, "groups")
    found = page.evaluate(SHARES)
    assert found["odd"] == [["__proto__", "at", "zoe"], 2, 4, 0, [10, 12]]
    assert found["loaded"] == [1, 2]  # not a false 0, though the past was loaded anew
    assert found["gap"] == 1.0  # 50 messages in 50 s, and no cliff
    assert found["left"] == ["__proto__", "at", "zoe"]  # they had messages in the time that is shown
    assert found["forgotten"] == ["zoe"]
    assert found["crowd"] == [["m05", "m06", "m07", "m08", "m09", "m10", "m11", "5 others"], 11, 10, 8]
