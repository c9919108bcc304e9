"""What every synchronous face is made of: a stand-in for an object that lives on the loop of a background thread.

Each stand-in writes down the methods of its object, with the same parameters: an editor completes them, ``mypy`` finds
a misspelt one, and ``tests/runtime/sync/test_faces.py`` fails if the two differ.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..loop.background import Background

T = TypeVar("T")


class StandIn:
    """A synchronous stand-in for an object on the background loop."""

    def __init__(self, real: Any, thread: Background) -> None:
        self._real = real
        self._thread = thread

    def __repr__(self) -> str:
        return f"<synchronous {self._real!r}>"


class Closing(StandIn):
    """A stand-in for an object that can be closed; leaving a ``with`` closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Also in a forked child, where nothing of this can be used."""
        return self._real.closed or not self._thread.usable

    def close(self) -> None:
        """Twice is harmless; in a forked child it does nothing, because what it would close is the parent's."""
        if not self.closed:
            self._thread.call(self._real.close)


class OwnStyle(StandIn):
    """A stand-in for a style of the program's own, whose methods are known to the program alone: coroutines are waited
    for, anything else is asked on the loop."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    else:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            found = inspect.getattr_static(type(self._real), name, None)
            if not inspect.isfunction(found):
                return self._thread.ask(getattr, self._real, name)
            method = getattr(self._real, name)
            crossing = self._thread.call if inspect.iscoroutinefunction(method) else self._thread.ask

            def crossed(*args: Any, **kwargs: Any) -> Any:
                given = {name: real_of(value) for name, value in kwargs.items()}
                return crossing(method, *map(real_of, args), **given)

            return crossed


def real_of(value: Any) -> Any:
    """The object that a synchronous face stands for; anything else as it is."""
    return value._real if isinstance(value, StandIn) else value


def one_by_one(thread: Background, asynchronous: AsyncIterator[T]) -> Iterator[T]:
    """What an iterator of the loop yields, a crossing each."""

    async def following() -> T | None:
        return await anext(asynchronous, None)

    while True:
        found = thread.call(following)
        if found is None:
            return
        yield found
