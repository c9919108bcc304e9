"""One browser that looks at a person's rooms. What is new is told it a moment later, many things together."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from nicegui import ui
from nicegui.element import Element

from ...conversations.words import Entry
from ...core.errors import BadInput, PluribusError
from .person import Person
from .words import Asked, Create, Earlier, Hello, Join, Leave, Open, Read, Refuse, Say, Write, asked

GATHER_S = 0.015
"""How long news is gathered."""
ROWS_MAX = 20_000
"""Messages that a browser is given at first, and more each time that it asks for earlier ones."""
BROWSER = Path(__file__).parent / "browser"


class ChatElement(Element, component="chat.js", esm={"pluribus-chat": "browser"}):
    """The page, whose parts are drawn in the browser."""


class Screen:
    """Made while a page is built. ``close`` it when the browser is gone."""

    def __init__(self, person: Person, first: str | None = None) -> None:
        self._person = person
        self._first = first or ""
        self._room = ""
        self._shown = ROWS_MAX
        self._number = 0
        self._words: list[dict[str, Any]] = []
        self._entries: list[Entry] = []
        self._stale_lobby = False
        self._stale_people = False
        self._timer: asyncio.TimerHandle | None = None
        self._greeted = False
        ui.add_css(BROWSER / "chat.css")
        self._element = ChatElement().on("ask", self._asked)
        self._stop = person.watch(self)

    def close(self) -> None:
        self._stop()
        self._greeted = False
        if self._timer is not None:
            self._timer.cancel()

    # What the browser asks

    async def _asked(self, event: Any) -> None:
        word: Asked | None = None
        try:
            word = asked(event.args)
            await self._do(word)
        except PluribusError as error:
            self._tell({"type": "failed", "why": str(error), "saying": isinstance(word, Say)})

    async def _do(self, word: Asked) -> None:
        person = self._person
        match word:
            case Hello():
                self._greet(word.room)
            case Open():
                person.room(word.room)
                self._show(word.room)
            case Say():
                if not word.text.strip():
                    raise BadInput("there is nothing to say: write something first")
                said = await person.say(word.room, word.text, word.parent)
                self._flush()  # the browser gets the message before it is told that it was said
                self._tell({"type": "said", "name": word.room, "id": said})
                self._flush()
            case Write():
                person.room(word.room).room.write(word.going)
            case Create():
                await person.create(word.room, word.about)
                self._show(word.room)
            case Join():
                await person.join(word.room)
                self._show(word.room)
            case Refuse():
                person.refuse(word.room)
            case Leave():
                await person.leave(word.room)
            case Read():
                person.mark_read(word.room, word.ids)
            case Earlier():
                self._shown += ROWS_MAX
                self._show(word.room, more=True)

    def _greet(self, wanted: str) -> None:
        """Everything anew."""
        rooms = self._person.rooms
        chosen = next((name for name in (wanted, self._room, self._first, *sorted(rooms)) if name in rooms), "")
        self._greeted = True
        self._words = [{"type": "begin"}, {"type": "lobby", **self._person.lobby()}]
        self._stale_lobby = False
        self._show(chosen)
        self._flush()

    def _show(self, name: str, *, more: bool = False) -> None:
        if not more:
            self._shown = ROWS_MAX
        self._room = name
        self._entries.clear()
        self._stale_people = False
        if name:
            found = self._person.room(name)
            rows, earlier = found.latest(self._shown)
            self._tell({"type": "room", **found.people(), "rows": rows, "earlier": earlier})
        else:
            empty: dict[str, Any] = {"about": "", "members": [], "writing": [], "rows": [], "earlier": 0}
            self._tell({"type": "room", "name": "", **empty})

    # What is new

    def lobby_changed(self) -> None:
        self._stale_lobby = True
        self._soon()

    def people_changed(self, room: str) -> None:
        if room == self._room:
            self._stale_people = True
            self._soon()

    def messages(self, room: str, entries: list[Entry]) -> None:
        if room == self._room:
            self._entries += entries
            self._soon()

    def read(self, room: str, ids: list[str]) -> None:
        self._tell({"type": "read", "name": room, "ids": ids})

    def left(self, room: str) -> None:
        if room == self._room:
            self._show(next(iter(sorted(self._person.rooms)), ""))

    def _tell(self, word: dict[str, Any]) -> None:
        self._words.append(word)
        self._soon()

    def _soon(self) -> None:
        if self._timer is None and self._greeted:
            self._timer = asyncio.get_running_loop().call_later(GATHER_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._greeted:
            self._words.clear()
            self._entries.clear()
            return
        found = self._person.rooms.get(self._room)
        if self._entries and found is not None:
            self._words.append({"type": "rows", "name": self._room, "rows": found.rows(self._entries)})
        if self._stale_people and found is not None:
            self._words.append({"type": "people", **found.people()})
        if self._stale_lobby:
            self._words.append({"type": "lobby", **self._person.lobby()})
        self._entries = []
        self._stale_people = self._stale_lobby = False
        words, self._words = self._words, []
        if words:
            self._number += 1
            self._element.run_method("take", self._number, words)
