"""The methods of an object by the messages that they handle.

A class marks its methods with ``handles``: by performative, by performative and subprotocol, or by the type of an
object message. A message that no marked method handles goes to the method ``say``, if the object has one: so unknown
performatives reach the object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from ..core.errors import BadInput
from ..wire.kqml import Kqml
from .messages import Said

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__pluribus_handles__"
SAY = "say"

Key = tuple[str, str] | type
"""A performative and a subprotocol, or a type of objects."""


class Handler(msgspec.Struct, frozen=True):
    """A bound method. With ``quick`` it runs at once, on the loop of the bus, and must not block; with ``waits`` it is
    a coroutine function."""

    call: Callable[[Any], Any]
    quick: bool = False
    waits: bool = False


def handles(*what: str | type, subprotocol: str = "", quick: bool = False) -> Callable[[F], F]:
    """A decorator: the method gets messages with these performatives, or object messages of these types.

    Its result is the answer, if one is wanted. A coroutine function is awaited, a plain one runs in a thread; with
    ``quick=True`` a plain one runs at once on the loop of the bus, so it must not block.
    """
    for wanted in what:
        if not isinstance(wanted, str | type):
            raise BadInput(
                f"{wanted!r} is neither a performative nor a type: write @handles('tell') or @handles(Alarm)"
            )
    if not what:
        raise BadInput("@handles() names nothing: write @handles('tell') or @handles(Alarm)")

    def mark(method: F) -> F:
        if quick and inspect.iscoroutinefunction(method):
            raise BadInput(f"{method.__name__} is a coroutine function, which is not quick: leave out quick=True")
        setattr(method, _MARK, (what, subprotocol, quick))
        return method

    return mark


def handler_of(call: Callable[[Any], Any], quick: bool = False) -> Handler:
    return Handler(call, quick, inspect.iscoroutinefunction(call))


_known: WeakKeyDictionary[type, dict[Key, tuple[str, bool]]] = WeakKeyDictionary()


def marked(cls: type) -> dict[Key, tuple[str, bool]]:
    """By key: the name of the method, and whether it is quick."""
    found = _known.get(cls)
    if found is None:
        found = {}
        for name in dir(cls):
            mark = getattr(inspect.getattr_static(cls, name), _MARK, None)
            if mark is not None:
                what, subprotocol, quick = mark
                for wanted in what:
                    found[(wanted, subprotocol) if isinstance(wanted, str) else wanted] = (name, quick)
        _known[cls] = found
    return found


class Handlers:
    """The handlers of one object, or of one of its subprotocols."""

    __slots__ = ("_served", "_table", "say")

    def __init__(self, served: object) -> None:
        self._served = served
        self._table: dict[Key, Handler] = {
            key: handler_of(getattr(served, name), quick) for key, (name, quick) in marked(type(served)).items()
        }
        say = getattr(served, SAY, None)
        self.say = handler_of(say) if callable(say) else None

    def find(self, message: Said) -> Handler | None:
        """The handler of a message by its key; ``say`` is not considered."""
        if isinstance(message, Kqml):
            parameters = message.parameters
            return self._table.get((message.performative, str(parameters.get("subprotocol", ""))))
        return self.of_type(type(message.body))

    def by_performative(self, performative: str) -> Handler | None:
        return self._table.get((performative, ""))

    def of_type(self, cls: type) -> Handler | None:
        for base in cls.__mro__[:-1]:
            if base in self._table:
                return self._table[base]
        return self._table.get(object)

    @property
    def performatives(self) -> list[str]:
        return sorted({key[0] for key in self._table if isinstance(key, tuple)})
