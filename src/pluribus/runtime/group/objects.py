"""Object groups: one object stands for the objects that the members of a group serve.

A call of its method calls that method of all of them, in the order that the group promises. It returns the first good
result, as if there were only one object; or, through ``all``, the answers of all of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from ...core.errors import AnswersLate, Unanswered
from ...group.asking import Answers, Replies
from ...group.calls import interface_of
from .asking import ANSWER_S

Method = Callable[..., Coroutine[Any, Any, Any]]


class Caller(Protocol):
    """Calls methods of the objects of one group: ``GroupCalls`` in a member, ``ClientCalls`` in a client."""

    @property
    def group(self) -> str: ...

    async def call(
        self,
        method: str,
        args: Sequence[Any],
        named: Mapping[str, Any],
        replies: Replies,
        timeout: float | None,
        to: int | None,
    ) -> Answers: ...


class Objects:
    """Made by ``group.proxy`` or ``bus.objects``. ``await objects.method(...)`` is ``objects.first.method(...)``.

    With an interface, an unknown method is an ``AttributeError`` and wrong arguments are a ``TypeError``, before
    anything is sent.
    """

    def __init__(self, service: Caller, interface: type | None = None, timeout: float | None = ANSWER_S) -> None:
        self._service = service
        self._methods = None if interface is None else interface_of(interface)
        self._timeout = timeout
        self._interface = interface

    @property
    def first(self) -> Calling:
        """Each call returns the first good result; if all members raise, it raises the first of their errors."""
        return Calling(self, "one")

    @property
    def all(self) -> Calling:
        """Each call returns the ``Answers`` of all members that serve an object."""
        return Calling(self, "all")

    @property
    def majority(self) -> Calling:
        """Each call returns the ``Answers`` of a majority."""
        return Calling(self, "majority")

    def __getattr__(self, name: str) -> Method:
        return self._method(name, "one")

    def _method(self, name: str, replies: Replies) -> Method:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._methods is not None and name not in self._methods:
            raise AttributeError(f"{getattr(self._interface, '__name__', '')} has no method {name!r}")

        async def call(*args: Any, **named: Any) -> Any:
            if self._methods is not None:
                inspect.signature(self._methods[name]).bind(None, *args, **named)
            if replies != "one":
                return await self._call(name, args, named, replies)
            try:
                return (await self._call(name, args, named, "one"))[0].body
            except AnswersLate:
                raise
            except Unanswered as failed:
                raise next(answer.error for answer in failed.answers if answer.error is not None) from None

        return call

    async def _call(self, name: str, args: tuple[Any, ...], named: dict[str, Any], replies: Replies) -> Answers:
        return await self._service.call(name, args, named, replies, self._timeout, None)

    def __repr__(self) -> str:
        return f"<objects of group {self._service.group!r}>"


class Calling:
    """The methods of an object group, with one choice of how many answers a call awaits."""

    __slots__ = ("_objects", "_replies")

    def __init__(self, objects: Objects, replies: Replies) -> None:
        self._objects = objects
        self._replies = replies

    def __getattr__(self, name: str) -> Method:
        return self._objects._method(name, self._replies)
