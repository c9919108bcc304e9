"""A keeper on a bus: its store, its place in the keepers' group, and the desk at which others ask.

All members that use durable topics are in one group of the bus. In it keepers say who they are: a member is new with
every start, but a keeper stays the same as long as it has its store. Words between keepers, and questions to keepers
with their answers, go from member to member in that group.

**Who begins the log.** A store that never held a log is *fresh*. When every member of the group has said what it keeps,
and none has a log, the eldest of the fresh keepers begins one. In the primary view it begins alone; or, if any of them
asked for more *voters*, with that many at once, as soon as they are there. Other keepers then follow, and become voters
one after another if they asked for it. With several voters nothing is acknowledged that only one of them has. So
whoever dies during the founding, only the log on which the others agree has acknowledged events.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ...core.errors import BadInput, Excluded, MalformedFrame, PluribusError, Unavailable
from ...core.ids import checked_name
from ...core.ports import Store
from ...group.host.user import hosted
from ...group.keepers import Keeper, Settings
from ...group.keepers.words import LOST
from ...group.log import StateMachine
from ...store.backend import Backend
from ...store.sqlite import SqliteBackend
from ..group.group import Group
from ..group.member_line import MemberLine
from ..machines.kinds import STYLE_MACHINES, style_machines
from .desk import KeeperDesk
from .store_writer import StoreWriter

if TYPE_CHECKING:
    from ..bus import Bus

LOG = "keepers"
TEND_S = 1.0
"""How often a keeper checks whether what it said of itself is still true."""
FRESH_S = 0.02
"""How often a keeper without a log, or without a name on disk, looks whether it may begin."""
ADMIT_S = 0.2
VOTERS_MAX = 7
COUNTED_MACHINES_MAX = 32
"""Machines of which ``pluribus top`` is told."""
WORDS, HERE, ASK = b"\x00", b"\x01", b"\x02"
SETTINGS = Settings(snapshot_bytes=32 << 20)
RESERVED_KINDS = ("topics", "consumer-group", "queues", "spaces", "memory", "slots", "objects", "conversations")
"""Besides those of ``STYLE_MACHINES``."""

log = logging.getLogger("pluribus")


class Here(msgspec.Struct, array_like=True, frozen=True):
    """What a member keeps; sent whenever the view changes, or the answer does."""

    keeper: int
    """0: nothing."""
    logged: bool
    """Whether it belongs to a log already."""
    votes: bool = False
    voters: int = 1
    """How many of them must be there before a log is begun."""


NOTHING = Here(0, False)


def founders_of(members: Sequence[int], heard: Mapping[int, Here]) -> list[int]:
    """The keepers that begin a log, the acting one first; none if it is too early, or if there is a log. ``members``
    are all members of the group, the eldest first."""
    if any(member not in heard or heard[member].logged for member in members):
        return []
    fresh = [heard[member] for member in members if heard[member].keeper]
    wanted = max((here.voters for here in fresh), default=1)
    if wanted > 1:
        fresh = [here for here in fresh if here.votes]
    return [here.keeper for here in fresh[:wanted]] if len(fresh) >= wanted else []


_here = msgspec.msgpack.Decoder(Here)
_encode = msgspec.msgpack.Encoder().encode


def backend_for(path: str, *, fresh: bool = False) -> Backend:
    """The store that a path or a URL names: ``postgresql://…``, ``:memory:``, or a file."""
    if fresh and "://" in path:
        raise BadInput("fresh= is for stores that are files: give this keeper a schema of another name")
    if path.startswith(("postgres://", "postgresql://")):
        from ...store.postgres import PostgresBackend

        return PostgresBackend(path)
    return SqliteBackend(path, fresh=fresh)


