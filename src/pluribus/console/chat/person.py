"""A person in conversations, for any number of screens. No browser is needed for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ...conversations.words import Entry, GroupInfo
from ...core.errors import BadInput, PluribusError
from .open_room import OpenRoom
from .words import identity, written

if TYPE_CHECKING:
    from ...runtime.bus import Bus
    from ...runtime.styles.conversations.lobby import Conversations

log = logging.getLogger(__name__)

LISTED_MAX = 50
"""Invitations that are shown, and rooms that were refused or left; when one is decided, the next is shown."""
NAMED_MAX = 4
"""Members of a room that an invitation names."""
COME_BACK_MAX = 64
"""Rooms that are opened because others know this person in them; more stay invitations, so that nobody can open any
number of rooms here by saying so."""


class Watcher(Protocol):
    """Told at once of everything that is new."""

    def lobby_changed(self) -> None: ...
    def people_changed(self, room: str) -> None: ...
    def messages(self, room: str, entries: list[Entry]) -> None: ...
    def read(self, room: str, ids: list[str]) -> None: ...
    def left(self, room: str) -> None: ...


class Person:
    """``start`` opens the rooms that this person is in, by its store or by what others know of it."""

    def __init__(self, bus: Bus, lobby: Conversations, wall: Callable[[], float]) -> None:
        self.name = bus.name
        self.rooms: dict[str, OpenRoom] = {}
        self._lobby = lobby
        self._wall = wall
        self._watchers: list[Watcher] = []
        self._come_back = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stops: list[Callable[[], None]] = []

    async def start(self, first: str | None = None) -> None:
        self._stops = [self._lobby.on_invitations(self._invited), self._lobby.on_change(self._changed)]
        for name in self._lobby.joined:
            await self.open(name)
        self._invited(self._lobby.invited)
        if first is not None:
            await self.open(first)

    async def open(self, name: str, about: str = "") -> OpenRoom:
        """Be in a room: that of this name, or a new one."""
        room = await self._lobby.room(name, about)
        found = self.rooms.get(name)
        if found is None or found.room is not room:
            found = self.rooms[name] = OpenRoom(room, self.name, self._wall(), self._told, self._people_changed)
            self._changed()
        return found

    def room(self, name: str) -> OpenRoom:
        found = self.rooms.get(name)
        if found is None:
            raise BadInput(f"you are not in the room {name!r}: join it first")
        return found

    async def create(self, name: str, about: str) -> None:
        if name in [info.gid for info in self._lobby]:
            raise BadInput(f"there is a room {name!r} already: join it, or take another name")
        await self.open(name, about)

    async def join(self, name: str) -> None:
        self._lobby.info(name)
        await self.open(name)

    def refuse(self, name: str) -> None:
        self._lobby.refuse(name)
        self._changed()

    async def leave(self, name: str) -> None:
        found = self.room(name)
        found.close()
        del self.rooms[name]
        await self._lobby.leave(name)
        for watcher in list(self._watchers):
            watcher.left(name)
        self._changed()

    async def say(self, name: str, text: str, parent: str | None) -> str:
        message = await self.room(name).room.send(text, None if parent is None else identity(parent))
        return written(message)

    def mark_read(self, name: str, ids: list[str]) -> None:
        read = self.room(name).read(map(identity, ids))
        if read:
            for watcher in list(self._watchers):
                watcher.read(name, read)
            self._changed()

    def lobby(self) -> dict[str, Any]:
        """What the list of rooms shows."""
        joined = set(self.rooms)
        invited = {info.gid for info in self._lobby.invited} - joined
        known = sorted(self._lobby, key=lambda info: info.gid)
        invitations = [info for info in known if info.gid in invited]
        others = [info for info in known if info.gid not in joined | invited]
        return {
            "me": self.name,
            "rooms": [{"name": name, "unread": self.rooms[name].unread} for name in sorted(joined)],
            "invitations": [_shown(info) for info in invitations[:LISTED_MAX]],
            "more": max(0, len(invitations) - LISTED_MAX),
            "others": [_shown(info) for info in others[:LISTED_MAX]],
        }

    def watch(self, watcher: Watcher) -> Callable[[], None]:
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def _invited(self, groups: list[GroupInfo]) -> None:
        """Rooms in which this person was in an earlier life of it are opened again."""
        for info in groups:
            if self.name in info.members and info.gid not in self.rooms and self._come_back < COME_BACK_MAX:
                self._come_back += 1
                task = asyncio.create_task(self._reopen(info.gid))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        self._changed()

    async def _reopen(self, name: str) -> None:
        try:
            await self.open(name)
        except PluribusError:
            log.exception("the room %r could not be opened again", name)

    def _changed(self) -> None:
        for watcher in list(self._watchers):
            watcher.lobby_changed()

    def _people_changed(self, name: str) -> None:
        for watcher in list(self._watchers):
            watcher.people_changed(name)

    def _told(self, name: str, entries: list[Entry]) -> None:
        for watcher in list(self._watchers):
            watcher.messages(name, entries)
        self._changed()

    def close(self) -> None:
        for stop in self._stops:
            stop()
        for room in self.rooms.values():
            room.close()
        for task in self._tasks:
            task.cancel()


def _shown(info: GroupInfo) -> dict[str, Any]:
    members = info.members
    return {"name": info.gid, "about": info.description, "members": members[:NAMED_MAX], "count": len(members)}
