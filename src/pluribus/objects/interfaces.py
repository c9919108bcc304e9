"""Interfaces and handles, as in M2MI: a call on all objects that have an interface, on those of a group, or on one.

An interface is a class with typed signatures. An object *exports* it; the export says which callers may use which
handle. That is the access control of section 2.3.2:

- through an *omni* handle anybody on the bus may call it;
- through a *group* handle a caller may call it that names one of its groups (its aliases);
- through a *uni* handle a caller may call it that knows the object itself, or only the members that ``callers`` names.

Receivers filter before they decode (M2MP): a call says its interface and group outside of its arguments, and a process
that has no such object never decodes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec

from ..core.errors import BadInput
from ..core.ids import checked_name
from ..group.calls import interface_of
from .types import as_type, hints_of

OMNI, GROUP, UNI = "omni", "group", "uni"
NONE, FIRST, ALL = "none", "first", "all"
RESULTS = (NONE, FIRST, ALL)


class Export(msgspec.Struct, frozen=True):
    """The methods that an object lets others call, and the allowed callers. Made by ``export``."""

    interface: str
    methods: dict[str, Callable[..., Any]]
    omni: bool = True
    groups: tuple[str, ...] | None = None
    uni: bool = True
    callers: tuple[str, ...] | None = None

    def allows(self, how: str, group: str, caller: str) -> bool:
        """True if a member of this name may call through such a handle."""
        if self.callers is not None and caller not in self.callers:
            return False
        if how == OMNI:
            return self.omni
        if how == GROUP:
            return self.groups is None or group in self.groups
        return self.uni


def export(
    interface: type,
    *,
    omni: bool = True,
    groups: Collection[str] | None = None,
    uni: bool = True,
    callers: Collection[str] | None = None,
) -> Export:
    """The rights to call an object through handles. ``omni=False`` keeps omni handles out, ``uni=False`` uni handles.
    ``groups`` are the only groups whose handles reach it. ``callers`` are the names of the only members that may call
    it at all."""
    return Export(
        checked_name(interface.__name__, "the interface"),
        interface_of(interface),
        omni,
        None if groups is None else tuple(groups),
        uni,
        None if callers is None else tuple(callers),
    )


def exported(given: type | Export, served: object) -> Export:
    """The export of an object; ``BadInput`` if it lacks a method of the interface."""
    found = given if isinstance(given, Export) else export(given)
    for name in found.methods:
        if not callable(getattr(served, name, None)):
            raise BadInput(
                f"{type(served).__name__} has no method {name!r} of {found.interface}: write it, or export less"
            )
    return found


def bound(interface: str, method: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]) -> None:
    """``TypeError`` before anything is sent, if arguments do not fit the signature."""
    inspect.signature(method).bind(None, *args, **named)


def checked_arguments(
    method: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments from outside, converted to the types of the interface. ``BadInput`` names an argument that does not
    fit."""
    try:
        given = inspect.signature(method).bind(None, *args, **named)
    except TypeError as error:
        raise BadInput(f"{method.__name__}: {error}") from None
    hints = hints_of(method)
    parameters = given.signature.parameters
    for name, value in list(given.arguments.items())[1:]:
        if name in hints:
            kind = parameters[name].kind
            try:
                if kind is inspect.Parameter.VAR_POSITIONAL:
                    given.arguments[name] = tuple(as_type(inner, hints[name]) for inner in value)
                elif kind is inspect.Parameter.VAR_KEYWORD:
                    given.arguments[name] = {key: as_type(inner, hints[name]) for key, inner in value.items()}
                else:
                    given.arguments[name] = as_type(value, hints[name])
            except ValueError as error:
                raise BadInput(f"{method.__name__}: the argument {name!r} does not fit: {error}") from None
    return list(given.args[1:]), given.kwargs
