"""A keeper on a bus: its store, its place in the keepers' group, and the desk at which others ask.

Everybody who uses durable topics is in one group of the bus. Keepers tell in it who they are: the member that speaks
now is new with every start, the keeper is the same as long as its store. Words between keepers, and questions to a
keeper with their answers, go from member to member in that group.

**Who begins the log.** A store that never held one is fresh. When every member of the group has said what it keeps, and
nobody has a log, the eldest of the fresh keepers begins one: alone, in the primary view, or, if anybody asked for more
*voters*, with that many at once, as soon as they are there. Others then follow, and vote if they were asked
to, one after another. With several voters nothing is acknowledged that only one of them has, so whoever dies during
the founding, the log that the others agree on is the only one with acknowledged events in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ...core.errors import BadInput, Closed, Excluded, MalformedFrame, Overflow, PluribusError, Unavailable
from ...core.ids import checked_name
from ...core.limits import STORE_SUBMISSIONS_MAX
from ...core.ports import Store
from ...group.host.user import hosted
from ...group.keepers import Keeper, Settings
from ...group.keepers.words import LOST
from ...group.log import StateMachine
from ...pubsub.durable import requests
from ...pubsub.durable.requests import Answered, Asked, Failed, Request
from ...store.backend import Backend
from ...store.sqlite import SqliteBackend
from ..group.group import Group
from ..machines.kinds import style_machines
from .desk import Desk
from .store_writer import StoreWriter

if TYPE_CHECKING:
    from ..bus import Bus

LOG = "keepers"
OUTBOX_BYTES_MAX = 64 << 20
"""Words that wait for one member; more are dropped, and said again later."""
ANSWER_S = 30.0
"""A question that is not answered by then is taken for lost."""
SERVED_MAX = 4_096
"""Questions of other members that are being answered."""
TEND_S = 1.0
"""How often a keeper looks whether what it said of itself is still so."""
FRESH_S = 0.02
"""How often a keeper without a log, or without a name on disk, looks whether it may begin."""
ADMIT_S = 0.2
VOTERS_MAX = 7
WORDS, HERE, ASK = b"\x00", b"\x01", b"\x02"
SETTINGS = Settings(snapshot_bytes=32 << 20)
RESERVED_KINDS = ("topics", "queues", "spaces", "memory", "slots", "objects", "conversations", "access")

log = logging.getLogger("pluribus")


class Here(msgspec.Struct, array_like=True, frozen=True):
    """What a member keeps, said whenever the view or that changes."""

    keeper: int
    """0: nothing."""
    logged: bool
    """Whether it belongs to a log already."""
    votes: bool = False
    voters: int = 1
    """How many of them must be there before a log is begun."""


NOTHING = Here(0, False)


def founders_of(members: Sequence[int], heard: Mapping[int, Here]) -> list[int]:
    """The keepers that begin a log, the one who does it first; none if it is not time, or there is a log. ``members``
    are all in the group, the eldest first."""
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
    """The group of all that use durable topics, as one member has it: who keeps, and words to and from them."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.keepers: dict[int, Here] = {}
        """By member."""
        self.heard: dict[int, Here] = {}
        """The same, and those who keep nothing."""
        self.here: Here | None = None
        """What this member keeps; None before that is known."""
        self.on_words: Callable[[bytes], None] = lambda words: None
        self.serve: Callable[[Request], Awaitable[Any]] | None = None
        self.on_change: Callable[[], None] = lambda: None
        self._waiting: dict[int, tuple[Request, int, asyncio.Future[Any]]] = {}
        self._numbers = 0
        self._outboxes: dict[int, _Outbox] = {}
        self._serving: dict[asyncio.Task[None], None] = {}
        """In their order, which a set does not keep: a world must do the same every time."""
        self.dropped = 0
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._watch())]

    def say(self, here: Here) -> None:
        """What this member keeps; who comes later is told when it comes."""
        if here != self.here:
            self.here = self.heard[self.group.me] = here
            self._tell(self.group.view.members)

    def _tell(self, members: Iterable[int]) -> None:
        for member in members:
            if member != self.group.me and self.here is not None and self.here.keeper:
                self.send(member, HERE + _encode(self.here))

    def send(self, member: int, data: bytes) -> bool:
        """Sooner or later, in order, unless it goes; false if too much waits."""
        outbox = self._outboxes.get(member)
        if outbox is None:
            outbox = self._outboxes[member] = _Outbox(self.group, member)
        if outbox.put(data):
            return True
        self.dropped += 1
        return False

    async def ask(self, member: int, request: Request) -> Any:
        """Of a keeper elsewhere. ``Closed`` if it goes before it answered."""
        self._numbers += 1
        number = self._numbers
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (request, member, future)
        patience_s = ANSWER_S + float(getattr(request, "wait_s", 0.0))
        timer = future.get_loop().call_later(patience_s, _unanswered, future)
        try:
            if not self.send(member, ASK + requests.encode(Asked(number, request))):
                raise Overflow(f"{OUTBOX_BYTES_MAX:,} bytes wait for that keeper: ask again")
            return await future
        finally:
            timer.cancel()
            del self._waiting[number]

    async def close(self) -> None:
        self.abandon()
        await self.group.close()

    def abandon(self) -> None:
        for task in (*self._tasks, *self._serving):
            task.cancel()
        for outbox in self._outboxes.values():
            outbox.close()
        self._fail(lambda member: True, "the bus was closed")

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
                self._word(sender, requests.decode(data))
        except (MalformedFrame, msgspec.MsgspecError) as error:
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

    def _word(self, sender: int, word: requests.Word) -> None:
        if isinstance(word, Asked):
            if len(self._serving) < SERVED_MAX and self.serve is not None:
                task = asyncio.ensure_future(self._answer(sender, word))
                self._serving[task] = None
                task.add_done_callback(self._serving.pop)
            else:
                refused = Closed("this member keeps nothing, or is asked too much: ask another keeper")
                self.send(sender, ASK + requests.failed(word.number, refused))
            return
        waiting = self._waiting.get(word.number)
        if waiting is None or waiting[1] != sender or waiting[2].done():
            return
        if isinstance(word, Answered):
            waiting[2].set_result(requests.result_of(waiting[0], word))
        else:
            assert isinstance(word, Failed)
            waiting[2].set_exception(requests.error_of(word))

    async def _answer(self, sender: int, asked: Asked) -> None:
        assert self.serve is not None
        try:
            answer = requests.answered(asked.number, await self.serve(asked.request))
        except PluribusError as error:
            answer = requests.failed(asked.number, error)
        except Exception as error:
            log.exception("a keeper failed with a question")
            answer = requests.failed(asked.number, error)
        self.send(sender, ASK + answer)

    async def _watch(self) -> None:
        async for view in self.group.views():
            for known in (self.keepers, self.heard):
                for member in known.keys() - set(view.members):
                    del known[member]
            self._tell(view.members)
            for member in self._outboxes.keys() - set(view.members):
                self._outboxes.pop(member).close()
            self._fail(lambda member, members=view.members: member not in members, "the keeper is gone")  # type: ignore[misc]
            self.on_change()

    def _fail(self, whom: Callable[[int], bool], why: str) -> None:
        for _, member, future in list(self._waiting.values()):
            if whom(member) and not future.done():
                future.set_exception(Closed(f"{why} before it answered: ask another one"))


