"""What a subscription asks for: topics, a type, a condition. It is compiled once and used for every batch.

A condition (``where``) refers to the fields of the body. Names that the body does not have may be those of the event:
``topic``, ``sender``, ``time`` and ``headers.NAME``; and ``body``, if the body is a plain value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..core.errors import BadInput
from ..filters import Filter, parse
from ..filters.events import declared_fields, has_field, read_path
from ..filters.predicate import Predicate
from ..filters.tree import Field
from ..wire.bodies import DATA, Kind, checked_type, plain_type, type_of
from .event import Event
from .topics import levels_of

ENVELOPE = frozenset({"topic", "sender", "time", "headers", "body"})
"""Names of the event itself; the body's own come first."""

Now = Callable[[], float]
Translate = Callable[[Event[Any]], Event[Any] | None]


class Interest:
    """Immutable, except ``where``, which changes when a subscriber moves."""

    __slots__ = ("_kinds", "_now", "by_body", "concept", "filter", "holds", "pattern", "translate", "type", "type_name")

    def __init__(
        self,
        pattern: str,
        where: str | Filter | None = None,
        type: type | None = None,
        *,
        now: Now | None = None,
        translate: Translate | None = None,
        concept: str = "",
    ) -> None:
        levels_of(pattern)
        self.pattern = pattern
        self.type = checked_type(type)
        self.type_name = "" if self.type is None else self.type.__name__
        self._kinds: frozenset[str] | None = None
        self._now = now
        self.translate = translate
        """Translates an event for the reader before the condition is checked; None if it is not about its concept."""
        self.concept = concept
        self.filter: Filter | None = None
        self.holds: Predicate | None = None
        self.by_body = False
        if where is not None:
            self.set_where(where)

    def of_types(self, name: str, kinds: Iterable[str]) -> None:
        """Ask for a type of another program, by its name: for bodies of these registered types, which this program may
        not know, or of a type of plain data."""
        self.type_name, known = name, frozenset(kinds)
        if known:
            self._kinds = known
        else:
            self.type = plain_type(name)

    def set_where(self, where: str | Filter | None) -> None:
        """Another condition from now on; None: no condition."""
        if where is None:
            self.filter, self.holds, self.by_body = None, None, False
            return
        made = where if isinstance(where, Filter) else _parsed(where, self.type)
        self.filter = made
        self.by_body = not ENVELOPE.intersection(path[0] for path in made.fields) and self.translate is None
        resolve = None if self.by_body else _resolve
        if made.needs_now and self._now is None:
            raise BadInput(f"filter '{made}' asks for NOW(), and nobody tells the time here")
        predicate = made.predicate(now=self._now if made.needs_now else None, resolve=resolve)
        self.holds = (lambda event: predicate(event.body)) if self.by_body else predicate

    @property
    def plain(self) -> bool:
        """Whether topic and kind alone decide."""
        return self.filter is None and self.translate is None

    def takes(self, kind: Kind) -> bool | None:
        """Whether bodies of a kind are of the wanted type; ``None``: each body must be checked."""
        if self._kinds is not None:
            return kind in self._kinds
        if self.type is None or self.type is object:
            return True
        known = type_of(kind)
        if known is not None:
            return issubclass(known, self.type)
        return None if kind == DATA else False

    def chosen(self, events: Iterable[Event[Any]]) -> list[Event[Any]]:
        """Those of the events under its topics that it asks for."""
        wanted, holds, translate = self.type, self.holds, self.translate
        if translate is not None:
            events = [made for made in map(translate, events) if made is not None]
        if wanted is not None:
            events = [event for event in events if isinstance(event.body, wanted)]
        return list(events) if holds is None else [event for event in events if holds(event)]


def _parsed(where: str, wanted: type | None) -> Filter:
    made = parse(where)
    if wanted is None or not declared_fields(wanted):
        return made
    own = declared_fields(wanted)
    if any(path[0] in ENVELOPE and path[0] not in own for path in made.fields):
        return made
    return parse(where, type=wanted)


def _resolve(field: Field) -> Callable[[Event[Any]], Any]:
    path, name = field.path, field.path[0]
    if name not in ENVELOPE:
        return lambda event: read_path(event.body, path)

    def read(event: Event[Any]) -> Any:
        if has_field(event.body, name):  # also one that is null
            return read_path(event.body, path)
        if name == "headers":
            return read_path(event.headers, path[1:])
        return getattr(event, name) if len(path) == 1 else None

    return read
