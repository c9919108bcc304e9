"""All conversations of one member: those that it knows, those that it has joined, and invitations."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from ....conversations.history import BYTES_MAX, MESSAGES_MAX, History
from ....conversations.joining import JOINED, REFUSED, Joining
from ....conversations.kept import TABLE, load_table
from ....conversations.words import GroupInfo, checked_description, decode_lobby, encode
from ....core.errors import BadInput, Closed, Undelivered, Unreachable
from ....core.ids import checked_name
from ....core.limits import NAME_CHARS_MAX
from ....core.ports import Store
from ..style import Style
from .calling import call_safely
from .carrier import ProtocolCarrier
from .room import WORD_SPARE_BYTES, Room

log = logging.getLogger(__name__)

LOBBY = "conversations"
PREFIX = "conversation/"
NAME_MAX = NAME_CHARS_MAX - len(PREFIX)
INVITATIONS_MAX = 4_096


class Conversations(Style):
    """Made by ``await bus.conversations()``. Iterate ``invitations()`` for conversations of others."""

    on_clients = "pluribus.runtime.styles.conversations.lobby:Conversations"

    def __init__(self, bus: Any) -> None:
        super().__init__(bus)
        self._joining = Joining(bus.name, bus._random, present=self._present)
        self._carrier: ProtocolCarrier | None = None
        self._opening: asyncio.Lock = asyncio.Lock()
        self._rooms: dict[str, Room] = {}
        self._numbers: dict[str, int] = {}
        """By conversation: the messages of this member, over all times that it opened the room."""
        self.requests: dict[str, int] = {}
        """By closed conversation: the number of this member's last request there."""
        self._readers: list[deque[GroupInfo]] = []
        self._listeners: list[Callable[[list[GroupInfo]], None]] = []
        self._watchers: list[Callable[[], None]] = []
        self._arrived = asyncio.Event()
        self._store: Store | None = bus.store
        self._own_store: Any = None
        self._path: str | None = None
        self._saving = self._unsaved = False
        self._ended = False

    async def open(self, store: str | os.PathLike[str] | None = None) -> Conversations:
        """Enter the lobby, the group in which conversations are advertised. With a ``store`` histories survive this
        process."""
        if "semantic" not in self.bus.orders:
            raise BadInput("conversations need the stack 'adhoc' or 'views': connect with one of them")
        if store is not None:
            self._use_store(os.fspath(store))
        async with self._opening:
            if self._carrier is None:
                group = await self.group(LOBBY)
                if self._store is not None:
                    self._joining.restore(load_table(self._store))
                self._joining.piece_bytes = max(group.longest_bytes - WORD_SPARE_BYTES, 256)
                joining = (lambda: self.group(LOBBY), lambda group: self._joining.enter(self.bus._now(), again=True))
                self._carrier = ProtocolCarrier(
                    group, self._joining, decode_lobby, self.bus.clock, self._settled, *joining
                )
                self._joining.enter(self.bus._now())
                self._settled()
        return self

    async def group(self, name: str) -> Any:
        """Join the group that carries a conversation, or the lobby. ``Closed`` if this bus is closed."""
        try:
            return await self.bus.group(name, order="semantic", own=False)
        except Closed as error:
            if self._ended or self.bus.closed:
                raise
            raise Unreachable(str(error)) from None  # the connection of a client is not back yet

    def _present(self) -> list[str]:
        """The persons who are on the network now."""
        return [] if self._carrier is None else list(self._carrier.group.view.names.values())

    def _use_store(self, path: str) -> None:
        if self._path == path:
            return
        if self._path is not None or self._carrier is not None:
            raise BadInput(f"conversations of this bus are kept in {self._path or 'memory'}: give store= first, or not")
        from ...keepers.keeper import opened_store

        self._own_store = self._store = opened_store(path)
        self._path = path

    # Conversations

    def __iter__(self) -> Any:
        """Every conversation that this member knows, joined or not."""
        return iter([group.info() for group in self._joining.groups.values()])

    def info(self, name: str) -> GroupInfo:
        group = self._joining.groups.get(name)
        if group is None:
            raise BadInput(f"there is no conversation {name!r} that this member knows of: open it, or wait for a list")
        return group.info()

    @property
    def joined(self) -> list[str]:
        """The conversations that this person has joined, whether they are open here or not."""
        return sorted(group.gid for group in self._joining.groups.values() if group.standing == JOINED)

    @property
    def invited(self) -> list[GroupInfo]:
        """The conversations that this person has not joined, refused or left."""
        groups = self._joining.groups.values()
        return [group.info() for group in groups if group.standing not in (JOINED, REFUSED)]

    @property
    def rooms(self) -> dict[str, Room]:
        """The conversations that are open here."""
        return dict(self._rooms)

    async def room(
        self,
        name: str,
        description: str = "",
        *,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
        identities_only: bool = False,
    ) -> Room:
        """Join the conversation of that name, or create it. If it is open already, the same room is returned;
        ``BadInput`` if it was opened with other bounds than these."""
        checked_name(name, "the conversation")
        if len(name) > NAME_MAX:
            raise BadInput(f"a conversation's name of {len(name)} characters is too long: use at most {NAME_MAX}")
        checked_description(description)
        if messages_max < 1 or bytes_max < 1:
            raise BadInput(f"messages_max={messages_max}, bytes_max={bytes_max} keep nothing: use 1 or more")
        await self.open()
        async with self._opening:
            found = self._rooms.get(name)
            if found is not None and found.looking:
                await found.close()
            elif found is not None:
                kept, wished = found.bounds, (messages_max, bytes_max, identities_only)
                if wished not in (kept, (MESSAGES_MAX, BYTES_MAX, False)):
                    raise BadInput(
                        f"the conversation {name!r} is open here with messages_max={kept[0]}, bytes_max={kept[1]}, "
                        f"identities_only={kept[2]}: give the same, or close it first"
                    )
                return found
            group = await self.group(PREFIX + name)
            self._joining.create(name, description, self.bus._wall(), self.bus._now())
            history = History(
                messages_max=messages_max, bytes_max=bytes_max, identities_only=identities_only, person=self.bus.name
            )
            room = self._rooms[name] = Room(self, group, name, history, self._store)
            self._wake()
            return room

    async def look(self, name: str) -> Room:
        """Open a conversation to read it without becoming a member: close the room afterwards, and send nothing in
        it."""
        self.info(name)
        async with self._opening:
            if name in self._rooms:
                return self._rooms[name]
            group = await self.group(PREFIX + name)
            room = self._rooms[name] = Room(self, group, name, History(), None, looking=True)
            return room

    async def join(self, name: str) -> Room:
        """Accept an invitation."""
        self.info(name)
        return await self.room(name)

    def refuse(self, name: str) -> None:
        """Refuse an invitation: it is not reported again before this member advertises itself again."""
        self._joining.refuse(name)
        self._settled()

    async def leave(self, name: str) -> None:
        """Leave for good: the other members are told."""
        self._joining.leave(name, self.bus._now())
        self._wake()
        room = self._rooms.get(name)
        if room is not None:
            await room.close()

    def advertise(self) -> None:
        """Announce this member, and have refused conversations reported again."""
        self._joining.enter(self.bus._now())
        self._wake()

    async def invitations(self) -> AsyncIterator[GroupInfo]:
        """Conversations that this member knows and has not joined: first the present ones, then new ones."""
        unread = deque(self.invited)
        self._readers.append(unread)
        try:
            while True:
                while unread:
                    yield unread.popleft()
                if self._ended:
                    return
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self._readers.remove(unread)

    def on_invitations(self, listener: Callable[[list[GroupInfo]], None]) -> Callable[[], None]:
        """Call ``listener`` with new invitations; the returned function ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` when conversations, their descriptions or members may have changed; the returned function
        ends that."""
        self._watchers.append(listener)
        return lambda: self._watchers.remove(listener)

    def issued(self, name: str) -> int:
        """How many messages of this member are numbered there."""
        return self._numbers.get(name, 0)

    def number(self, name: str) -> int:
        """The number of this member's next message there; never the same twice."""
        number = self._numbers.get(name, 0)
        self._numbers[name] = number + 1
        return number

    def numbers_anew(self, name: str) -> None:
        """This member has another identity in a conversation: its messages there are numbered from the beginning."""
        self._numbers.pop(name, None)

    def forget(self, room: Room) -> None:
        """A room is closed."""
        self.requests[room.name] = room._sync.number
        if self._rooms.get(room.name) is room:
            del self._rooms[room.name]

    def _wake(self) -> None:
        self._settled()
        if self._carrier is not None:
            self._carrier.wake()

    def _settled(self) -> None:
        invited, self._joining.invitations = self._joining.invitations, []
        if invited:
            for unread in self._readers:
                unread.extend(invited[: INVITATIONS_MAX - len(unread)])
            for listener in list(self._listeners):
                call_safely(listener, invited)
            self._arrived.set()
        if self._joining.changed:
            self._unsaved = True
            if not self._saving:
                self._save()
        changed, self._joining.changed = self._joining.changed, set()
        if changed:
            for name in changed & self._rooms.keys():
                self._rooms[name].changed()
            for watcher in list(self._watchers):
                call_safely(watcher)

    def _save(self) -> None:
        """Store the table of conversations; changes that come during a write are stored together by the next one."""
        if self._store is None or self._ended or not self._unsaved:
            return
        self._saving, self._unsaved = True, False

        def done(error: Exception | None) -> None:
            self._saving = False
            if error is None:
                self._save()
            else:  # it is tried again with the next change
                self._unsaved = True
                log.warning("the list of conversations is not on disk: %s", error)

        self._store.put(TABLE, encode([group.info() for group in self._joining.groups.values()]), done)

    # The style

    async def drain(self, timeout: float) -> None:
        carriers = [room._carrier for room in self._rooms.values()]
        if self._carrier is not None:
            carriers.append(self._carrier)
        try:
            await asyncio.wait_for(asyncio.gather(*[carrier.sent() for carrier in carriers]), timeout)
        except TimeoutError:
            raise Undelivered(
                f"words of {len(carriers)} conversations wait to be sent: give close() more time"
            ) from None

    async def close(self) -> None:
        for room in list(self._rooms.values()):
            await room.close()
        if self._carrier is not None:
            await self._carrier.close()
        self._save()
        self.abandon()
        if self._own_store is not None:
            self._own_store.close()

    def abandon(self) -> None:
        self._ended = True
        self._arrived.set()
        for room in self._rooms.values():
            room.abandon()
        if self._carrier is not None:
            self._carrier.abandon()

    def stats(self) -> dict[str, Any]:
        return {"lobby": self._joining.stats(), **{name: room.stats() for name, room in self._rooms.items()}}

    def validate(self) -> None:
        self._joining.validate()
        for room in self._rooms.values():
            room.validate()
