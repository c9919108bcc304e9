"""What every synchronous face is made of: a stand-in for an object that lives on the loop of a background thread."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..loop.background import Background

T = TypeVar("T")


class StandIn:
    """A synchronous stand-in for an object on the background loop, with the methods that its class writes down: a
    method that does not exist is an error for ``mypy`` and for an editor."""

    def __init__(self, real: Any, thread: Background) -> None:
        self._real = real
        self._thread = thread

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """An attribute that this class does not have is the real object's: coroutines are waited for, anything else
            is asked on the loop."""
            if name.startswith("_"):
                raise AttributeError(name)
            found = inspect.getattr_static(type(self._real), name, None)
            method = getattr(self._real, name) if inspect.isfunction(found) else None
            if method is None:
                return self._thread.ask(getattr, self._real, name)
            crossing = self._thread.call if inspect.iscoroutinefunction(method) else self._thread.ask

            def crossed(*args: Any, **kwargs: Any) -> Any:
                given = {name: real_of(value) for name, value in kwargs.items()}
                return crossing(method, *map(real_of, args), **given)

            return crossed

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

    def __repr__(self) -> str:
        return f"<synchronous {self._real!r}>"


class Face(StandIn):
    """A stand-in that does not write down all methods of its object: for ``mypy`` it has any."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


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
