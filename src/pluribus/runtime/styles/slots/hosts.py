"""What holds the map of a software bus on this member: ``RouterHost`` is the report's router, which may move.

The map is kept under ``slots/NAME`` in a store: a file, or the store that is handed over.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec

from ....core.errors import BadInput, Closed, Damaged
from ....core.ports import Store
from ....slots.check import checked
from ....slots.language import Source, parse, printed
from ....slots.map import BusMap
from ....slots.plan import Plan
from ....slots.router import SERVING, STARTING, Router, at_once
from ....slots.words import Word
from .station import Station

if TYPE_CHECKING:
    from ...bus import Bus

ROUTER, REPLICA, CENTRAL = "router", "replica", "central"
HOSTS = (ROUTER, REPLICA, CENTRAL)
ASKER, ALL_OF_THEM = "asker", "all"

Given = str | os.PathLike[str] | Plan | Source | bytes
"""An interconnection file, what it says, or the map that a router left behind when it moved."""


def plan_from(given: Given) -> Plan | BusMap:
    if isinstance(given, Plan):
        return checked(Source(given, printed(given)))
    if isinstance(given, Source):
        return checked(given)
    if isinstance(given, bytes):
        try:
            return BusMap.restored(given)
        except (msgspec.MsgspecError, ValueError) as error:
            raise BadInput(f"these bytes are no map of a software bus ({error}): give what move() returned") from None
    path = Path(given)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        raise BadInput(f"the interconnection file {path} cannot be read ({reason}): name a file") from None
    return checked(parse(text, str(path)))


def key_of(name: str) -> str:
    return f"slots/{name}"


class RouterHost:
    """A router on this member. ``move`` stops it and returns the map, with which another member goes on."""

    def __init__(self, bus: Bus, station: Station, directory: Station, left: Callable[[RouterHost], None]) -> None:
        self._bus = bus
        self._station = station
        self._directory = directory
        self._left = left
        self._changes: list[asyncio.Future[None]] = []
        self._tap = _Adverts(self)
        self._own_store: Any = None
        self.closed = False
        self.programs: Any = None

    def begin(self, map: BusMap, store: Store | None, answers: str, make: type[Router] = Router) -> None:
        station, bus = self._station, self._bus

        def save(snapshot: bytes, done: Callable[[Exception | None], None]) -> None:
            def saved(error: Exception | None) -> None:
                done(error)
                station.flush()

            assert store is not None
            store.put(key_of(map.plan.name), snapshot, saved)

        self.router = make(
            map,
            station.me,
            station.now(),
            bus._random,
            epoch=max(int(bus._wall() * 1_000), 1),
            save=at_once if store is None else save,
            name=bus.name,
            answers_all=answers == ALL_OF_THEM,
            on_event=self._on_event,
        )
        self._directory.add(self._tap)
        station.add(self.router)

    @property
    def name(self) -> str:
        return self.router.plan.name

    @property
    def map(self) -> BusMap:
        """The map of this moment; not to be changed."""
        return self.router.map

    @property
    def state(self) -> str:
        """``starting``, ``waiting`` for required slots, ``running``, ``fenced`` by a later router, or ``stopped``."""
        if self.router.state == SERVING:
            return "waiting" if self.router.map.waiting() else "running"
        return self.router.state

    async def running(self, timeout: float | None = None) -> None:
        """Return when every required slot is occupied."""
        await self._until(lambda: self.state == "running", timeout)

    async def serving(self, timeout: float | None = None) -> None:
        """Return when the map is on disk and the router answers."""
        await self._until(lambda: self.router.state != STARTING, timeout)

    async def move(self) -> bytes:
        """Stop here, and return what ``bus.slots(...)`` goes on with elsewhere. Messages flow meanwhile."""
        return await self._stop(cancel=False)

    async def close(self, *, cancel: bool = False) -> None:
        """Stop; with ``cancel=True`` those who list buses forget this one at once."""
        await self._stop(cancel=cancel)

    async def _stop(self, *, cancel: bool) -> bytes:
        if self.programs is not None:
            await self.programs.close()
        state = self.router.stop(cancel=cancel)
        self._directory.flush()
        self._station.flush()
        await self._station.drained()
        await self._directory.drained()
        self._station.remove(self.router)
        self._directory.remove(self._tap)
        self.abandon()
        self._left(self)
        if self._own_store is not None:
            self._own_store.close()
        return state

    def abandon(self) -> None:
        self.closed = True
        self._notify()

    async def __aenter__(self) -> RouterHost:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self.closed:
            await self.close(cancel=True)

    def _on_event(self, what: str, about: Any) -> None:
        self._notify()

    def _notify(self) -> None:
        woken, self._changes = self._changes, []
        for future in woken:
            if not future.done():
                future.set_result(None)

    async def _until(self, found: Callable[[], bool], timeout: float | None) -> None:
        async with asyncio.timeout(timeout):
            while not found():
                if self.closed:
                    raise Closed("this router was stopped: start another with bus.slots()")
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._changes.append(future)
                await future

    def __repr__(self) -> str:
        return f"<router of {self.name!r}, {self.state}>"


class _Adverts:
    """The part of a router that is in the group of all buses: it advertises, and answers whoever enquires."""

    def __init__(self, host: RouterHost) -> None:
        self._host = host

    @property
    def out(self) -> list[tuple[int, Word]]:
        return self._host.router.adverts

    @out.setter
    def out(self, words: list[tuple[int, Word]]) -> None:
        self._host.router.adverts = words

    @property
    def due_at(self) -> float | None:
        return self._host.router.due_at

    def take(self, sender: int, word: Word, now: float) -> None:
        self._host.router.take(sender, word, now)

    def tick(self, now: float) -> None:
        self._host.router.tick(now)
        self._host._station.flush()

    def validate(self) -> None:
        pass


def load(store: Store, name: str) -> BusMap | None:
    """The map that a store holds; None if there is none. ``Damaged`` if it is not what was written."""
    found = store.get(key_of(name))
    if found is None:
        return None
    try:
        return BusMap.restored(found)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Damaged(f"the map of bus {name!r} in the store is none ({error}): start with another store") from None
