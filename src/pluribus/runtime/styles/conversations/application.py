"""The group manager of M2MC, chapter 8: calls that a program makes, and call-backs that it implements.

For programs that like call-backs better than ``async for``. Subclass it, implement the three call-backs, ``start`` it.
Call-backs run on the loop of the bus and must not block; a call-back may not await, but may create tasks.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from ....conversations.history import Delivered
from ....conversations.words import Entry, GroupInfo
from ....core.errors import BadInput
from ....core.ids import MessageId
from .calling import call_safely

if TYPE_CHECKING:
    from .lobby import Conversations
    from .room import Room


class GroupManager(ABC):
    """All groups of one process: each is a conversation, and a process may be in many that overlap."""

    def __init__(self, bus: Any, *, store: str | os.PathLike[str] | None = None) -> None:
        self.bus = bus
        self._store = store
        self._lobby: Conversations | None = None
        self._created = 0
        self._rooms: dict[str, Room] = {}
        """Those whose messages are handed to ``on_messages``."""

    async def start(self) -> None:
        """Begin: advertise, and learn of groups. Groups of which this person is a member, by its store, are opened
        again: ``on_messages`` first gets the stored messages, then those sent meanwhile."""
        self._lobby = await self.bus.conversations(store=self._store)
        self._lobby.on_invitations(lambda groups: call_safely(self.on_new_groups, groups))
        known = [info for info in self._lobby if info.gid not in self._lobby.joined]
        if known:
            call_safely(self.on_new_groups, known)
        for gid in self._lobby.joined:
            await self._open(gid, "")

    # Implemented by the program

    @abstractmethod
    def on_messages(self, gid: str, messages: list[Entry]) -> None:
        """New messages of a group, each after the message that it answers (``sendMsg2Appl``)."""

    @abstractmethod
    def on_new_groups(self, groups: list[GroupInfo]) -> None:
        """Groups of others: join them or reject them (``displayNewGroupInfo``)."""

    @abstractmethod
    def on_group_created(self, gid: str) -> None:
        """A group that this program created is ready (``createdNewGroup``)."""

    # Called by the program

    async def create_group(self, description: str) -> str:
        """Create a group with an identity of its own; returns the identity."""
        self._created += 1
        gid = f"{self.bus.me}.{self._created}"
        await self._open(gid, description)
        call_safely(self.on_group_created, gid)
        return gid

    async def join_group(self, gid: str) -> None:
        self._started().info(gid)
        await self._open(gid, "")

    def reject_group(self, gid: str) -> None:
        """Do not report this group again before the next advertisement."""
        self._started().refuse(gid)

    async def leave_group(self, gid: str) -> None:
        self._rooms.pop(gid, None)
        await self._started().leave(gid)

    async def send(self, gid: str, data: str, parent: MessageId | None = None) -> MessageId:
        """Send a message to a group, or answer one of its messages (``receiveMsgfrmAppl``)."""
        room = self._started().rooms.get(gid)
        if room is None:
            raise BadInput(f"this process is not in the group {gid!r}: join it first")
        return await room.send(data, parent)

    def advertise(self) -> None:
        """Announce this process, and have rejected groups reported again."""
        self._started().advertise()

    async def _open(self, gid: str, description: str) -> None:
        room = await self._started().room(gid, description)
        if self._rooms.get(gid) is room:
            return
        self._rooms[gid] = room

        def given(delivered: list[Delivered]) -> None:
            call_safely(self.on_messages, gid, [found.entry for found in delivered])

        room.on_messages(given)
        if room.history():
            call_safely(self.on_messages, gid, room.history())

    def _started(self) -> Conversations:
        if self._lobby is None:
            raise BadInput("the group manager was not started: await manager.start() first")
        return self._lobby
