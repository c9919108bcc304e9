"""Checks whether a value from outside is of the type that a signature or a field asks for."""

from __future__ import annotations

import types
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec


def hints_of(of: Any) -> dict[str, Any]:
    """The hints of a function or class, as types; none where they cannot be resolved."""
    try:
        return get_type_hints(of)
    except Exception:  # noqa: BLE001 - whatever stands in somebody's annotations: then nothing is checked
        return {}


def fits(value: Any, hint: Any) -> bool:
    """True if a value is of a type, or if no check is known for the type."""
    if hint is Any or hint is object or isinstance(hint, TypeVar | ForwardRef | str):
        return True
    if hint is None or hint is type(None):
        return value is None
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, option) for option in args)
    if origin is Annotated:
        return fits(value, args[0])
    if origin is Literal:
        return value in args
    if origin is None:
        if not isinstance(hint, type):
            return True
        if hint is float:
            return isinstance(value, int | float) and not isinstance(value, bool)
        if hint is int:
            return isinstance(value, int) and not isinstance(value, bool)
        return isinstance(value, hint)
    if not isinstance(origin, type):
        return True
    if not isinstance(value, origin):
        return False
    if not args or not issubclass(origin, list | dict | set | frozenset | tuple):
        return True
    return _all_fit(value, origin, args)


def _all_fit(value: Any, origin: type, args: tuple[Any, ...]) -> bool:
    """The parts of a container."""
    if issubclass(origin, dict):
        return all(fits(key, args[0]) and fits(inner, args[1]) for key, inner in value.items())
    if issubclass(origin, tuple) and not (len(args) == 2 and args[1] is Ellipsis):
        return len(value) == len(args) and all(map(fits, value, args))
    return all(fits(inner, args[0]) for inner in value)


def as_type(value: Any, hint: Any) -> Any:
    """The value converted to that type: a list where a tuple is wanted, the text of a date. ``ValueError`` if that is
    impossible."""
    if fits(value, hint):
        return value
    try:
        return msgspec.convert(value, hint)
    except (msgspec.ValidationError, TypeError) as error:
        raise ValueError(str(error)) from None
