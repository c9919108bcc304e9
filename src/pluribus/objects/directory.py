"""The directory of one process: its objects by id, by alias and by interface.

An object has one id and any number of aliases; an alias may belong to any number of objects. ``one_of`` takes them in
turn, ``all_of`` names all. The listener for changes (the runtime, which tells other processes) is called with the names
that have changed.

Preemptive objects form no cycle: the change that would close one is refused, so that every message ends somewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..core.errors import BadInput, NoObject, Overflow
from ..core.limits import ALIASES_MAX, OBJECTS_MAX
from ..group.calls import marked, methods_of
from .interfaces import Export, exported
from .names import checked_alias, checked_id, is_id
from .residents import BEFORE, INSTEAD, Resident
from .subprotocols import Subprotocol


class _Turn:
    """The objects of one alias, and whose turn it is."""

    __slots__ = ("next", "residents")

    def __init__(self) -> None:
        self.residents: list[Resident] = []
        self.next = 0

    def take(self) -> Resident:
        at = self.next % len(self.residents)
        self.next = at + 1
        return self.residents[at]


class Directory:
    def __init__(self, changed: Callable[[list[str]], None] = lambda names: None) -> None:
        self.residents: dict[str, Resident] = {}
        self._by_object: dict[int, Resident] = {}
        self._aliases: dict[str, _Turn] = {}
        self._pairs = 0
        self._changed = changed

    def add(
        self,
        served: object,
        id: str,
        aliases: Iterable[str] = (),
        *,
        names: Collection[str] | None = None,
        subprotocols: Iterable[type[Subprotocol]] = (),
        exports: Iterable[type | Export] = (),
    ) -> Resident:
        """Give an object an id. ``names`` are methods that can be called, besides those that are marked."""
        if self._by_object.get(_key(served)) is not None:
            raise BadInput(f"{served!r} is in the directory already: add_alias() gives it another name")
        if checked_id(id) in self.residents:
            raise BadInput(f"{id} belongs to {self.residents[id]!r}: an id belongs to one object")
        if len(self.residents) >= OBJECTS_MAX:
            raise Overflow(f"{OBJECTS_MAX} objects are in the directory: remove some")
        wanted = [checked_alias(alias) for alias in aliases]
        resident = Resident(served, id, self, subprotocols)
        callable_names = [*marked(type(served)), *(names or ())]
        if callable_names:
            resident.methods = methods_of(served, callable_names)
        for export in exports:
            given = exported(export, served)
            resident.exports[given.interface] = given
        self._room_for(len(set(wanted)))
        self.residents[id] = resident
        self._by_object[_key(served)] = resident
        for alias in wanted:
            self._link(alias, resident)
        self._changed([id, *wanted, *resident.exports])
        return resident

    def remove(self, who: object) -> Resident:
        """The object gets no more messages; running handlers go on."""
        resident = self.resident(who)
        names = [resident.id, *resident.aliases, *resident.exports]
        for alias in list(resident.aliases):
            self._unlink(alias, resident)
        del self.residents[resident.id], self._by_object[_key(resident.served)]
        for other in self.residents.values():
            if other.preempted_by is resident:
                other.preempted_by = None
        self._changed(names)
        return resident

    def add_alias(self, alias: str, who: object) -> None:
        """Give an object one more alias, which other objects may have, too; so an object joins a group."""
        resident = self.resident(who)
        if checked_alias(alias) not in resident.aliases:
            self._room_for(1)
            self._link(alias, resident)
            self._changed([alias])

    def delete_alias(self, alias: str, who: object) -> None:
        """A name that the object does not have is no error: it has left that group."""
        resident = self.resident(who)
        if alias in resident.aliases:
            self._unlink(alias, resident)
            self._changed([alias])

    def preempt(self, target: object, by: object | None, mode: str = INSTEAD) -> None:
        """Messages to ``target`` go to ``by``: in its place (the source's meaning), or, with ``"before"``, first; then
        the result of ``by`` decides whether they go on to the target. ``by=None`` ends it."""
        resident = self.resident(target)
        if mode not in (INSTEAD, BEFORE):
            raise BadInput(f"mode={mode!r} is none of 'instead' and 'before': choose one of them")
        preemptive = None if by is None else self.resident(by)
        at = preemptive
        while at is not None:
            if at is resident:
                raise BadInput(f"{preemptive!r} is preempted by {resident!r} already: messages would go round for ever")
            at = at.preempted_by
        resident.preempted_by, resident.mode = preemptive, mode

    def resident(self, who: object) -> Resident:
        """The resident itself, that of an object, or that of an id; ``NoObject`` if it is in no directory here."""
        if isinstance(who, Resident):
            found = self.residents.get(who.id)
        elif isinstance(who, str):
            found = self.residents.get(who)
        else:
            found = self._by_object.get(_key(who))
        if found is None:
            raise NoObject(f"{who!r} is in no directory of this process: add it first")
        return found

    def one_of(self, name: str) -> Resident | None:
        """The object with an id, or the next in turn of those with an alias."""
        turn = self._aliases.get(name)
        return turn.take() if turn is not None else self.residents.get(name)

    def all_of(self, name: str) -> list[Resident]:
        """Every object with an id or an alias, ordered by when it got the name."""
        turn = self._aliases.get(name)
        if turn is not None:
            return list(turn.residents)
        found = self.residents.get(name)
        return [] if found is None else [found]

    def with_interface(self, interface: str, group: str = "") -> list[Resident]:
        """Every object that exports an interface; with ``group``, only objects with that alias."""
        among = self.all_of(group) if group else self.residents.values()
        return [resident for resident in among if interface in resident.exports]

    def knows(self, name: str) -> bool:
        return name in self._aliases or name in self.residents

    @property
    def aliases(self) -> dict[str, list[str]]:
        """Ids by alias."""
        return {alias: [resident.id for resident in turn.residents] for alias, turn in self._aliases.items()}

    def validate(self) -> None:
        assert len(self.residents) == len(self._by_object) <= OBJECTS_MAX
        pairs = 0
        for alias, turn in self._aliases.items():
            assert turn.residents and not is_id(alias), "an alias of nobody is no alias"
            assert all(alias in resident.aliases for resident in turn.residents)
            assert len({resident.id for resident in turn.residents}) == len(turn.residents), "nobody has a name twice"
            pairs += len(turn.residents)
        assert pairs == self._pairs == sum(len(resident.aliases) for resident in self.residents.values())
        for resident in self.residents.values():
            seen: list[Resident] = []
            at: Resident | None = resident
            while at is not None:
                assert at not in seen, "preemptive objects form no cycle"
                seen.append(at)
                at = at.preempted_by

    def _room_for(self, pairs: int) -> None:
        if self._pairs + pairs > ALIASES_MAX:
            raise Overflow(f"{ALIASES_MAX:,} aliases are in the directory: delete some")

    def _link(self, alias: str, resident: Resident) -> None:
        if alias not in resident.aliases:
            resident.aliases[alias] = None
            self._aliases.setdefault(alias, _Turn()).residents.append(resident)
            self._pairs += 1

    def _unlink(self, alias: str, resident: Resident) -> None:
        turn = self._aliases[alias]
        at = turn.residents.index(resident)
        del turn.residents[at], resident.aliases[alias]
        if at < turn.next:
            turn.next -= 1
        if not turn.residents:
            del self._aliases[alias]
        self._pairs -= 1


def _key(served: Any) -> int:
    return id(served)
