"""Four people's screens in a real browser, for tests and pictures."""

import json
import urllib.parse
import urllib.request

WAIT_MS = 60_000


class Air:
    """Asks the hall for what its air should do."""

    def __init__(self, address):
        self.address = address

    def __call__(self, what, **query):
        with urllib.request.urlopen(f"{self.address}/air/{what}?{urllib.parse.urlencode(query)}", timeout=60) as answer:
            return json.load(answer)["found"]


class ScreenOf:
    """One person before a browser."""

    def __init__(self, browser, address, name, path=None, **options):
        self.name = name
        self.context = browser.new_context(**{"viewport": {"width": 1200, "height": 760}, **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.errors = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(f"{address}/{name if path is None else path}")
        self.page.locator(".me", has_text=name).wait_for(state="attached")

    def create(self, room, about=""):
        self.page.get_by_role("button", name="New room").click()
        self.page.get_by_label("Name", exact=True).fill(room)
        self.page.get_by_label("What it is about").fill(about)
        self.page.get_by_role("button", name="Create").click()
        self.page.get_by_role("heading", name=room, level=1).wait_for()

    def join(self, room):
        self.page.get_by_role("button", name=f"Join {room}", exact=True).click()
        self.page.get_by_role("heading", name=room, level=1).wait_for()

    def open(self, room):
        self.page.locator(f"button.room[data-room='{room}']").click()
        self.page.get_by_role("heading", name=room, level=1).wait_for()

    def say(self, text):
        self.page.locator("textarea").fill(text)
        self.page.keyboard.press("Enter")
        self.page.wait_for_function("() => document.querySelector('textarea').value === ''")

    def answer(self, question, text):
        self.message(question).click()
        self.page.locator(".answered").wait_for()
        self.say(text)

    def message(self, text):
        return self.page.locator(".message", has=self.page.locator(".body", has_text=text)).first

    def tree(self):
        """Depth, writer and text of what is drawn, from top to bottom."""
        return self.page.evaluate(
            """() => [...document.querySelectorAll('.message')].map((found) => [
                 Number(found.ariaLevel) - 1, found.querySelector('.by').textContent,
                 found.querySelector('.body').textContent])"""
        )

    def wait_for_tree(self, wanted):
        self.page.wait_for_function(
            """(wanted) => JSON.stringify([...document.querySelectorAll('.message')].map((found) => [
                 Number(found.ariaLevel) - 1, found.querySelector('.by').textContent,
                 found.querySelector('.body').textContent])) === wanted""",
            arg=json.dumps(wanted, separators=(",", ":"), ensure_ascii=False),
        )

    def close(self):
        self.context.close()
