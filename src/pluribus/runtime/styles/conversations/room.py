"""One conversation as a program holds it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from ....conversations.history import WRITERS_MAX, Delivered, History, Node
from ....conversations.kept import KeptConversation
from ....conversations.synchronising import Synchronising
from ....conversations.words import Entry, checked_body, decode_room, longest_word_bytes
from ....core.errors import BadInput, Closed, Overflow, TooLarge
from ....core.ids import MessageId
from ....core.ports import Change, Store
from ...group.group import Group
from ...loop.futures import looked_at
from .calling import call_safely
from .carrier import ProtocolCarrier

if TYPE_CHECKING:
    from .lobby import Conversations

log = logging.getLogger(__name__)

UNREAD_MAX = 100_000
"""Messages that wait for one iteration."""
WORD_SPARE_BYTES = 128


class Unread(deque[Delivered]):
    """The messages that wait for one iteration. ``over``: there were more than fit."""

    over = False


class Room:
    """Made by ``bus.conversation(name)``. Iterate it for messages as they are delivered; ``tree`` and ``history`` have
    all known messages, those from before this member came included."""

    def __init__(
        self,
        lobby: Conversations,
        group: Group,
        name: str,
        history: History,
        store: Store | None,
        *,
        looking: bool = False,
    ) -> None:
        bus = lobby.bus
        self.name = name
        self.looking = looking
        """Opened only to be read: this person does not become a member, and sends nothing."""
        self._lobby = lobby
        self._history = history
        self._store = store
        self._kept = KeptConversation(store, name) if store is not None else None
        self._unsaved: list[Entry] = []
        self._saving = False
        self._writes: set[asyncio.Future[None]] = set()
        self._readers: list[Unread] = []
        self._listeners: list[Callable[[list[Delivered]], None]] = []
        self._watchers: list[Callable[[], None]] = []
        self._view: Any = None
        self._arrived = asyncio.Event()
        self.closed = False
        if self._kept is not None:
            self._kept.load(history)
        piece_bytes = max(group.longest_bytes - WORD_SPARE_BYTES, 256)
        self._sync = Synchronising(int(group.me), history, bus._random, piece_bytes=piece_bytes)
        self._sync.issued = lobby.issued(name)
        self._sync.number = lobby.requests.get(name, 0)
        joining = (lambda: lobby.group(group.name), self._joined)
        self._carrier = ProtocolCarrier(group, self._sync, decode_room, bus.clock, self._settled, *joining)
        self._sync.begin(bus._now())

    def _joined(self, group: Group) -> None:
        """This client's connection broke, and it is in the group again, as another member: it says what it has, and
        asks for what it missed."""
        if self._sync.me != int(group.me):
            self._lobby.numbers_anew(self.name)
            self._sync.renamed(int(group.me))
        self._sync.begin(self._lobby.bus._now())

    @property
    def bounds(self) -> tuple[int, int, bool]:
        """``messages_max``, ``bytes_max`` and ``identities_only``, with which it was opened."""
        return self._history.messages_max, self._history.bytes_max, self._history.identities_only

    @property
    def description(self) -> str:
        return self._lobby.info(self.name).description

    @property
    def members(self) -> dict[str, bool]:
        """By person: True if it is here now, False if it is away. Persons that have left are not included."""
        here = set(self._carrier.group.view.names.values())
        return {person: person in here for person in self._lobby.info(self.name).members}

    @property
    def writing(self) -> list[str]:
        """The persons who are writing a message just now."""
        names = self._carrier.group.view.names
        return list(dict.fromkeys(names[member] for member in self._sync.typing.members if member in names))

    def write(self, going: bool = True) -> None:
        """Tell the others that this person is writing, or has stopped. Call it with every key: only a few of the calls
        are sent."""
        self._check_member()
        self._sync.write(going, self._lobby.bus._now())
        self._carrier.wake()

    async def send(self, text: str, parent: MessageId | None = None) -> MessageId:
        """Send a message, or answer the message ``parent``. Returns the message's identity when the message is in this
        member's store, if there is one, and on its way. ``BadInput`` for a parent that this member does not know;
        ``Overflow`` if the conversation has too many writers."""
        self._check_member()
        answered = None if parent is None else _identity(parent)
        if answered is not None and answered not in self._history:
            raise BadInput(f"there is no message {parent} in {self.name!r} to answer: use the id of one that was read")
        bus = self._lobby.bus
        identity = (self._sync.me, self._lobby.issued(self.name))
        entry = Entry(identity, answered, bus.name, bus._wall(), checked_body(text))
        size, most = longest_word_bytes(entry), self._carrier.group.longest_bytes
        if size > most and not self._carrier.group.cuts:
            raise TooLarge(f"a message of {size:,} bytes is too long for this network: at most {most:,}, cut it")
        if not self._history.takes(identity[0]):
            raise Overflow(
                f"{self.name!r} has messages of {WRITERS_MAX:,} writers, of whom each start of a process is one, and "
                f"keeps those of no more: go on in a new conversation"
            )
        self._lobby.number(self.name)  # not before: all others would ask for a number without a message
        if self._kept is not None:
            try:
                await self._written(self._kept.changes([entry], self._history))
            except BaseException:
                self._kept.gave_up(entry)
                raise
        self._check_open()
        self._sync.say(entry, bus._now())
        self._sync.fresh.clear()
        self._settled()
        self._carrier.wake()
        return entry.id

    def tree(self) -> Node:
        """All messages as a tree, each answer under the message that it answers; the same at all members with the same
        messages."""
        return self._history.tree()

    def history(self) -> list[Entry]:
        """All messages, in the order in which this member received them."""
        return list(self._history.entries())

    def get(self, message: MessageId) -> Entry | None:
        return self._history.get(_identity(message))

    def __repr__(self) -> str:
        return f"<conversation {self.name!r}{', closed' if self.closed else ''}>"

    async def __aiter__(self) -> AsyncIterator[Entry]:
        """Messages from now on, each after the message that it answers."""
        async for delivered in self.deliveries():
            yield delivered.entry

    async def deliveries(self) -> AsyncIterator[Delivered]:
        """Messages from now on, each with a mark if it is an orphan: the message that it answers did not come.
        ``Overflow`` if the reader is too slow: the messages that it missed are in ``history``."""
        unread = Unread()
        self._readers.append(unread)
        try:
            while True:
                while unread:
                    yield unread.popleft()
                if unread.over:
                    raise Overflow(
                        f"more than {UNREAD_MAX:,} messages of {self.name!r} were unread: see room.history()"
                    )
                if self.closed:
                    return
                self._arrived.clear()
                await self._arrived.wait()
        finally:
            self._readers.remove(unread)

    def on_messages(self, listener: Callable[[list[Delivered]], None]) -> Callable[[], None]:
        """Call ``listener`` with every message that is delivered from now on; the returned function ends that. A
        listener that fails is logged, and called again."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` when ``members`` or ``writing`` may have changed; the returned function ends that."""
        self._watchers.append(listener)
        return lambda: self._watchers.remove(listener)

    def changed(self) -> None:
        """Call the listeners for changes; the lobby does it when a member joins or leaves."""
        for watcher in list(self._watchers):
            call_safely(watcher)

    def synchronise(self) -> None:
        """Ask for missing messages now. Joining does it too, and so does every member once in a while."""
        self._sync.begin(self._lobby.bus._now())
        self._carrier.wake()

    async def leave(self) -> None:
        """Leave for good: the other members are told, and this person is not a member any more. The store keeps its
        history."""
        await self._lobby.leave(self.name)

    async def close(self) -> None:
        """Go away, and stay a member: after coming back it gets the messages sent meanwhile."""
        if not self.closed:
            await self._carrier.sent()
            if self._writes:
                await asyncio.wait(self._writes)
            self.abandon()
            await self._carrier.close()
            self._lobby.forget(self)

    def abandon(self) -> None:
        self.closed = True
        self._arrived.set()
        self._carrier.abandon()
        for write in list(self._writes):
            if not write.done():
                write.set_exception(Closed(f"the conversation {self.name!r} was closed before its message was on disk"))

    def stats(self) -> dict[str, int]:
        return {**self._history.stats(), **self._sync.stats(), "malformed": self._carrier.malformed}

    def validate(self) -> None:
        self._sync.validate()
        assert all(len(unread) <= UNREAD_MAX for unread in self._readers)

    def _settled(self) -> None:
        """Hand on delivered messages, and have them stored."""
        delivered, self._sync.delivered = self._sync.delivered, []
        for unread in self._readers:
            unread.over = unread.over or len(unread) + len(delivered) > UNREAD_MAX
            if not unread.over:
                unread.extend(delivered)
        if delivered:
            self._arrived.set()
            for listener in list(self._listeners):
                call_safely(listener, delivered)
        view = self._carrier.group.view
        if self._sync.typing.changed or view is not self._view:
            self._view, self._sync.typing.changed = view, False
            self.changed()
        fresh, self._sync.fresh = self._sync.fresh, []
        if self._kept is not None and fresh:
            self._unsaved += fresh
            self._save()

    def _save(self) -> None:
        """Store the messages that came, together, one write at a time. Messages that cannot be written are tried again
        with the next."""
        if self._saving or not self._unsaved or self._kept is None or self._store is None:
            return
        entries, self._unsaved = self._unsaved, []
        self._saving = True

        def done(error: Exception | None) -> None:
            self._saving = False
            if error is not None:
                log.warning("%d messages of %r are not on disk: %s", len(entries), self.name, error)
                self._unsaved = [*entries, *self._unsaved][:UNREAD_MAX]
            elif not self.closed:
                self._save()

        self._store.write(self._kept.changes(entries, self._history), done)

    async def _written(self, changes: list[Change]) -> None:
        assert self._store is not None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(looked_at)
        future.add_done_callback(self._writes.discard)
        self._writes.add(future)

        def done(error: Exception | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self._store.write(changes, done)
        await future

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(f"the conversation {self.name!r} is closed here: open it again with bus.conversation")

    def _check_member(self) -> None:
        self._check_open()
        if self.looking:
            raise BadInput(f"the conversation {self.name!r} was opened to be read: join it with bus.conversation")


def _identity(message: Any) -> MessageId:
    try:
        writer, number = message
        return int(writer), int(number)
    except (TypeError, ValueError):
        raise BadInput(f"{message!r} is not the identity of a message: use the id of one that was read") from None
