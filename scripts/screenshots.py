"""Pictures for the documents: of the demo in a terminal, and of pages, taken with the distribution's Chromium.

``make screenshots`` takes them all.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from playwright.sync_api import Browser, Error, sync_playwright  # noqa: E402

from tests.console.hall import hall  # noqa: E402
from tests.console.screens import Air, ScreenOf  # noqa: E402
from tests.console.town import browser, town  # noqa: E402
from tests.terminal import Terminal  # noqa: E402

SECONDS_MS = 90_000
DOCS = ROOT / "docs"


def main() -> None:
    """All of them, or those that are named: ``demo``, ``slots``, ``chat``."""
    wanted = sys.argv[1:] or ["demo", "slots", "chat"]
    if "demo" in wanted:
        for out in demo():
            print(f"{out.relative_to(ROOT)} is taken")
    pages = [take for take in (slots, chat) if take.__name__ in wanted]
    if pages:
        in_a_browser(pages)


def demo() -> list[Path]:
    """The dealing room when Spark has answered, in a terminal of 80×24 and in one of 160×50."""
    out = [DOCS / "demo.svg", DOCS / "demo-wide.svg"]
    with Terminal([sys.executable, "-m", "pluribus", "demo"], 80, 24) as seen:
        seen.wait_until(lambda text: "room: open" in text and " leads" in text, 300, "the open room")
        seen.press("k")
        seen.wait_until(lambda text: "ALERT" in text and " prices read, " in text, 600, "an alert")
        seen.wait_until(lambda text: " 0 averages" not in text, 600, "averages")
        out[0].write_text(seen.svg("pluribus demo"), encoding="utf-8")
        seen.resize(160, 50)
        seen.wait_until(lambda text: "averages by Spark" in text and "BETWEEN" in text, 60, "the wide picture")
        seen.wait_until(lambda text: "Ctrl-C ends it, and counts" in text, 60, "all of it")
        out[1].write_text(seen.svg("pluribus demo"), encoding="utf-8")
        seen.press("\x03")
        seen.end(60)
    return out


def in_a_browser(pages: list[Callable[[Browser, Path], list[Path]]]) -> None:
    chosen = browser()
    if chosen is None:
        sys.exit("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chosen, args=["--no-sandbox"])
        for take in pages:
            with tempfile.TemporaryDirectory() as folder:
                for out in take(chromium, Path(folder)):
                    print(f"{out.relative_to(ROOT)} is taken")
        chromium.close()


def slots(chromium: Browser, folder: Path) -> list[Path]:
    out = DOCS / "console-slots.png"
    with town(folder) as address:
        page = chromium.new_page(viewport={"width": 1000, "height": 860})
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
        page.close()
    return [out]


def chat(chromium: Browser, folder: Path) -> list[Path]:
    """The story of two towns: on a wide screen, and on a phone in the dark."""
    wide, narrow = DOCS / "chat.png", DOCS / "chat-phone.png"
    with hall(folder) as address:
        air = Air(address)
        for name in ("ann", "bob", "cid", "dan"):
            air("open", name=name, room="towns", about="Where we were, and where we want to go")
            air("open", name=name, room="lunch", about="Who eats where")
        air("open", name="bob", room="chess", about="A game tonight?")

        def say(name: str, text: str, parent: str | None = None, room: str = "towns") -> str:
            return str(air("say", name=name, room=room, text=text, **({"parent": parent} if parent else {})))

        ann = ScreenOf(chromium, address, "ann", viewport={"width": 1180, "height": 850})
        bob = ScreenOf(chromium, address, "bob")
        phone = {"width": 390, "height": 740}
        dan = ScreenOf(chromium, address, "dan", viewport=phone, color_scheme="dark", device_scale_factor=2)
        ann.open("towns")
        bob.open("towns")
        dan.page.get_by_role("button", name="Rooms").click()
        dan.open("towns")
        delhi = say("cid", "Did you visit Delhi?")
        chennai = say("cid", "Did you visit Chennai?")
        ann.message("Chennai").wait_for()
        bob.message("Delhi").wait_for()
        ann.page.wait_for_function("() => document.querySelectorAll('.message').length === 2")
        yes = say(
            "bob", "Yes, twice. The Red Fort at sunrise is worth it: https://en.wikipedia.org/wiki/Red_Fort", delhi
        )
        no = say("ann", "No", chennai)
        how = say("dan", "How did you get there?", yes)
        say("bob", "By train. The times are in our list:\n```\n12951  Mumbai  16:35\n       Delhi   08:32\n```", how)
        say("cid", "Then let us go together in January", no)
        say("dan", "I am in", no)
        for screen in (ann, dan):
            screen.page.wait_for_function("() => document.querySelectorAll('.message').length === 8")
            screen.page.locator(".message.unread").first.wait_for(state="detached")
        air("away", name="dan")
        ann.page.locator(".member.away").wait_for()
        for text in ("The canteen has dosas", "I come at one"):
            say("cid", text, room="lunch")
        bob.page.locator("textarea").press_sequentially("I can")
        ann.page.locator(".typing", has_text="bob is writing").wait_for()
        ann.page.locator("button.room[data-room=lunch] .badge").wait_for()
        ann.message("Then let us go").click()
        ann.page.locator("textarea").press_sequentially("January is fine for me")
        ann.page.mouse.move(1080, 500)
        bob.page.locator("textarea").press_sequentially(" do it")
        say("cid", "Who books the train?", no)
        ann.page.locator(".message.unread").wait_for()
        ann.page.screenshot(path=wide)
        dan.page.screenshot(path=narrow)
        for screen in (ann, bob, dan):
            screen.close()
    return [wide, narrow]


main()