class Meeting:
    """The group of all members that use durable topics, as one of them has it: the keepers, and words to and from
    them."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.keepers: dict[int, Here] = {}
        """By member."""
        self.heard: dict[int, Here] = {}
        """By member, including members that keep nothing."""
        self.here: Here | None = None
        """What this member keeps; None before that is known."""
        self.on_words: Callable[[bytes], None] = lambda words: None
        self.on_change: Callable[[], None] = lambda: None
        self.on_gone: Callable[[Collection[int]], None] = lambda members: None
        """Members that left the view."""
        self.line = MemberLine(group, ASK)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._watch())]

    def say(self, here: Here) -> None:
        """Say what this member keeps; later members are told when they come."""
        if here != self.here:
            self.here = self.heard[self.group.me] = here
            self._tell(self.group.view.members)

    def _tell(self, members: Iterable[int]) -> None:
        for member in members:
            if member != self.group.me and self.here is not None and self.here.keeper:
                self.send(member, HERE + _encode(self.here))

    def send(self, member: int, data: bytes) -> bool:
        """Sooner or later, in order, unless it goes; false if too much waits."""
        return self.line.send(member, data)

    async def ask(self, member: int, request: Any) -> Any:
        """Ask the keeper of another member; ``Closed`` if that member goes before it has answered."""
        return await self.line.ask(member, request)

    async def close(self) -> None:
        self.abandon()
        await self.group.close()

    def abandon(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.line.abandon()

    async def _read(self) -> None:
        while not self.group.closed:
            try:
                async for message in self.group:
                    if isinstance(message.body, bytes):
                        self._take(message.sender, message.body)
            except Excluded:
                continue

    def _take(self, sender: int, data: bytes) -> None:
        what, data = data[:1], data[1:]
        try:
            if what == WORDS:
                self.on_words(data)
            elif what == HERE:
                self._here(sender, _here.decode(data))
            else:
                self.line.take(sender, data)
        except (MalformedFrame, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("a member of %r sent %s", self.group.name, error)
        except Unavailable as error:  # the word is lost, and will be said again
            log.warning("a keeper could not deal with what it heard: %s", error)

    def _here(self, sender: int, here: Here) -> None:
        self.heard[sender] = here
        if self.here == NOTHING and here.keeper and not here.logged:
            self.send(sender, HERE + _encode(NOTHING))  # only who might begin a log need know
        if here.keeper and self.keepers.get(sender) != here:
            for old in [member for member, known in self.keepers.items() if known.keeper == here.keeper]:
                del self.keepers[old]
            self.keepers[sender] = here
        self.on_change()

    async def _watch(self) -> None:
        before: set[int] = set()
        async for view in self.group.views():
            gone, before = before - set(view.members), set(view.members)
            for known in (self.keepers, self.heard):
                for member in known.keys() - set(view.members):
                    del known[member]
            self._tell(view.members)
            self.line.viewed(view.members)
            if gone:
                self.on_gone(gone)
            self.on_change()


class BusKeeper:
    """The keeper of this process. ``votes``: it asks for a vote; else it only learns, unless it began the log."""

    def __init__(
        self,
        bus: Bus,
        meeting: Meeting,
        store: Store,
        *,
        votes: bool = False,
        voters: int = 1,
        settings: Settings = SETTINGS,
        machines: Mapping[str, Callable[[], StateMachine]] | None = None,
    ) -> None:
        if not 1 <= voters <= VOTERS_MAX:
            raise BadInput(f"voters={voters} are none to begin a log with: use 1 to {VOTERS_MAX}, best an odd number")
        self._bus = bus
        self._meeting = meeting
        self._votes = votes
        self._voters = voters
        refuse_older(store)
        self.keeper = Keeper(LOG, store, self, bus._stack.ports.clock, bus._random, settings, wall=bus._wall)
        codes = {kind: hosted(checked_kind(kind), code) for kind, code in (machines or {}).items()}
        self.desk = KeeperDesk(self.keeper, {**style_machines(), **codes})
        self.desk.member = bus.name
        self._tasks: list[asyncio.Task[None]] = []
        meeting.on_words = self.keeper.receive
        meeting.line.serve = self._serve
        meeting.on_change = self._changed
        meeting.on_gone = self.desk.tending.gone

    async def start(self) -> None:
        self.keeper.start()
        self.desk.tending.start()
        self._changed()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._tend())]
        if self._votes:
            self._tasks.append(loop.create_task(self._admitted()))

    async def _serve(self, request: Any, sender: int) -> Any:
        return await self.desk.ask(request)

    # The carrier of keepers' words.

    def send(self, to: int, words: bytes) -> None:
        for member, here in self._meeting.keepers.items():
            if here.keeper == to:
                self._meeting.send(member, WORDS + words)
                return

    def others(self) -> Sequence[int]:
        return [here.keeper for here in self._meeting.keepers.values()]

    def _changed(self) -> None:
        """Somebody came, went, or said something; or there is a log now."""
        meeting, keeper = self._meeting, self.keeper
        named = keeper.seat.may_speak or (keeper.ledger.broken and self._logged)
        if not named:  # its name is not on disk yet, and might be another one after a crash
            return
        meeting.say(Here(keeper.id, self._logged, self._votes, self._voters))
        if keeper.ledger.fresh:
            founders = founders_of(meeting.group.view.members, meeting.heard)
            alone = len(founders) == 1  # several have a majority of their own, which no other side of a partition has
            if founders and founders[0] == keeper.id and (self._bus.primary or not alone):
                keeper.found(founders)
                meeting.say(Here(keeper.id, True, self._votes, self._voters))

    @property
    def _logged(self) -> bool:
        return not self.keeper.ledger.fresh

    async def _admitted(self) -> None:
        """Ask for a vote until it is given, once for each log: a keeper whose vote was removed asks again only after a
        restart."""
        voted_in = 0
        while not self._bus.closed:
            cluster = self.keeper.ledger.meta.cluster
            if self.keeper.id in self.keeper.voters:
                voted_in = cluster if self.keeper.whole else voted_in  # who adopted a log does not know its voters yet
            elif cluster not in (0, voted_in):
                with suppress(PluribusError):
                    await self.set_voter(self.keeper.id, True)
                    voted_in = cluster
            await asyncio.sleep(ADMIT_S)

    async def set_voter(self, keeper: int, votes: bool) -> None:
        """Give a keeper a vote, or remove its vote."""
        await self.desk.placed(lambda done: self.keeper.set_voter(keeper, votes, done))

    async def _tend(self) -> None:
        """Check whether a log can be begun, and tell the others what this member keeps."""
        while not self._bus.closed:
            unknown = self.keeper.ledger.fresh or self._meeting.here is None
            await asyncio.sleep(FRESH_S if unknown else TEND_S)
            self._changed()

    def stats(self) -> dict[str, Any]:
        told = {**self.keeper.stats(), **self.desk.stats(), "dropped": self._meeting.line.dropped}
        return told

    def told(self) -> dict[str, dict[str, Any]]:
        """For ``pluribus top``: the log, and the machines that were asked most."""
        desk, kept = self.desk.stats(), self.keeper.stats()
        kept_at = self.keeper.seat.kept_at
        age_s = -1.0 if kept_at is None else round(self.keeper.seat.clock.now() - kept_at, 3)
        log = {name: kept[name] for name in ("role", "rows", "applied", "elections")}
        log |= {"live_bytes": desk["live_bytes"], "dead_bytes": desk["dead_bytes"], "snapshot_s": age_s}
        busiest = sorted(desk["machines"], key=lambda one: -int(one["commands"]))[:COUNTED_MACHINES_MAX]
        return {"keeper": log, "machines": {str(one["machine"]): one for one in busiest}}

    @property
    def ready(self) -> bool:
        """Whether it belongs to a log, has its state, and the code for it."""
        keeper = self.keeper
        return not keeper.ledger.fresh and keeper.ledger.meta.health != LOST and not keeper.seat.halted

    @property
    def counted(self) -> bool:
        """Whether it leads or knows the leader, and votes if it asked for that."""
        follows = self.ready and self.keeper.seat.leader != 0
        return follows and (not self._votes or self.keeper.id in self.keeper.voters)

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        for task in self._tasks:
            task.cancel()
        self.desk.close()
        self.keeper.stop()


def refuse_older(store: Store) -> None:
    """A store of before the log had machines cannot be read, and must not be taken for a new one."""
    if store.get("topics/meta/a") is not None or store.get("topics/meta/b") is not None:
        raise BadInput(
            "this store was written by an older, unreleased version of Pluribus, which this one cannot read: keep it "
            "as it is, and name a new file"
        )


def checked_kind(kind: str) -> str:
    """A name for a user's kind of machine."""
    if kind in (*RESERVED_KINDS, *STYLE_MACHINES):
        raise BadInput(f"{kind!r} is a kind of machine of Pluribus itself, or of a style: give yours another name")
    return checked_name(kind, "the machine")


def opened_store(path: str, *, fresh: bool = False) -> StoreWriter:
    """A store with its writing thread, on the running loop."""
    return StoreWriter(backend_for(path, fresh=fresh), asyncio.get_running_loop())
