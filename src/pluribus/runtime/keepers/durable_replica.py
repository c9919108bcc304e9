"""A user's own state machine on the keepers' log, as an application holds it: ``await call``, ``await query``.

The machine runs at the keepers, which have its code. Other members and clients ask the keepers. A call has an identity,
so it can be sent again after any break, and is done once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...core.errors import BadInput, Closed, GroupMismatch, NotPrimary, Overflow, PluribusError, Refused, Uncertain
from ...core.ids import checked_name
from ...group.host.requests import Call, Inspect, Open
from ...group.log import StateMachine
from ...group.replica import CALLS_MAX, UNSETTLED_MAX, CallId
from ...group.sessions import FIRST_TIME, Command, SessionEntry

if TYPE_CHECKING:
    from ..machines.line import Way
    from .keeping import Keeping

M = TypeVar("M", bound=StateMachine)
T = TypeVar("T")
DURABLE = 0
"""The generation of a durable log: it never begins anew."""


class DurableReplica(Generic[M]):
    """Made by ``bus.replica(name, kind, durable=True)``. A command that was answered is on the disks of most voters."""

    def __init__(
        self, name: str, kind: str, asking: Way, session: int, own: Callable[[str], StateMachine | None]
    ) -> None:
        self.name = name
        self.kind = kind
        self._asking = asking
        self._session = session
        self._own = own
        self._next = 0
        self._unsettled: dict[int, None] = {}
        """Sequences without a certain answer, in their order."""
        self._kept: dict[int, None] = {}
        """Those among them that nobody waits for now, and that may be asked for again as long as there is room."""
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._closed = False
        self._version = 0
        """The version that was asked for."""

    async def open(self, version: int, timeout: float | None) -> None:
        """Make the machine, if it is not there, in this version at least."""
        if version > self._version:
            await self._asking.ask(Open(self.name, self.kind, version), timeout)
            self._version = version

    def new_id(self) -> CallId:
        """An identity for a call that has not been made yet, for callers that write it down first."""
        key = self._new()
        self._keep(key[1])
        return key

    def _new(self) -> CallId:
        self._next += 1
        self._unsettled[self._next] = None
        return (self._session, self._next)

    def _keep(self, sequence: int) -> None:
        self._kept[sequence] = None
        if len(self._kept) > UNSETTLED_MAX:
            oldest = next(iter(self._kept))
            del self._kept[oldest], self._unsettled[oldest]

    def _settle(self, key: CallId) -> None:
        if key[0] == self._session:
            self._unsettled.pop(key[1], None)

    async def call(self, command: bytes, *, id: CallId | None = None, timeout: float | None = None) -> bytes:
        """Have a command applied, and return what the machine made of it.

        It is applied once, between the beginning and the end of this call, and on the disks of most voters when this
        returns. With ``timeout`` it raises ``Uncertain`` after so many seconds; its ``id``, given to another call, from
        any process, makes sure that the command is applied once. ``Refused`` is an exception of the machine; any other
        error says that the command was not applied and will not be.
        """
        self._check_open()
        if timeout == 0 and self._room.locked():
            raise Overflow(f"{CALLS_MAX:,} calls of {self.name!r} are under way: await some of them")
        again = id is not None
        key = id if id is not None else self._new()
        session, sequence = key
        own = session == self._session
        if own:
            self._kept.pop(sequence, None)
        try:
            async with self._room:
                settled = next(iter(self._unsettled), 0) if own else 0
                asked = Command(session, sequence, settled, DURABLE if again else FIRST_TIME, command).encoded()
                try:
                    async with asyncio.timeout(timeout):
                        entry: SessionEntry = await self._asking.ask(Call(self.name, asked), timeout)
                except (Uncertain, Closed, TimeoutError) as error:
                    why = str(error) or f"no answer of the keepers in {timeout:g} s"
                    raise Uncertain(f"{why}: call again with the same id", key) from None
                except PluribusError:
                    if not again:  # else it may have been applied the first time
                        self._settle(key)
                    raise
            if entry.lost:
                raise Uncertain(f"the keepers forgot what became of this call of {self.name!r}", key)
            self._settle(key)
        finally:
            if own and sequence in self._unsettled:
                self._keep(sequence)
        if not entry.fine:
            raise Refused(f"{self.name!r} refused the command: {entry.result.decode(errors='replace')}")
        return entry.result

    async def query(self, question: bytes, *, stale: bool = False, timeout: float | None = None) -> bytes:
        """The result of ``machine.query(question)`` at a keeper; it changes nothing. It sees everything that was
        applied before this call. With ``stale=True`` it sees what the asked keeper has applied."""
        return await self._inspect(question, stale, timeout)

    async def _inspect(self, question: bytes | None, stale: bool, timeout: float | None) -> bytes:
        self._check_open()
        try:
            async with asyncio.timeout(timeout):
                answer: bytes = await self._asking.ask(Inspect(self.name, question, stale), timeout)
        except TimeoutError:
            raise NotPrimary(f"most keepers did not answer in {timeout:g} s: ask again") from None
        return answer

    async def read(self, question: Callable[[M], T], *, stale: bool = False, timeout: float | None = None) -> T:
        """What ``question`` finds in the machine of this process's own keeper, which it must not change."""
        if not stale:
            await self._inspect(None, stale, timeout)
        machine = self._own(self.name)
        if machine is None:
            raise BadInput(
                f"the machine of {self.name!r} runs at the keepers, and this process keeps none: give the machine a "
                "method query(bytes) -> bytes, and await replica.query(...)"
            )
        return question(machine)  # type: ignore[arg-type]

    @property
    def closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self._closed = True

    def validate(self) -> None:
        """Assert every invariant; for tests and the simulator."""
        assert list(self._unsettled) == sorted(self._unsettled)
        assert len(self._kept) <= UNSETTLED_MAX and self._kept.keys() <= self._unsettled.keys()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the replica {self.name!r} is closed: open it again")

    def __repr__(self) -> str:
        return f"<durable replica {self.name!r} of {self.kind!r}{', closed' if self.closed else ''}>"

    async def __aenter__(self) -> DurableReplica[M]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


async def opened_replica(
    opened: dict[str, DurableReplica[Any]],
    name: str,
    machine: str | type[StateMachine],
    version: int,
    timeout: float | None,
    keeping: Keeping,
    session: int,
) -> DurableReplica[Any]:
    """The replica of that name, which is opened if it is not."""
    kind = machine if isinstance(machine, str) else machine.__name__
    wanted = max(version, int(getattr(machine, "version", 1)))
    found = opened.get(name)
    if found is None or found.closed:
        found = DurableReplica(checked_name(name, "the replica"), kind, keeping.durable, session, keeping.machine_of)
        await found.open(wanted, timeout)
        opened[name] = found
    elif found.kind != kind:
        raise GroupMismatch(f"replica {name!r} is open as a {found.kind!r}, not a {kind!r}: close it first")
    else:
        await found.open(wanted, timeout)
    return found
