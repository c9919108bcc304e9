"""Pictures of the console for the documents, taken with the distribution's Chromium: ``make screenshots``."""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Error, sync_playwright  # noqa: E402

from tests.console.town import browser, town  # noqa: E402

SECONDS_MS = 90_000


def main() -> None:
    chosen = browser()
    if chosen is None:
        sys.exit("no Chromium on this machine: apt-get install chromium")
    out = ROOT / "docs" / "console-slots.png"
    with tempfile.TemporaryDirectory() as folder, town(Path(folder)) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chosen, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1000, "height": 760})
        page.set_default_timeout(SECONDS_MS)
        while True:
            try:
                page.goto(address)
                break
            except Error:
                page.wait_for_timeout(300)
        page.locator("[data-test='bus-town']").click()
        page.locator("[data-test='slot-bell']").dblclick()
        page.get_by_text("1 of at most 2").wait_for()
        page.locator("[data-test='slot-bell']").click()
        page.wait_for_timeout(500)
        page.screenshot(path=out)
        chromium.close()
    print(f"{out.relative_to(ROOT)} is taken")


main()
