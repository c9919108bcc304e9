"""The user's own functions, by name, in this process. A chain names them; it can run only where they are registered."""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from ..core.errors import BadInput, TooLarge
from ..core.limits import NAME_CHARS_MAX, TRANSFORMATIONS_MAX

F = TypeVar("F", bound=Callable[..., Any])
NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
RESERVED = frozenset({"csv", "data", "json", "msgpack", "struct", "text", "xml"})
"""Names of formats."""

_functions: dict[str, Callable[[Any], Any]] = {}


def transformation(name: str) -> Callable[[F], F]:
    """A decorator: the function is a step of chains under this name, in this process.

    The function gets the result of the step before it, and returns the argument of the next step. An ordinary function
    runs in a thread, a coroutine function as a task. If it raises, the message is not transformed, and the exception is
    the reason. Registering another function under the name replaces it.
    """
    if not NAME.fullmatch(str(name)) or len(name) > NAME_CHARS_MAX:
        raise BadInput(
            f"{name!r} is no name for a transformation: use letters, digits, '_', '.' and '-', with a letter first, as "
            "in @pluribus.transformation('clean')"
        )
    if name in RESERVED:
        raise BadInput(f"{name!r} is a format: give the transformation another name")

    def registered(function: F) -> F:
        if not callable(function):
            raise BadInput(f"{function!r} is no function: use @pluribus.transformation({name!r}) above one")
        if name not in _functions and len(_functions) >= TRANSFORMATIONS_MAX:
            raise TooLarge(f"{TRANSFORMATIONS_MAX:,} transformations are registered already: register fewer")
        _functions[name] = function
        return function

    return registered


def function_of(name: str) -> Callable[[Any], Any] | None:
    return _functions.get(name)


def is_coroutine(function: Callable[[Any], Any]) -> bool:
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def names() -> list[str]:
    return sorted(_functions)


def forget(name: str) -> None:
    """Unregister a function; for tests."""
    _functions.pop(name, None)
