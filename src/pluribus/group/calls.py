"""Calls of methods on every member of a group: what may be called, and how a call and its arguments travel.

Only what a program exposes can be called: methods that are marked with ``exposed``, or that the program names when it
serves an object. Arguments and results go through the one codec, each by itself: bytes, text, plain data, registered
types. So nobody reaches into an object from outside, and nothing is ever pickled.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from ..core.errors import BadInput, TooLarge
from ..core.ids import checked_name
from ..core.limits import CALL_ARGUMENTS_MAX
from ..wire.questions import Called, unwrapped, wrapped

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "__pluribus_exposed__"


def exposed(method: F) -> F:
    """Let members of a group call this method of an object that is served to them; a decorator.

    A method that overrides it in a subclass is not exposed unless it is marked, too.
    """
    setattr(method, _MARK, True)
    return method


def methods_of(served: object, names: Collection[str] | None = None) -> dict[str, Callable[..., Any]]:
    """What may be called of an object: what is marked, or what is named; ``BadInput`` if that is nothing."""
    if names is None:
        names = marked(type(served))
    if not names:
        raise BadInput(
            f"{type(served).__name__} exposes nothing: mark methods with @pluribus.exposed, or give their names"
        )
    found = {}
    for name in names:
        method = getattr(served, _public(name), None)
        if not callable(method):
            raise BadInput(f"{type(served).__name__} has no method {name!r}: expose what it has")
        found[name] = method
    return found


def marked(cls: type) -> list[str]:
    """The names of a class's exposed methods."""
    return [name for name in dir(cls) if getattr(inspect.getattr_static(cls, name), _MARK, False)]


def interface_of(cls: type) -> dict[str, Callable[..., Any]]:
    """The methods of an interface: what is marked in it or, if nothing is, every public function."""
    names = marked(cls) or [
        name for name in dir(cls) if not name.startswith("_") and inspect.isfunction(inspect.getattr_static(cls, name))
    ]
    if not names:
        raise BadInput(f"{cls.__name__} has no public method: give an interface that has one, or none at all")
    return {name: getattr(cls, name) for name in names}


def called(question: int, method: str, args: Sequence[Any], named: Mapping[str, Any]) -> Called:
    """A call as it travels; ``BadBody`` if an argument cannot."""
    if len(args) > CALL_ARGUMENTS_MAX or len(named) > CALL_ARGUMENTS_MAX:
        raise TooLarge(f"a call with {len(args)} and {len(named)} arguments: pass up to {CALL_ARGUMENTS_MAX} of each")
    return Called(
        question, _public(method), tuple(map(wrapped, args)), {name: wrapped(value) for name, value in named.items()}
    )


def arguments_of(call: Called) -> tuple[list[Any], dict[str, Any]]:
    return [unwrapped(value) for value in call.args], {name: unwrapped(value) for name, value in call.named.items()}


def _public(name: str) -> str:
    if checked_name(name, "the method").startswith("_"):
        raise BadInput(f"{name!r} is private: expose methods that do not begin with an underscore")
    return name
