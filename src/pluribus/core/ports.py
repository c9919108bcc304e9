"""The ports: everything a protocol may use of the world is handed to it as one of these.

Two sets of implementations exist: ``runtime`` and ``engines`` on a real machine, ``sim`` under virtual time. A protocol
cannot tell which it has, and that is what makes a simulated proof a proof about the shipped code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

Address = tuple[str, int]
"""Where an engine reaches somebody: host and port, or a name and 0. Opaque to everybody but the engine."""

Datagram = tuple[bytes, Address]
"""Bytes and where they came from."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time and the only way to wait for it."""

    def now(self) -> float:
        """Seconds, monotonic, of no known origin."""

    def elapsed(self) -> float:
        """The same, by a clock that goes on while the machine sleeps."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """Call once, not before the delay is over."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call after the current stimulus and everything already asked for."""


class Random(Protocol):
    """The subset of ``random.Random`` that protocols use."""

    def random(self) -> float: ...
    def getrandbits(self, k: int, /) -> int: ...
    def randrange(self, start: int, stop: int = ...) -> int: ...
    def choice(self, seq: Sequence[Any]) -> Any: ...
    def shuffle(self, x: list[Any]) -> None: ...
    def sample(self, population: Sequence[Any], k: int) -> list[Any]: ...


class EngineStats(msgspec.Struct):
    """What an engine counted since it was opened."""

    datagrams_out: int = 0
    datagrams_in: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    calls_out: int = 0
    """System calls; fewer than datagrams where the kernel segments."""
    dropped: int = 0
    """Datagrams that the engine gave up because its queue or the kernel had no room, or the peer was gone."""
    errors: int = 0


class Engine(Protocol):
    """Bytes to peers, best effort unless the engine says more. Never raises for what a peer or the network does."""

    name: str
    address: Address
    path_bytes: int
    """The largest datagram that it carries as well as short ones."""
    long_bytes: int
    """The largest that it carries at all. It is cut and joined on the way, which is worth it for a few long messages;
    mostly the same as ``path_bytes``."""
    buffer_bytes: int
    """What the receiving side can hold while its program is busy; windows stay below it."""
    stats: EngineStats
    broadcasts: bool
    """Whether ``send_all`` reaches everybody on the bus by itself, known or not."""
    heard_s: float
    """Whoever starts hears every member that lives and is reached within so long, even if a few datagrams are lost."""

    @property
    def places(self) -> tuple[Address, ...]:
        """Where members of the bus look for each other: those who find each other name one of the same places."""

    @property
    def local(self) -> bool:
        """Whether everybody on the bus is on this machine."""

    @property
    def writable(self) -> bool:
        """False while the kernel takes no more: data should wait for ``room``, control may still be sent."""

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        """Start. ``receive`` gets every datagram, in lists; ``room`` is called when ``writable`` becomes true again."""

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        """To one, which is named as ``receive`` named it. ``TooLarge`` if any is longer than ``long_bytes``: then none
        of the list is sent. Nothing else is raised: whom it does not reach is counted."""

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        """To everybody on the bus: natively where the medium can, else one by one to ``peers``."""

    def set_peers(self, peers: Sequence[Address]) -> None:
        """Whom ``send_all`` must reach, for engines without a medium that reaches all."""

    async def close(self) -> None:
        """Stop; what was handed to ``send`` before has been handed to the kernel."""


class Founding(Protocol):
    """Whether somebody may found the first primary of a bus: a lock that the processes of one machine share, and how
    long to listen for those of others. A process that stands still holds the lock as well as one that runs."""

    @property
    def listen_s(self) -> float:
        """Nobody founds alone before it has listened for so long; 0 if the lock is held by everybody on the bus."""

    def claim(self) -> bool:
        """Hold the lock, if no other process does. As long as a process holds it that claimed it, no other can."""

    def share(self) -> bool:
        """Hold the lock beside others. False if somebody claims it at this moment: ask again.

        Every member does so before it is in a primary, and holds it until it ends."""

    def release(self) -> None:
        """This member has left the bus."""


