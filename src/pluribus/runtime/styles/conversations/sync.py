"""Conversations without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

from ....conversations.history import BYTES_MAX, MESSAGES_MAX, Delivered, Node
from ....conversations.words import Entry, GroupInfo
from ....core.ids import MessageId
from ...loop.background import Background
from ...sync.face import Closing, StandIn, one_by_one
from . import lobby as real_lobby
from . import room as real_room
from .application import GroupManager
from .calling import call_safely

log = logging.getLogger(__name__)

CALLS_MAX = 10_000
"""Calls of call-backs that wait for a program that is slow."""


class SyncRoom(Closing):
    """See ``Room``. Iterate it for messages from now on. Listeners are called in the thread of the bus, which they must
    not keep."""

    _real: real_room.Room

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def looking(self) -> bool:
        return self._real.looking

    @property
    def bounds(self) -> tuple[int, int, bool]:
        return self._real.bounds

    @property
    def description(self) -> str:
        return self._thread.ask(lambda: self._real.description)

    @property
    def members(self) -> dict[str, bool]:
        return self._thread.ask(lambda: self._real.members)

    @property
    def writing(self) -> list[str]:
        return self._thread.ask(lambda: self._real.writing)

    def write(self, going: bool = True) -> None:
        self._thread.ask(self._real.write, going)

    def send(self, text: str, parent: MessageId | None = None) -> MessageId:
        return self._thread.call(self._real.send, text, parent)

    def tree(self) -> Node:
        return self._thread.ask(self._real.tree)

    def history(self) -> list[Entry]:
        return self._thread.ask(self._real.history)

    def get(self, message: MessageId) -> Entry | None:
        return self._thread.ask(self._real.get, message)

    def __iter__(self) -> Iterator[Entry]:
        return one_by_one(self._thread, aiter(self._real))

    def deliveries(self) -> Iterator[Delivered]:
        return one_by_one(self._thread, self._real.deliveries())

    def on_messages(self, listener: Callable[[list[Delivered]], None]) -> Callable[[], None]:
        stop = self._thread.ask(self._real.on_messages, listener)
        return lambda: self._thread.ask(stop)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        stop = self._thread.ask(self._real.on_change, listener)
        return lambda: self._thread.ask(stop)

    def synchronise(self) -> None:
        self._thread.ask(self._real.synchronise)

    def leave(self) -> None:
        self._thread.call(self._real.leave)

    def stats(self) -> dict[str, int]:
        return self._thread.ask(self._real.stats)


class SyncConversations(StandIn):
    """See ``Conversations``. Listeners are called in the thread of the bus, which they must not keep."""

    _real: real_lobby.Conversations

    def info(self, name: str) -> GroupInfo:
        return self._thread.ask(self._real.info, name)

    @property
    def joined(self) -> list[str]:
        return self._thread.ask(lambda: self._real.joined)

    @property
    def invited(self) -> list[GroupInfo]:
        return self._thread.ask(lambda: self._real.invited)

    @property
    def rooms(self) -> dict[str, SyncRoom]:
        rooms = self._thread.ask(lambda: self._real.rooms)
        return {name: SyncRoom(room, self._thread) for name, room in rooms.items()}

    def __iter__(self) -> Iterator[GroupInfo]:
        return self._thread.ask(lambda: iter(self._real))

    def room(
        self,
        name: str,
        description: str = "",
        *,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
        identities_only: bool = False,
    ) -> SyncRoom:
        return SyncRoom(
            self._thread.call(
                self._real.room,
                name,
                description,
                messages_max=messages_max,
                bytes_max=bytes_max,
                identities_only=identities_only,
            ),
            self._thread,
        )

    def look(self, name: str) -> SyncRoom:
        return SyncRoom(self._thread.call(self._real.look, name), self._thread)

    def join(self, name: str) -> SyncRoom:
        return SyncRoom(self._thread.call(self._real.join, name), self._thread)

    def refuse(self, name: str) -> None:
        self._thread.ask(self._real.refuse, name)

    def leave(self, name: str) -> None:
        self._thread.call(self._real.leave, name)

    def advertise(self) -> None:
        self._thread.ask(self._real.advertise)

    def invitations(self) -> Iterator[GroupInfo]:
        return one_by_one(self._thread, self._real.invitations())

    def on_invitations(self, listener: Callable[[list[GroupInfo]], None]) -> Callable[[], None]:
        stop = self._thread.ask(self._real.on_invitations, listener)
        return lambda: self._thread.ask(stop)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        stop = self._thread.ask(self._real.on_change, listener)
        return lambda: self._thread.ask(stop)

    def stats(self) -> dict[str, Any]:
        return self._thread.ask(self._real.stats)


class SyncGroupManager(ABC):
    """See ``GroupManager``. The call-backs run one after another in a thread of the manager's own: they may block, and
    call its methods. A program that is ``CALLS_MAX`` calls behind misses the next ones, and the log says so; the
    messages are in ``bus.conversation(gid).history()``."""

    def __init__(self, bus: Any, *, store: str | os.PathLike[str] | None = None) -> None:
        self._bus = bus
        self._thread: Background = bus._thread
        self._real = _HandedOver(bus._real, store, self._hand_over)
        self._calls: SimpleQueue[tuple[str, tuple[Any, ...]] | None] = SimpleQueue()
        self._behind = False

    @property
    def bus(self) -> Any:
        return self._bus

    def start(self) -> None:
        threading.Thread(target=self._call_back, name="pluribus-group-manager", daemon=True).start()
        self._thread.call(self._real.start)

    @abstractmethod
    def on_messages(self, gid: str, messages: list[Entry]) -> None: ...

    @abstractmethod
    def on_new_groups(self, groups: list[GroupInfo]) -> None: ...

    @abstractmethod
    def on_group_created(self, gid: str) -> None: ...

    def create_group(self, description: str) -> str:
        return self._thread.call(self._real.create_group, description)

    def join_group(self, gid: str) -> None:
        self._thread.call(self._real.join_group, gid)

    def reject_group(self, gid: str) -> None:
        self._thread.ask(self._real.reject_group, gid)

    def leave_group(self, gid: str) -> None:
        self._thread.call(self._real.leave_group, gid)

    def send(self, gid: str, data: str, parent: MessageId | None = None) -> MessageId:
        return self._thread.call(self._real.send, gid, data, parent)

    def advertise(self) -> None:
        self._thread.ask(self._real.advertise)

    def _hand_over(self, call: tuple[str, tuple[Any, ...]] | None) -> None:
        """In the thread of the bus. None: it was the last call."""
        if call is not None and self._calls.qsize() >= CALLS_MAX:
            if not self._behind:
                log.error(
                    "%s is %d call-backs behind, and is given no more until it is not", type(self).__name__, CALLS_MAX
                )
            self._behind = True
            return
        self._behind = False
        self._calls.put(call)

    def _call_back(self) -> None:
        while (call := self._calls.get()) is not None:
            name, given = call
            call_safely(getattr(self, name), *given)


class _HandedOver(GroupManager):
    """Has its call-backs called elsewhere."""

    def __init__(
        self,
        bus: Any,
        store: str | os.PathLike[str] | None,
        hand_over: Callable[[tuple[str, tuple[Any, ...]] | None], None],
    ) -> None:
        super().__init__(bus, store=store)
        self._hand_over = hand_over
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await super().start()
        self._ending = asyncio.create_task(self._end())

    async def _end(self) -> None:
        async for _ in self._started().invitations():
            pass  # they come as call-backs; this ends with the bus
        self._hand_over(None)

    def on_messages(self, gid: str, messages: list[Entry]) -> None:
        self._hand_over(("on_messages", (gid, messages)))

    def on_new_groups(self, groups: list[GroupInfo]) -> None:
        self._hand_over(("on_new_groups", (groups,)))

    def on_group_created(self, gid: str) -> None:
        self._hand_over(("on_group_created", (gid,)))
