"""Usual programs with tuple spaces, as functions: counter, semaphore, barrier, remote call, master and workers.

Source: *Indirect Communication*, 6.5.2 (the counter, the geography of figure 6.20), exercises 6.18 and 6.19. Each works
on any kind of space. Tuples are replaced, never changed. The chapter's counter takes its tuple and writes another; if
its process dies in between, no process can count any more. So here a tuple that all processes need is read, and
replaced in one step if it is still the same.

*Exercise 6.18, a remote call.* The caller writes ("call", service, number, arguments) and takes ("result", service,
number, …); a server takes calls and writes results. Advantages: callers and servers need not know each other, nor run
at the same time; servers are added and removed at will, and share the load. Disadvantages: the caller does not learn
that there is no server, or that one died with its call (take calls in a transaction for that); each call is four
operations on a shared space instead of two messages.

*Exercise 6.19, a semaphore.* As many equal tuples as there are permits: *wait* takes one, *signal* writes one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from .templates import ANY

POISON = "poison"
"""The name of the tuple, a *pill*, that tells a worker to stop."""


class AnySpace(Protocol):
    """The methods of a space that the idioms need."""

    async def write(self, value: Any) -> Any: ...

    async def read(self, template: Any, where: str = "", *, timeout: float | None = None) -> Any: ...

    async def take(self, template: Any, where: str = "", *, timeout: float | None = None) -> Any: ...

    async def replace(self, template: Any, value: Any, where: str = "", *, timeout: float | None = None) -> Any: ...


async def replaced(space: AnySpace, old: Any, new: Any) -> bool:
    """Put ``new`` in the place of ``old``, if ``old`` is still there; true if it was."""
    try:
        await space.replace(old, new, timeout=0)
    except TimeoutError:
        return False
    return True


class Counter:
    """A shared number: ("counter", name, value)."""

    def __init__(self, space: AnySpace, name: str) -> None:
        self._space = space
        self.name = name

    async def start(self, value: int = 0) -> None:
        """Make the counter; once."""
        await self._space.write(("counter", self.name, value))

    async def add(self, number: int = 1) -> int:
        """Add; returns the count before. Concurrent callers get different counts."""
        while True:
            count = await self.value()
            if await replaced(self._space, ("counter", self.name, count), ("counter", self.name, count + number)):
                return count

    async def value(self) -> int:
        return int((await self._space.read(("counter", self.name, int)))[2])


class Semaphore:
    """Permits: as many tuples ("semaphore", name) as are free."""

    def __init__(self, space: AnySpace, name: str) -> None:
        self._space = space
        self.name = name

    async def start(self, permits: int) -> None:
        for _ in range(permits):
            await self.signal()

    async def wait(self, timeout: float | None = None) -> None:
        await self._space.take(("semaphore", self.name), timeout=timeout)

    async def signal(self) -> None:
        await self._space.write(("semaphore", self.name))

    @asynccontextmanager
    async def held(self, timeout: float | None = None) -> AsyncIterator[None]:
        await self.wait(timeout)
        try:
            yield
        finally:
            await self.signal()


class Barrier:
    """Processes wait until all have come; it can be used again and again: ("barrier", name, round, how many came)."""

    def __init__(self, space: AnySpace, name: str, parties: int) -> None:
        self._space = space
        self.name = name
        self._parties = parties

    async def start(self) -> None:
        await self._space.write(("barrier", self.name, 0, 0))

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until all have come; returns the number of the round."""
        while True:
            here = await self._space.read(("barrier", self.name, int, int), timeout=timeout)
            _, _, number, came = here
            last = came + 1 == self._parties
            after = ("barrier", self.name, *((number + 1, 0) if last else (number, came + 1)))
            if await replaced(self._space, here, after):
                break
        if not last:
            await self._space.read(("barrier", self.name, int, int), f"f2 > {number}", timeout=timeout)
        return int(number)


class Service:
    """Remote calls through a space. ``start`` once; then any number of callers and servers."""

    def __init__(self, space: AnySpace, name: str) -> None:
        self._space = space
        self.name = name
        self._numbers = Counter(space, f"calls of {name}")

    async def start(self) -> None:
        await self._numbers.start()

    async def call(self, *arguments: Any, timeout: float | None = None) -> Any:
        """Call; returns the result of a server's function. ``RuntimeError`` with its exception."""
        number = await self._numbers.add()
        await self._space.write(("call", self.name, number, list(arguments)))
        _, _, _, fine, result = await self._space.take(("result", self.name, number, bool, ANY), timeout=timeout)
        if not fine:
            raise RuntimeError(f"{self.name}: {result}")
        return result

    async def serve(self, function: Callable[..., Awaitable[Any]]) -> None:
        """Answer calls with a coroutine function, until cancelled or until a pill comes."""
        while True:
            _, _, number, arguments = await self._space.take(("call", self.name, int, list))
            if number < 0:
                return
            try:
                answer = (True, await function(*arguments))
            except Exception as error:  # noqa: BLE001 - it is the caller's
                answer = (False, f"{type(error).__name__}: {error}")
            await self._space.write(("result", self.name, number, *answer))

    async def stop(self, servers: int = 1) -> None:
        for _ in range(servers):
            await self._space.write(("call", self.name, -1, []))


class Bag:
    """Master and workers: a bag of tasks, and one of results. A pill for each worker ends the work."""

    def __init__(self, space: AnySpace, name: str) -> None:
        self._space = space
        self.name = name

    async def put(self, tasks: Iterable[Any]) -> int:
        """Put tasks for the workers; returns how many."""
        count = 0
        for count, task in enumerate(tasks, 1):  # noqa: B007 - it is what is returned
            await self._space.write(("task", self.name, task))
        return count

    async def collect(self, count: int, timeout: float | None = None) -> list[tuple[Any, Any]]:
        """Take this many pairs of a task and its result, in the order in which they come."""
        found: list[tuple[Any, Any]] = []
        while len(found) < count:
            _, _, task, result = await self._space.take(("done", self.name, ANY, ANY), timeout=timeout)
            found.append((task, result))
        return found

    async def work(self, function: Callable[[Any], Awaitable[Any]]) -> int:
        """Do tasks until a pill comes; returns how many were done."""
        done = 0
        while True:
            _, _, task = await self._space.take(("task", self.name, ANY))
            if task == POISON:
                return done
            await self._space.write(("done", self.name, task, await function(task)))
            done += 1

    async def poison(self, workers: int) -> None:
        for _ in range(workers):
            await self._space.write(("task", self.name, POISON))


GEOGRAPHY = (
    ("Capital", "Scotland", "Edinburgh"),
    ("Capital", "Wales", "Cardiff"),
    ("Capital", "N. Ireland", "Belfast"),
    ("Capital", "England", "London"),
    ("Population", "Scotland", 5_168_000),
    ("Population", "UK", 61_000_000),
)
"""Figure 6.20: geographical information about the countries of the United Kingdom."""


async def geography(space: AnySpace) -> dict[str, Any]:
    """The operations of the figure, on a space with its tuples; returns the result of each."""
    for fact in GEOGRAPHY:
        await space.write(fact)
    found: dict[str, Any] = {"capital": await space.take((str, "Scotland", str))}
    found["population"] = await space.take((str, "Scotland", int))
    await space.write(("Population", "Wales", 2_900_000))
    found["any population"] = await space.read(("Population", str, int))
    return found
