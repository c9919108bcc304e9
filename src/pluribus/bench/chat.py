"""``pluribus bench chat``: the page of ``pluribus chat`` in Chromium, with Playwright.

*Open*: the time from the request for the page until the last of 5,000 messages is visible, each time in a fresh browser
profile. *Delay*: the time from the Enter key in one person's browser until the message is visible in another's. The two
are processes that find each other by multicast, both with those 5,000 messages; the browsers share a clock.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ..core.errors import MissingExtra, Unreachable
from ..runtime.bus import connect
from ..runtime.loop.running import run as run_on_a_loop
from .report import at_most, report, result

MESSAGES = 5_000
OPENINGS = 7
DELAYS = 40
OPEN_S_MAX = 2.0
DELAY_MS_MAX = 200.0
START_S = 60.0
PATIENCE_MS = 120_000
THREAD = 5
"""Messages of a thread, the question included."""

SHOWN = "(text) => [...document.querySelectorAll('.message .body')].some((body) => body.textContent === text)"
NOTE_SENT = "() => addEventListener('keydown', (key) => { if (key.key === 'Enter') window.sent = Date.now(); }, true)"
NOTE_SEEN = """() => { window.seen = {}; new MutationObserver(() => {
  const now = Date.now();
  for (const body of document.querySelectorAll('.message .body')) window.seen[body.textContent] ??= now;
}).observe(document.body, { subtree: true, childList: true }); }"""


def run(*, quick: bool = False, progress: Callable[[str], None] = lambda text: None, **_: Any) -> dict[str, Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise MissingExtra("this bench needs Playwright: pip install playwright") from None
    chosen = shutil.which("chromium") or shutil.which("chromium-browser")
    if chosen is None:
        raise MissingExtra("this bench needs Chromium: apt-get install chromium")
    openings, delays = (2, 5) if quick else (OPENINGS, DELAYS)
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "reader.db"
        progress(f"{MESSAGES:,} messages are written")
        last = run_on_a_loop(written(MESSAGES, store))
        with sync_playwright() as playwright:
            chromium = playwright.chromium.launch(executable_path=chosen, args=["--no-sandbox"])
            url = f"multicast://bench-chat-{os.getpid()}"
            with served(url, "reader", store) as reading, served(url, "writer", None) as writing:
                opened = []
                for number in range(openings):
                    progress(f"the page is opened, {number + 1} of {openings}")
                    page = chromium.new_context(viewport={"width": 1200, "height": 760}).new_page()
                    began = time.perf_counter()
                    page.goto(reading)
                    page.wait_for_function(SHOWN, arg=last, timeout=PATIENCE_MS)
                    opened.append(time.perf_counter() - began)
                    page.context.close()
                pages = [chromium.new_context().new_page() for _ in range(2)]
                for page, address in zip(pages, (writing, reading), strict=True):
                    page.goto(address)
                    page.wait_for_function(SHOWN, arg=last, timeout=PATIENCE_MS)
                writer, reader = pages
                writer.evaluate(NOTE_SENT)
                reader.evaluate(NOTE_SEEN)
                took = []
                for number in range(delays):
                    progress(f"a message goes from browser to browser, {number + 1} of {delays}")
                    text = f"new {number}"
                    writer.locator("textarea").fill(text)
                    writer.keyboard.press("Enter")
                    reader.wait_for_function("(text) => text in window.seen", arg=text, timeout=PATIENCE_MS)
                    writer.wait_for_function(
                        "() => document.querySelector('textarea').value === ''", timeout=PATIENCE_MS
                    )
                    took.append(
                        float(reader.evaluate("(text) => window.seen[text]", text) - writer.evaluate("window.sent"))
                    )
            chromium.close()
    rows = [
        result(f"a room of {MESSAGES:,} messages opens", "s", opened),
        result("a message goes from browser to browser", "ms", took),
    ]
    goals = [
        at_most(f"seconds until a room of {MESSAGES:,} messages is open", rows[0].value, OPEN_S_MAX),
        at_most("milliseconds from browser to browser", rows[1].value, DELAY_MS_MAX),
    ]
    return report("chat", rows, goals)


async def written(count: int, store: Path) -> str:
    """Fill the room; returns the text of the message that is shown last."""
    async with connect(f"inproc://bench-chat-{os.getpid()}", name="reader", stack="adhoc") as bus:
        room = await bus.conversation("long", store=store)
        last = ""
        for start in range(0, count, 500):
            numbers = range(start, min(start + 500, count))
            asked = [number for number in numbers if number % THREAD == 0]
            questions = dict(zip(asked, await asyncio.gather(*[room.send(_text(n)) for n in asked]), strict=True))
            rest = [number for number in numbers if number % THREAD]
            await asyncio.gather(*[room.send(_text(n), parent=questions[n - n % THREAD]) for n in rest])
        for _, entry in room.tree().walk():
            last = entry.body or ""
        return last


def _text(number: int) -> str:
    return f"message {number}, " + "some words of a usual length, " * (1 + number % 4)


@contextmanager
def served(url: str, name: str, store: Path | None) -> Iterator[str]:
    """The address of a person's page."""
    environment = {**os.environ, "PLURIBUS_URL": url}
    environment.pop("PYTEST_CURRENT_TEST", None)  # NiceGUI would believe that it is tested by its own means
    command = [sys.executable, "-m", "pluribus", "chat", "long", "--name", name, "--json"]
    command += ["--store", str(store)] if store is not None else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise Unreachable(f"the page of {name} did not start: try `pluribus chat --name {name}`")
            address = str(msgspec.json.decode(line)["address"])
            until = time.monotonic() + START_S
            while not _answers(address):
                if process.poll() is not None or time.monotonic() > until:
                    raise Unreachable(f"the page of {name} is not served: try `pluribus chat --name {name}`")
                time.sleep(0.05)
            yield address
        finally:
            process.terminate()


def _answers(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=START_S)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == http.HTTPStatus.OK
    except OSError:
        return False
    finally:
        connection.close()
