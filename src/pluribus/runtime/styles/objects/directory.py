"""``bus.directory``: the objects of this process, and a way to find the objects of others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import msgspec

from ....core.ids import checked_name
from ....objects.interfaces import Export
from ....objects.names import new_id
from ....objects.residents import INSTEAD
from ....objects.subprotocols import Subprotocol
from ....objects.words import Listing
from .places import FIND_S, HERE
from .shadows import Shadow

if TYPE_CHECKING:
    from .post import Post


class Listed(msgspec.Struct, frozen=True):
    """A line of ``directory.list``: one object."""

    id: str
    type: str
    aliases: list[str]
    interfaces: list[str]
    member: str
    """The name of the object's process."""


class ObjectDirectory:
    """Made by the bus."""

    def __init__(self, post: Post) -> None:
        self._post = post

    async def add(
        self,
        served: object,
        *aliases: str,
        id: str | None = None,
        names: Collection[str] | None = None,
        subprotocols: Iterable[type[Subprotocol]] = (),
        exports: Iterable[type | Export] = (),
    ) -> Shadow:
        """Make any Python object an object of the bus, with these aliases and an id that no other object ever has.

        Methods that are marked with ``objects.handles`` handle messages, methods marked with ``pluribus.exposed`` can
        be called; ``names`` are further methods that can. ``exports`` are interfaces through whose handles the object
        can be called. ``id`` is the id that this object had before its process was restarted.
        """
        await self._post.group()
        given = id if id is not None else new_id(self._post.bus._random)
        resident = self._post.directory.add(
            served, given, aliases, names=names, subprotocols=subprotocols, exports=exports
        )
        await self._post.announced()
        return Shadow(self._post, resident.id, HERE)

    async def remove(self, who: object) -> None:
        """Remove an object, given the object itself or its shadow: it gets no more messages."""
        self._post.directory.remove(_who(who))
        await self._post.announced()

    async def add_alias(self, alias: str, who: object) -> None:
        """Give an object of this process one more alias. The objects of one alias are a group: so an object joins
        it."""
        self._post.directory.add_alias(alias, _who(who))
        await self._post.announced()

    async def delete_alias(self, alias: str, who: object) -> None:
        """Take an alias from an object of this process: so it leaves a group."""
        self._post.directory.delete_alias(alias, _who(who))
        await self._post.announced()

    def preempt(self, target: object, by: object | None, mode: str = INSTEAD) -> None:
        """Messages to ``target`` go to ``by`` in its place; with ``mode="before"`` they go to ``by`` first. Then a
        handler of ``by`` that returns nothing lets the message pass, one that returns a message changes it, and one
        that returns ``objects.KEEP`` keeps it. Both are objects of this process. ``by=None`` ends the preemption; a
        cycle raises ``BadInput``."""
        self._post.directory.preempt(_who(target), None if by is None else _who(by), mode)

    async def find(self, name: str, *, timeout: float = FIND_S) -> Shadow:
        """The object with this id, or the next in turn of the objects with this alias, anywhere on the bus.
        ``NoObject`` if there is none after ``timeout`` seconds."""
        resident = self._post.directory.residents.get(name)
        if resident is not None:
            return Shadow(self._post, resident.id, HERE)
        member, id = await self._post.places.one(name, timeout)
        return Shadow(self._post, id, member)

    def shadow(self, name: str) -> Shadow:
        """A shadow of an id or alias that need not exist now; for queued calls, for example."""
        return Shadow(self._post, checked_name(name, "the object"), HERE)

    async def find_all(self, name: str, *, timeout: float = 0.0) -> list[Shadow]:
        """All objects with this id or alias, anywhere on the bus; ``NoObject`` if there is none after ``timeout``
        seconds. Objects of this process come first."""
        places = await self._post.places.all(name, timeout)
        return [Shadow(self._post, id, member) for member, id in places]

    def here(self) -> list[Shadow]:
        """The objects of this process."""
        itself = self._post.itself
        residents = self._post.directory.residents.values()
        return [Shadow(self._post, resident.id, HERE) for resident in residents if resident is not itself]

    async def list(self, *, timeout: float = FIND_S) -> list[Listed]:
        """All objects on the bus."""
        answers = await self._post.ask_all(Listing(), timeout)
        told = [(self._post.bus.name, self._post.listing())]
        told += [
            (self._post.name_of(int(answer.sender)), answer.value)
            for answer in answers
            if isinstance(answer.value, Listing)
        ]
        return [
            Listed(id, kind, list(aliases), list(interfaces), name)
            for name, listing in told
            for id, kind, aliases, interfaces in listing.of
        ]


def _who(who: object) -> object:
    return who.id if isinstance(who, Shadow) else who