def _unanswered(future: asyncio.Future[Any]) -> None:
    """The question or its answer got lost: there was too much to send, or somebody was cut off meanwhile."""
    if not future.done():
        future.set_exception(Closed("the keeper did not answer: ask again"))


class _Outbox:
    """What waits for one member; a task sends it."""

    def __init__(self, group: Group, member: int) -> None:
        self._group = group
        self._member = member
        self._queue: deque[bytes] = deque()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, data: bytes) -> bool:
        if self._bytes + len(data) > OUTBOX_BYTES_MAX or len(self._queue) >= STORE_SUBMISSIONS_MAX:
            return False
        self._queue.append(data)
        self._bytes += len(data)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._send())
        return True

    async def _send(self) -> None:
        with suppress(BadInput, Closed, Excluded):  # it is gone, or we are
            while self._queue:
                data = self._queue.popleft()
                self._bytes -= len(data)
                await self._group.send(data, to=self._member)

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()


class BusKeeper:
    """The keeper of this process. ``votes``: ask to be counted; else it learns, unless it began the log."""

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
        self.desk = Desk(self.keeper, {**style_machines(), **codes})
        self.desk.member = bus.name
        self._tasks: list[asyncio.Task[None]] = []
        meeting.on_words = self.keeper.receive
        meeting.serve = self.desk.ask
        meeting.on_change = self._changed

    async def start(self) -> None:
        self.keeper.start()
        self.desk.tending.start()
        self._changed()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._tend())]
        if self._votes:
            self._tasks.append(loop.create_task(self._admitted()))

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
        """Ask to vote until that is so, once for each log: who was made no voter by somebody does not ask again before
        it is started again."""
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
        """Have a keeper counted from now on, or not any more."""
        await self.desk._placed(lambda done: self.keeper.set_voter(keeper, votes, done))

    async def _tend(self) -> None:
        """Look whether a log can be begun, and tell the others what this member keeps."""
        while not self._bus.closed:
            unknown = self.keeper.ledger.fresh or self._meeting.here is None
            await asyncio.sleep(FRESH_S if unknown else TEND_S)
            self._changed()

    def stats(self) -> dict[str, Any]:
        told = {**self.keeper.stats(), **self.desk.stats(), "dropped": self._meeting.dropped}
        return told

    @property
    def ready(self) -> bool:
        """Whether it belongs to a log, has its state, and the code for it."""
        keeper = self.keeper
        return not keeper.ledger.fresh and keeper.ledger.meta.health != LOST and not keeper.seat.halted

    @property
    def counted(self) -> bool:
        """Whether it leads or knows who does, and votes if it wanted to."""
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
    if kind in RESERVED_KINDS:
        raise BadInput(f"{kind!r} is a kind of machine of Pluribus itself: give yours another name")
    return checked_name(kind, "the machine")


def opened_store(path: str, *, fresh: bool = False) -> StoreWriter:
    """A store with its writing thread, on the running loop."""
    return StoreWriter(backend_for(path, fresh=fresh), asyncio.get_running_loop())
