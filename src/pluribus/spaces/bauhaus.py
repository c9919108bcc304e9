"""Bauhaus Linda: spaces and tuples are the same thing, multisets, and a multiset can hold multisets.

Source: *Indirect Communication*, 6.5.2, "Variations on a theme", after Carriero, Gelernter and Zuck (1995). There is
one set of operations: ``out`` puts an element into the multiset in which this process is, ``rd`` finds one and
``in_`` removes it; a template matches a multiset that includes it, whatever else that holds. A process has a position:
``down`` enters a multiset, ``up`` leaves it. ``move`` takes an element from here into another multiset.

The whole is one tuple in a tuple space, ("bauhaus", name, version, next number, sets), which is read, and replaced by
the next version in one step if it is still there. So each operation is atomic, and nothing is lost with a process that
dies. A waiting operation reads until the version has grown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..core.errors import BadInput
from .idioms import AnySpace, replaced

ROOT = 0
_Sets = dict[int, list[Any]]
"""By number: the elements, each as ["v", value] or ["s", number of a multiset]."""


class Multiset:
    """Values and multisets, in no order. ``Multiset("fred", 1958)``."""

    def __init__(self, *elements: Any) -> None:
        self.elements = list(elements)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Multiset) or len(other.elements) != len(self.elements):
            return False
        return self.includes(other)

    __hash__ = None  # type: ignore[assignment]

    def includes(self, other: Multiset) -> bool:
        """True if every element of the other is here, as often as there; multisets among them by inclusion."""
        return _assigned(other.elements, list(self.elements))

    def __repr__(self) -> str:
        return "{" + ", ".join(map(repr, self.elements)) + "}"


def _assigned(wanted: list[Any], left: list[Any]) -> bool:
    if not wanted:
        return True
    first, *rest = wanted
    return any(_fits(first, element) and _assigned(rest, left[:at] + left[at + 1 :]) for at, element in enumerate(left))


def _fits(wanted: Any, element: Any) -> bool:
    if isinstance(wanted, Multiset):
        return isinstance(element, Multiset) and element.includes(wanted)
    if isinstance(wanted, type):
        return type(element) is wanted
    return type(wanted) is type(element) and bool(wanted == element)


class Bauhaus:
    """One process in a Bauhaus. ``start`` once; then any number of processes."""

    def __init__(self, space: AnySpace, name: str) -> None:
        self._space = space
        self.name = name
        self._path = [ROOT]

    async def start(self) -> None:
        await self._space.write(("bauhaus", self.name, 0, ROOT + 1, [[ROOT, []]]))

    @property
    def depth(self) -> int:
        """How deep this process is; 0 is the outermost multiset."""
        return len(self._path) - 1

    async def out(self, element: Any) -> None:
        """Put a value, or a multiset, into the multiset in which this process is."""

        def change(sets: _Sets, fresh: Callable[[], int]) -> bool:
            self._here(sets).append(_put(sets, fresh, element))
            return True

        await self._changed(change)

    async def rd(self, template: Any, *, timeout: float | None = None) -> Any:
        """Read an element that the template matches. Waits for one."""
        return await self._found(template, False, timeout)

    async def in_(self, template: Any, *, timeout: float | None = None) -> Any:
        """Remove an element that the template matches, and return it. Waits for one."""
        return await self._found(template, True, timeout)

    async def _found(self, template: Any, removes: bool, timeout: float | None) -> Any:
        found: list[Any] = []

        def change(sets: _Sets, fresh: Callable[[], int]) -> bool:
            here = self._here(sets)
            for at, element in enumerate(here):
                value = _got(sets, element)
                if _fits(template, value):
                    found[:] = [value]
                    if removes:
                        del here[at]
                        _forget(sets, element)
                    return True
            return False

        await self._changed(change, timeout, writes=removes)
        return found[0]

    async def move(self, template: Any, into: Multiset, *, timeout: float | None = None) -> None:
        """Take an element from here into a multiset that is here, in one step."""

        def change(sets: _Sets, fresh: Callable[[], int]) -> bool:
            here = self._here(sets)
            target = next((one for one in here if one[0] == "s" and _fits(into, _got(sets, one))), None)
            moved = next((one for one in here if one is not target and _fits(template, _got(sets, one))), None)
            if target is None or moved is None:
                return False
            here.remove(moved)
            sets[target[1]].append(moved)
            return True

        await self._changed(change, timeout)

    async def down(self, template: Multiset, *, timeout: float | None = None) -> None:
        """Enter a multiset that the template matches. Waits for one."""
        number: list[int] = []

        def change(sets: _Sets, fresh: Callable[[], int]) -> bool:
            for element in self._here(sets):
                if element[0] == "s" and _fits(template, _got(sets, element)):
                    number[:] = [element[1]]
                    return True
            return False

        await self._changed(change, timeout, writes=False)
        self._path.append(number[0])

    def up(self) -> None:
        """Leave the multiset in which this process is."""
        if len(self._path) == 1:
            raise BadInput("this process is in the outermost multiset: there is nothing above it")
        self._path.pop()

    async def here(self) -> Multiset:
        """All elements of the multiset in which this process is."""
        _, _, _, _, listed = await self._space.read(("bauhaus", self.name, int, int, list))
        sets = _sets_of(listed)
        return Multiset(*[_got(sets, element) for element in self._here(sets)])

    def _here(self, sets: _Sets) -> list[Any]:
        found = sets.get(self._path[-1])
        if found is None:
            raise BadInput("the multiset in which this process was is gone: go up()")
        return found

    async def _changed(
        self, change: Callable[[_Sets, Callable[[], int]], bool], timeout: float | None = None, *, writes: bool = True
    ) -> None:
        """Make a change in one step, tried again if another change came before; if the change is impossible, wait until
        the space has changed. Without ``writes`` it only looks."""
        where = ""
        while True:
            wanted = ("bauhaus", self.name, int, int, list)
            _, _, version, following, listed = await self._space.read(wanted, where, timeout=timeout)
            sets, numbers = _sets_of(listed), [following]

            def fresh(numbers: list[int] = numbers) -> int:
                numbers[0] += 1
                return numbers[0] - 1

            where = ""
            if not change(sets, fresh):
                where = f"f2 > {version}"
                continue
            entries = [[number, elements] for number, elements in sorted(sets.items())]
            before = ("bauhaus", self.name, version, int, list)
            after = ("bauhaus", self.name, version + 1, numbers[0], entries)
            if not writes or await replaced(self._space, before, after):
                return


def _sets_of(listed: Iterable[Any]) -> _Sets:
    return {number: list(elements) for number, elements in listed}


def _put(sets: _Sets, fresh: Callable[[], int], element: Any) -> list[Any]:
    if not isinstance(element, Multiset):
        return ["v", element]
    number = fresh()
    sets[number] = [_put(sets, fresh, one) for one in element.elements]
    return ["s", number]


def _got(sets: _Sets, element: list[Any]) -> Any:
    return element[1] if element[0] == "v" else Multiset(*[_got(sets, one) for one in sets[element[1]]])


def _forget(sets: _Sets, element: list[Any]) -> None:
    if element[0] == "s":
        for one in sets.pop(element[1]):
            _forget(sets, one)
