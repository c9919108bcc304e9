"""One room that a person is in, as its screens show it: messages, unread marks, who is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...conversations.words import Entry
from ...core.ids import MessageId
from .words import row, written

if TYPE_CHECKING:
    from ...runtime.styles.conversations.room import Room

UNREAD_MAX = 50_000
"""Marks of a room; with more, the oldest count as read."""


class OpenRoom:
    """Unread is what others said since this room was opened here; in a room that was kept or open before, also what
    they said while this person was away. ``told`` is called with new messages, ``changed`` when people differ."""

    def __init__(
        self, room: Room, me: str, now: float, told: Callable[[str, list[Entry]], None], changed: Callable[[str], None]
    ) -> None:
        self.room = room
        self._me = me
        self._unread: dict[MessageId, None] = {}
        self._since = 0.0 if room.history() else now
        self._told = told
        self._stops = [
            room.on_messages(lambda delivered: self._given([found.entry for found in delivered])),
            room.on_change(lambda: changed(room.name)),
        ]

    @property
    def unread(self) -> int:
        return len(self._unread)

    def _given(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.by != self._me and entry.at >= self._since:
                self._unread[entry.id] = None
        while len(self._unread) > UNREAD_MAX:
            del self._unread[next(iter(self._unread))]
        self._told(self.room.name, entries)

    def read(self, messages: Iterable[MessageId]) -> list[str]:
        """Take the marks off; those that had one."""
        return [written(message) for message in messages if self._unread.pop(message, self) is None]

    def rows(self, entries: Iterable[Entry]) -> list[list[Any]]:
        return [row(entry, entry.id in self._unread) for entry in entries]

    def latest(self, count: int) -> tuple[list[list[Any]], int]:
        """The latest messages, with all that they answer, and how many there are besides."""
        entries = self.room.history()
        if len(entries) > count:
            by_id = {entry.id: entry for entry in entries}
            wanted: dict[MessageId, Entry] = {}
            for entry in sorted(entries, key=lambda found: (found.at, found.id))[-count:]:
                above: Entry | None = entry
                while above is not None and above.id not in wanted:
                    wanted[above.id] = above
                    above = None if above.parent is None else by_id.get(above.parent)
            return self.rows(wanted.values()), len(entries) - len(wanted)
        return self.rows(entries), 0

    def people(self) -> dict[str, Any]:
        return {
            "name": self.room.name,
            "about": self.room.description,
            "members": list(self.room.members.items()),
            "writing": [name for name in self.room.writing if name != self._me],
        }

    def close(self) -> None:
        for stop in self._stops:
            stop()
