"""Makes docs/pictures of the console: light, dark and at the width of a phone, from a running demo (`make pictures`).

Needs Chromium (scripts/ensure-system) and the extras `console` and `test`. Takes about a minute.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tidegate.demo.story import Stage, begin

ROOT = Path(__file__).resolve().parent.parent
DESKTOP = {"width": 1280, "height": 860}
PHONE = {"width": 390, "height": 844}


def browser_path() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        sys.exit("error: there is no Chromium\nhint: scripts/ensure-system installs it")
    return found


def open_page(browser: Browser, url: str, scheme: str, size: dict[str, int]) -> Page:
    context = browser.new_context(viewport=size, color_scheme=scheme, device_scale_factor=1.5, locale="en-GB")
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#shell:not([hidden])")
    return page


def shoot(page: Page, console: str, name: str, ready: str, out: Path, *, is_whole: bool = False) -> None:
    page.goto(f"{console}#/{name}")
    page.wait_for_selector(ready, timeout=20_000)
    page.wait_for_timeout(1_200)  # one more point on the charts
    theme = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'")
    phone = "-phone" if page.viewport_size["width"] < 800 else ""
    path = out / f"console-{name}-{theme}{phone}.png"
    page.screenshot(path=path, full_page=is_whole)
    print(path.name, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    parser.add_argument("--calm", type=float, default=45.0, help="seconds before the flood")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    stage = Stage(say=print, sensors=200, port=0, http_port=0)
    try:
        begin(stage)
        assert stage.plant is not None and stage.flood is not None
        time.sleep(arguments.calm / 3)
        stage.plant.order("slow")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path())
            pages = [
                open_page(browser, stage.console, scheme, size)
                for scheme, size in (("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE))
            ]
            for page in pages:
                page.goto(f"{stage.console}#/groups")
            time.sleep(arguments.calm * 2 / 3)
            for page in pages:
                shoot(page, stage.console, "groups", ".why b", arguments.out)
                page.goto(f"{stage.console}#/overview")
            stage.flood.order("go")
            time.sleep(8)
            for page in pages:
                shoot(page, stage.console, "publishers", ".vrow .badge.bad", arguments.out)
                shoot(page, stage.console, "overview", ".notes .badge.warn", arguments.out)
            page = pages[0]
            page.goto(f"{stage.console}#/publishers")
            page.click(".vrow:has(.badge.bad)")
            page.click("dialog.sheet button:has-text('Release')")
            page.wait_for_timeout(500)
            page.screenshot(path=arguments.out / "console-release-light.png")
            browser.close()
    finally:
        stage.close()


if __name__ == "__main__":
    main()
