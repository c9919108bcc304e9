"""The ports: everything a protocol may use of the world is handed to it as one of these.

Two sets of implementations exist: ``runtime`` and ``engines`` on a real machine, ``sim`` under virtual time. A protocol
cannot tell which it has, and that is what makes a simulated proof a proof about the shipped code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

Address = tuple[str, int]
"""Where an engine reaches a peer: host and port, or a name and 0. Only the engine looks into it."""

Datagram = tuple[bytes, Address]
"""Bytes and where they came from."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """The time, and the only way to wait."""

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
    """The largest datagram that it carries at all. One longer than ``path_bytes`` is cut and joined on the way, which
    pays for a few long messages. With most engines the two are equal."""
    buffer_bytes: int
    """What the receiving side can hold while its program is busy; windows stay below it."""
    stats: EngineStats
    broadcasts: bool
    """Whether ``send_all`` reaches everybody on the bus by itself, known or not."""
    heard_s: float
    """Seconds in which a member that starts hears every member that it can reach, even if a few datagrams are lost."""

    @property
    def places(self) -> tuple[Address, ...]:
        """Where members of the bus look for each other. Members find each other if they have one of these places in
        common."""

    @property
    def local(self) -> bool:
        """Whether everybody on the bus is on this machine."""

    @property
    def writable(self) -> bool:
        """False while the kernel takes no more: data should wait for ``room``; control frames may still be sent."""

    async def open(self, receive: Callable[[list[Datagram]], None], room: Callable[[], None]) -> None:
        """Start. ``receive`` gets every datagram, in lists; ``room`` is called when ``writable`` becomes true again."""

    def send(self, datagrams: Sequence[bytes], to: Address) -> None:
        """Send to one peer, by the address that ``receive`` gave. ``TooLarge`` if a datagram is longer than
        ``long_bytes``; then none of the list is sent. Nothing else is raised: what does not arrive is counted."""

    def send_all(self, datagrams: Sequence[bytes]) -> None:
        """Send to everybody on the bus: by the medium where it can, else one by one to the peers of ``set_peers``."""

    def set_peers(self, peers: Sequence[Address]) -> None:
        """The addresses that ``send_all`` must reach, for engines without a medium that reaches all."""

    async def close(self) -> None:
        """Stop, when everything that was given to ``send`` has been given to the kernel."""


class Founding(Protocol):
    """Decides whether a member may found the first primary of a bus: by a lock that the processes of one machine share,
    and by how long a member listens for those of other machines. A stopped process holds the lock too."""

    @property
    def listen_s(self) -> float:
        """Seconds that a member listens before it founds a primary alone; 0 if everybody on the bus shares the lock."""

    def claim(self) -> bool:
        """Hold the lock alone. False if another process holds it, alone or shared."""

    def share(self) -> bool:
        """Share the lock with others. False if a process claims it at this moment: ask again.

        Every member shares the lock before it enters a primary, and until it leaves the bus."""

    def release(self) -> None:
        """This member has left the bus."""


class Append(msgspec.Struct, frozen=True):
    """Add rows at the end of a log. With ``at`` the write is refused unless the log ends there, so that the write
    behind a failed one does not take its place."""

    log: str
    rows: Sequence[bytes]
    at: int | None = None


class Cut(msgspec.Struct, frozen=True):
    """Forget the rows from ``end`` on: a tail that a new epoch replaces."""

    log: str
    end: int


class Trim(msgspec.Struct, frozen=True):
    """Forget the rows before ``start`` (retention). If ``start`` is beyond the end, the log is empty and its next row
    is at ``start``."""

    log: str
    start: int


class Restart(msgspec.Struct, frozen=True):
    """Forget every row; the next row will be at ``at``. For a log that is replaced by another copy."""

    log: str
    at: int


class Repair(msgspec.Struct, frozen=True):
    """Put back a row that is damaged or missing between a log's start and end; one that is whole is left alone."""

    log: str
    at: int
    row: bytes


class Replace(msgspec.Struct, frozen=True):
    """Replace a row between a log's start and end by another, to free the space of the old one."""

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
    """False: the store's record of the end is damaged or gone. Then ``end`` is what could be found, and there may have
    been more rows."""


class Store(Protocol):
    """Bytes to disk. A write is submitted and completes later: ``done(None)`` means that it is fsynced, ``done(error)``
    that it is not on disk.

    Completions come in the order of submission. One submission is one transaction: after a crash all of it is there or
    nothing of it, and nothing of later ones. One frame is one row.
    """

    def write(self, changes: Sequence[Change], done: Callable[[Exception | None], None]) -> None:
        """All of these or none. A snapshot is a ``Put`` and a ``Trim`` in one write. ``Damaged`` means that the store's
        structure is broken, so that no write helps any more: see ``renew``."""

    def append(self, log: str, rows: Sequence[bytes], done: Callable[[Exception | None], None]) -> None:
        """``write`` of one ``Append``, which gives rows consecutive positions."""

    def put(self, key: str, value: bytes, done: Callable[[Exception | None], None]) -> None:
        """``write`` of one ``Put``."""

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]:
        """Rows from ``start`` up to ``stop``, within the bounds of the log, durable or not; None for a row that is
        damaged or missing. If some of them are not written yet, reading waits until they are."""

    def fetch(
        self,
        log: str,
        positions: Sequence[int],
        work: Callable[[Sequence[bytes | None]], Any],
        done: Callable[[Any, Exception | None], None],
    ) -> None:
        """Read durable rows without holding up the loop: on a real disk, in a thread. There ``work`` is called with the
        rows (None for each that is damaged or missing), so it must be a pure function. Later ``done`` is called with
        its result, or with the reason why the store cannot be read."""

    def get(self, key: str) -> bytes | None:
        """The value that was put last; None if there is none. ``Damaged`` if its checksum is wrong."""

    def bounds(self, log: str) -> Bounds: ...

    def end(self, log: str) -> int:
        """The position that the next row will have."""

    def renew(self, changes: Sequence[Change]) -> str:
        """Set a broken store aside (nothing is deleted), and begin another with these changes alone. Returns the place
        of the old store when the changes are on disk. Only when no write is under way. ``Unavailable`` if it cannot be
        done; then everything is as it was."""


class Ports(msgspec.Struct):
    """What a stack is given."""

    clock: Clock
    random: Random
    engine: Engine
    store: Store | None = None
    founding: Founding | None = None
    """None: a member that hears no other may found a primary."""
