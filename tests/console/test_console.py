"""The console in a real browser: buses and slots live, properties, tools, routes that change."""

import time

import pytest

from tests.console.town import browser, town

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser() is None, reason="no Chromium on this machine: apt-get install chromium"),
]


def opened(page, address):
    """The console's first page, as soon as its process serves it."""
    until = time.monotonic() + 60
    while True:
        try:
            page.goto(address)
        except sync_api.Error:
            if time.monotonic() > until:
                raise
            page.wait_for_timeout(300)
        else:
            return


def test_the_page_of_software_buses(tmp_path):
    with town(tmp_path) as address, sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser(), args=["--no-sandbox"])
        page = chromium.new_page()
        page.set_default_timeout(40_000)
        opened(page, address)

        def part(name):
            return page.locator(f"[data-test='{name}']")

        sync_api.expect(part("bus-town")).to_contain_text("town: waiting", timeout=40_000)
        part("bus-town").click()
        sync_api.expect(part("slot-bell")).to_contain_text("the bus waits for it", timeout=20_000)
        sync_api.expect(part("router")).to_contain_text("town-router", timeout=20_000)
        part("slot-bell").click()
        sync_api.expect(part("properties")).to_contain_text("rings at noon", timeout=20_000)
        sync_api.expect(part("properties")).to_contain_text("out rings : text")
        assert page.locator("#slot-bell").count() == 1, "the graph is drawn"

        part("slot-bell").dblclick()
        sync_api.expect(part("slot-bell")).to_contain_text("1 of at most 2", timeout=40_000)
        sync_api.expect(part("bus-town")).to_contain_text("running", timeout=20_000)

        page.locator("#slot-radio").click()
        sync_api.expect(part("properties")).to_contain_text("radio: transient", timeout=20_000)
        part("source").fill("bell.rings")
        part("target").fill("radio.in")
        part("add").click()
        sync_api.expect(part("routes")).to_contain_text("bell.rings -> radio.in", timeout=20_000)
        part("delete-bell.rings-ears.in").click()
        sync_api.expect(part("routes")).not_to_contain_text("ears.in", timeout=20_000)
        assert part("source").input_value() == "bell.rings", "what is typed stays though the page is drawn anew"
        part("source").fill("bell.nothing")
        part("target").fill("radio.in")
        part("add").click()
        sync_api.expect(page.locator(".q-notification")).to_contain_text("has no port 'nothing'", timeout=20_000)
        chromium.close()
