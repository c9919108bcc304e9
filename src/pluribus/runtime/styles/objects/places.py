"""Places of objects: all processes are asked, and the answers remembered until a process says that a name has
changed."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from ....core.errors import NoObject
from ....core.limits import LOCATIONS_MAX
from ....group.asking import Answers
from ....objects.directory import Directory
from ....objects.names import is_id
from ....objects.words import Found, Sought

FIND_S = 2.0
"""Seconds for which an object is looked for before ``NoObject``."""
HERE = 0
"""In the place of a member's number: this process."""

Place = tuple[int, str]
"""The process of an object, and its id."""


class _Seek:
    """One question that is under way; ``old`` if its answer must not be remembered."""

    __slots__ = ("name", "old")

    def __init__(self, name: str) -> None:
        self.name = name
        self.old = False


class Places:
    """``ask`` asks every other process; ``members`` gives these processes, the eldest first."""

    def __init__(
        self,
        directory: Directory,
        ask: Callable[[Any, float], Awaitable[Answers]],
        members: Callable[[], tuple[int, ...]],
    ) -> None:
        self._directory = directory
        self._ask = ask
        self._members = members
        self._known: OrderedDict[str, list[Place]] = OrderedDict()
        self._turns: dict[str, int] = {}
        self._seen: OrderedDict[str, int] = OrderedDict()
        """The places of objects that wrote to objects here."""
        self._seeks: dict[_Seek, None] = {}
        self._changed = asyncio.Event()

    async def one(self, name: str, timeout: float = FIND_S) -> Place:
        """The place of the object with an id, or of the next in turn of an alias."""
        places = self._known.get(name)
        if places is None:
            seen = self._seen.get(name)
            if seen is not None:
                return (seen, name)
            places = await self.all(name, timeout)
        if len(places) == 1:
            return places[0]
        turn = self._turns.get(name, -1) + 1
        self._turns[name] = turn
        if len(self._turns) > LOCATIONS_MAX:
            self._turns.clear()
        return places[turn % len(places)]

    async def all(self, name: str, timeout: float = FIND_S, *, interface: bool = False) -> list[Place]:
        """The places of all objects with an id, an alias or an interface. If there is none, wait ``timeout`` seconds
        for one; then ``NoObject``."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        while True:
            changed = self._changed
            found = await self._sought(name, interface)
            if found:
                return found
            try:
                async with asyncio.timeout(max(until - loop.time(), 0.0)):
                    await changed.wait()
            except TimeoutError:
                what = "interface" if interface else "id" if is_id(name) else "alias"
                raise NoObject(f"no object on this bus has the {what} {name!r}: add one, or wait longer") from None

    async def _sought(self, name: str, interface: bool) -> list[Place]:
        seek = _Seek(name)
        self._seeks[seek] = None
        try:
            answers = await self._ask(Sought(name, interface), FIND_S)
        finally:
            del self._seeks[seek]
        own = self._directory.with_interface(name) if interface else self._directory.all_of(name)
        found = [(HERE, resident.id) for resident in own]
        order = {member: at for at, member in enumerate(self._members())}
        told = [(int(answer.sender), answer.value) for answer in answers if isinstance(answer.value, Found)]
        told.sort(key=lambda pair: order.get(pair[0], len(order)))
        found += [(member, id) for member, there in told for id in there.ids]
        if found and not seek.old and not interface:
            self._known[name] = found
            while len(self._known) > LOCATIONS_MAX:
                self._known.popitem(last=False)
        return found

    def forget(self, name: str) -> bool:
        """The name means other objects now: forget it. True if it was remembered."""
        known = self._known.pop(name, None) is not None
        for seek in self._seeks:
            seek.old = seek.old or seek.name == name
        self._wake()
        return known

    def members_changed(self, there: Collection[int]) -> None:
        self._known.clear()
        for seek in self._seeks:
            seek.old = True
        self._seen = OrderedDict((id, member) for id, member in self._seen.items() if member in there)
        self._wake()

    def saw(self, id: str, member: int) -> None:
        """Remember the place of an object that wrote to an object here."""
        if self._seen.get(id) != member:
            self._seen[id] = member
            self._seen.move_to_end(id)
            while len(self._seen) > LOCATIONS_MAX:
                self._seen.popitem(last=False)

    def seen(self, id: str) -> bool:
        return id in self._seen

    def lost(self, id: str) -> None:
        """The object is not there any more: forget its place."""
        self._seen.pop(id, None)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def validate(self) -> None:
        assert len(self._known) <= LOCATIONS_MAX and len(self._seen) <= LOCATIONS_MAX