class Append(msgspec.Struct, frozen=True):
    """Rows at the end of a log. With ``at`` it is refused unless the log ends there, so that a write that follows a
    failed one does not take its place."""

    log: str
    rows: Sequence[bytes]
    at: int | None = None


class Cut(msgspec.Struct, frozen=True):
    """Forget the rows from ``end`` on: the tail that a new epoch replaces."""

    log: str
    end: int


class Trim(msgspec.Struct, frozen=True):
    """Forget the rows before ``start``: retention. Beyond its end it leaves an empty log whose next row is there."""

    log: str
    start: int


class Restart(msgspec.Struct, frozen=True):
    """Forget every row; the next one will be at ``at``. For a log that is replaced by another copy."""

    log: str
    at: int


class Repair(msgspec.Struct, frozen=True):
    """Put back a row that is damaged or missing between a log's start and end; one that is whole is left alone."""

    log: str
    at: int
    row: bytes


class Replace(msgspec.Struct, frozen=True):
    """Put another row in the place of one between a log's start and end, to free the space of the old one."""

    log: str
    at: int
    row: bytes


class Put(msgspec.Struct, frozen=True):
    key: str
    value: bytes


class Delete(msgspec.Struct, frozen=True):
    key: str


Change = Append | Cut | Trim | Restart | Repair | Replace | Put | Delete


class Bounds(msgspec.Struct, frozen=True):
    """Where a log starts and ends: rows from ``start`` up to ``end`` were written and not forgotten since."""

    start: int = 0
    end: int = 0
    sure: bool = True
    """False: what the store knew of the end is damaged or gone, this is what could be found, and there may have been
    more."""


class Store(Protocol):
    """Bytes to disk. Completion based: submit now, hear of it later; ``done(None)`` means fsynced, an error means not.

    Completions come in the order of submission. One submission is one transaction: after a crash all of it is there or
    nothing, and what is there of several is the first ones. One frame is one row.
    """

    def write(self, changes: Sequence[Change], done: Callable[[Exception | None], None]) -> None:
        """All of these or none. A snapshot is a ``Put`` and a ``Trim`` in one write. ``Damaged`` means that the store's
        structure is broken, so that no write helps any more: see ``renew``."""

    def append(self, log: str, rows: Sequence[bytes], done: Callable[[Exception | None], None]) -> None:
        """``write`` of one ``Append``, which gives rows consecutive positions."""

    def put(self, key: str, value: bytes, done: Callable[[Exception | None], None]) -> None:
        """``write`` of one ``Put``."""

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        """Rows from ``start`` up to ``stop``, as far as they are within the bounds, durable or not; None where one is
        damaged or missing. What is durable is read at once; what is not, only after it was written."""

    def fetch(
        self,
        log: str,
        positions: Sequence[int],
        work: Callable[[Sequence[bytes | None]], Any],
        done: Callable[[Any, Exception | None], None],
    ) -> None:
        """Read rows that are durable where nobody waits for them: in a thread, on a real disk. ``work`` is done with
        them there, None for each that is damaged or missing, so it must be a pure function; ``done`` hears later what
        came of it, or the reason why the store cannot be read."""

    def get(self, key: str) -> bytes | None:
        """The value that was put last; None if none was. ``Damaged`` if it is not what was put."""

    def bounds(self, log: str) -> Bounds: ...

    def end(self, log: str) -> int:
        """The position that the next row will have."""

    def renew(self, changes: Sequence[Change]) -> str:
        """Set a broken store aside, which deletes nothing, and begin another with these changes alone; they are on disk
        when it returns, and it returns where the old one is. Only when no write is under way. ``Unavailable`` if it
        cannot be done; then everything is as it was."""


class Ports(msgspec.Struct):
    """What a stack is given."""

    clock: Clock
    random: Random
    engine: Engine
    store: Store | None = None
    founding: Founding | None = None
    """None: anybody may found a primary who hears no other."""
