"""One look at each page of the console, filled: what it must show, and its picture."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import Console, until
from tests.console.scenery import Plant, start_cluster

WIDTH, SHORTEST, HIGHEST = 1280, 500, 960
HEIGHTS: Final = {"groups": 670}  # the crew and one group more: all of them would be a large file
DARK: Final = ("publishers", "cluster")  # pages whose picture is in the dark


class Gallery:
    """Two consoles, of a plant and of a cluster."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._plant = plant = Plant(stack, folder)
        cluster, self._crowd = start_cluster(stack)
        self.plant = self._start(stack, plant.port, *plant.options())
        self.cluster = self._start(stack, int(cluster.rpartition(":")[2]))

    def happen(self, browser: Browser, calm: float) -> None:
        """What pages have to tell. `calm`: seconds before each thing and after the last, for charts with a past; groups
        and calls have one only while somebody looks at them."""
        with browser.new_context() as context:
            for name in ("groups", "rpc"):
                context.new_page().goto(self.address(name))
            time.sleep(calm)
            self._plant.slow()
            time.sleep(calm)
            self._plant.flood()
            self._crowd.order("burst")
            time.sleep(calm)

    def _start(self, stack: ExitStack, port: int, *arguments: str) -> Console:
        console = Console(port, *arguments)
        stack.callback(console.stop)
        return console

    def address(self, name: str) -> str:
        return f"{(self.cluster if name == 'cluster' else self.plant).url}/#/{name}"

    def show(self, page: Page, name: str) -> None:
        """Until it shows what it is for."""
        page.goto(self.address(name))
        expect(page.locator("#title")).to_have_text(TITLES[name])
        LOOKS[name](page)


def _overview(page: Page) -> None:
    expect(page.locator(".node .name")).to_have_text("harbour")
    expect(page.locator(".notes")).to_contain_text("Held because they are too fast: camera-")
    expect(page.locator(".notes")).to_contain_text("worker-3 of $share/crew/jobs/# takes")
    expect(page.locator("[data-tile=held] .value")).to_have_text("2")
    for tile in ("latency", "lag"):
        expect(page.locator(f"[data-tile={tile}] .value")).to_contain_text("ms")


def _publishers(page: Page) -> None:
    names = page.locator(".vrow > :first-child")
    expect(names.first).to_contain_text("camera-")
    expect(names.nth(1)).to_contain_text("camera-")
    expect(page.locator(".vrow .badge", has_text="held")).to_have_count(2)
    expect(page.locator(".vrow", has_text="sensor-").first).to_be_attached()


def _groups(page: Page) -> None:
    expect(page.locator("h2", has_text="$share/crew/jobs/#")).to_be_visible()
    crew = page.locator(".split", has_text="$share/crew/jobs/#")
    expect(crew.locator("tbody tr")).to_have_count(3)
    expect(crew.locator(".why")).to_contain_text("Last choice: worker-")
    expect(crew.locator(".legend span")).to_have_text(["worker-1", "worker-2", "worker-3"])
    shares = crew.locator("tbody tr", has_text="worker-3").locator("td").last
    until(lambda: float(shares.inner_text().split()[0]) < 20)


def _cluster(page: Page) -> None:
    expect(page.locator("svg.map .box")).to_have_count(3)
    expect(page.locator("svg.map .link")).to_have_count(2)
    expect(page.locator("svg.map")).to_contain_text("uplink")
    budgets = page.locator(".panel", has_text="Latency budgets").locator("tbody tr")
    expect(budgets.filter(has_text="news/")).to_have_count(4)
    plans = page.locator(".panel", has_text="Plans, drains and balancing")
    expect(plans).to_contain_text("was in trouble")
    expect(plans.locator("li").first).to_contain_text("clients of news/")
    expect(page.locator(".log")).to_contain_text("is in trouble")


def _rpc(page: Page) -> None:
    expect(page.locator(".badge", has_text="ack")).to_be_visible()
    expect(page.locator("tr", has_text="the whole call").locator("td").nth(2)).to_contain_text("ms")
    expect(page.locator("tr", has_text="task-13")).to_contain_text("its deadline was over")


def _spaces(page: Page) -> None:
    facts = page.locator(".panel", has_text="home").locator("dl")
    expect(facts).to_contain_text("Triples250")
    expect(facts).to_contain_text("requests a second")


def _policy(page: Page) -> None:
    expect(page.locator(".badge", has_text="the node follows it")).to_be_visible()
    changed = page.locator(".panel", has_text="What changed")
    expect(changed).to_contain_text("Publishers that are new: 2")
    expect(changed).to_contain_text("Publishers with another pace: 4")
    expect(page.get_by_role("region", name="Snapshots").locator("tbody tr")).to_have_count(3)


def _reports(page: Page) -> None:
    expect(page.locator(".list a").first).to_be_visible()
    assert page.locator(".list a").count() >= 5
    expect(page.get_by_role("region", name="Tables of the lake").locator("tbody tr").first).to_be_visible()


LOOKS: Final[dict[str, Callable[[Page], None]]] = {
    "overview": _overview,
    "publishers": _publishers,
    "groups": _groups,
    "cluster": _cluster,
    "rpc": _rpc,
    "spaces": _spaces,
    "policy": _policy,
    "reports": _reports,
}
TITLES: Final = {name: name.capitalize() for name in LOOKS} | {"groups": "Shared groups", "rpc": "RPC"}


def take_picture(page: Page, name: str, folder: Path) -> Path:
    """As high as what there is to see, within reason."""
    scheme = "dark" if name in DARK else "light"
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": WIDTH, "height": HIGHEST})
    end = page.evaluate("document.querySelector('main').lastElementChild.getBoundingClientRect().bottom")
    page.set_viewport_size({"width": WIDTH, "height": max(SHORTEST, min(HEIGHTS.get(name, HIGHEST), round(end) + 26))})
    path = folder / f"console-{name}-{scheme}.png"
    page.screenshot(path=path, animations="disabled")
    return path
