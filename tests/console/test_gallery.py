"""Every page filled by real programs: what it shows, its picture, and that everybody can use it in light and dark."""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.console.conftest import OpenPage, StartConsole
from tests.console.gallery import LOOKS, Gallery, take_picture
from tests.console.test_actions import open_publisher
from tidegate.testing import BrokerThread

pytestmark = pytest.mark.serial  # a dozen programs, and some of them are to be in time
SCHEMES = ("light", "dark")
LARGEST = 150_000  # bytes of a picture: they are in the guide


@pytest.fixture(scope="module")
def gallery(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gallery]:
    with ExitStack() as stack:
        found = Gallery(stack, tmp_path_factory.mktemp("gallery"))
        found.happen(browser, float(os.environ.get("CONSOLE_CALM", "0")))
        yield found


@pytest.fixture
def page(gallery: Gallery, open_page: OpenPage) -> Page:
    return open_page(gallery.plant, color_scheme="light", locale="en-GB")


def check_axe(page: Page, what: str) -> None:
    found = Axe().run(page)
    assert found.violations_count == 0, f"{what}: {found.generate_report()}"


def test_every_page_shows_what_it_is_for_and_has_its_picture_taken(
    gallery: Gallery, page: Page, tmp_path: Path
) -> None:
    folder = Path(os.environ.get("CONSOLE_PICTURES", tmp_path))
    for name in LOOKS:
        gallery.show(page, name)
        size = take_picture(page, name, folder).stat().st_size
        assert 10_000 < size < LARGEST, f"the picture of {name} has {size} bytes"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_filled_page_has_a_fault_that_axe_knows(gallery: Gallery, page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for name in LOOKS:
        gallery.show(page, name)
        check_axe(page, f"{name}, {scheme}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_no_dialog_has_a_fault_that_axe_knows(gallery: Gallery, page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    gallery.show(page, "publishers")
    open_publisher(page, "camera-1")
    check_axe(page, f"details, {scheme}")
    page.get_by_role("button", name="Set class").click()
    expect(page.locator("dialog[open]")).to_have_count(2)
    check_axe(page, f"question with a field, {scheme}")
    gallery.show(page, "cluster")
    page.get_by_role("button", name="Drain").first.click()
    expect(page.locator("dialog[open] button.danger")).to_be_visible()
    check_axe(page, f"question before something grave, {scheme}")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_login_has_no_fault_that_axe_knows(
    tidegate_broker: BrokerThread,
    start_console: StartConsole,
    open_page: OpenPage,
    password_file: Path,
    scheme: str,
) -> None:
    page = open_page(start_console(tidegate_broker, "--accounts", password_file), color_scheme=scheme)
    page.get_by_label("User name").fill("eve")
    page.get_by_label("Password").fill("guess")
    check_axe(page, f"login, {scheme}")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert").first).to_have_text("User name or password is wrong.")
    check_axe(page, f"login refused, {scheme}")


def test_every_filled_page_and_dialog_fits_a_phone(gallery: Gallery, page: Page) -> None:
    page.set_viewport_size({"width": 375, "height": 740})
    for name in LOOKS:
        gallery.show(page, name)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 375, f"{name} is {width} wide"
    gallery.show(page, "publishers")
    open_publisher(page, "camera-1")
    page.get_by_role("button", name="Set class").click()
    for dialog in page.locator("dialog[open]").all():
        box = dialog.bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 375


def test_a_report_is_read_on_a_phone_and_has_no_fault_that_axe_knows(gallery: Gallery, page: Page) -> None:
    page.set_viewport_size({"width": 375, "height": 740})
    gallery.show(page, "reports")
    page.locator(".list a").first.click()
    expect(page.locator(".report table").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    check_axe(page, "a report")
