"""A template describes the tuples that it matches. A field of a template is a value, a type, several types, or
anything.

A template of a tuple has as many fields as the tuples that it matches. A template of an entry names a class, which
matches its subclasses too, and the fields that are given. A *condition* may be added, in the filter language, over the
fields by name; those of a tuple are ``f0``, ``f1``, …: ranges, which Linda's templates do not have.
"""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin

import msgspec

from ..core.errors import BadInput, MalformedFrame
from .conditions import condition_of, fields_in, predicate_of
from .values import CLASS, FIELDS_MAX, PLAIN, FieldValue, Item, condition_view, field_names, field_of, is_of, kind_of


class _Any:
    """Stands for anything in a template."""

    def __repr__(self) -> str:
        return "ANY"


ANY = _Any()
"""A field of a template that matches every value; ``...`` and ``object`` say the same."""

ARITY_ANY = -1


class Wanted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One field of a template. With ``value``: that one; with ``kinds``: of one of these types; else anything."""

    kinds: tuple[str, ...] = ()
    value: FieldValue | None = None


ANYTHING = Wanted()


class Template(msgspec.Struct, frozen=True, array_like=True):
    """A template as it travels. ``of`` is the class of an entry, and ``names`` are the fields that are given; for a
    tuple both are empty, and ``fields`` has its whole length. Arity ``ARITY_ANY`` without a class: every tuple and
    entry."""

    arity: int
    fields: tuple[Wanted, ...] = ()
    of: str = ""
    names: tuple[str, ...] = ()
    where: bytes = b""

    def matches(self, item: Item) -> bool:
        """True if the template matches an item: the plain way, with which the index must agree."""
        return self.matches_fields(item) and (not self.where or predicate_of(self.where)(condition_view(item)))

    def matches_fields(self, item: Item) -> bool:
        if self.of:
            if not item.of or not is_of(item.of, self.of):
                return False
            try:
                places = [item.names.index(name) for name in self.names]
            except ValueError:
                return False
            return all(_fits(want, item.fields[at]) for want, at in zip(self.fields, places, strict=True))
        if self.arity == ARITY_ANY:
            return True
        if item.of or len(item.fields) != self.arity:
            return False
        return all(map(_fits, self.fields, item.fields))


def _fits(want: Wanted, field: FieldValue) -> bool:
    if want.value is not None:
        return want.value == field
    return not want.kinds or any(is_of(field.kind, kind) for kind in want.kinds)


ANY_ITEM = Template(ARITY_ANY)
"""Matches every tuple and entry."""


def template_of(given: Any, where: str = "", *, all_allowed: bool = False) -> Template:
    """A template as a program writes it: a tuple, a registered class, or an object of one in which ``None`` is left
    open. With ``all_allowed``, ``None`` as the whole template matches every tuple and entry. ``BadInput`` says what is
    wrong with it."""
    if given is None and all_allowed:
        return Template(ARITY_ANY, where=condition_of(where))
    if isinstance(given, tuple | list):
        if not given:
            raise BadInput("a template of no fields matches nothing: give it as many fields as the tuple has")
        if len(given) > FIELDS_MAX:
            raise BadInput(f"a template of {len(given)} fields: tuples have at most {FIELDS_MAX}")
        made = Template(len(given), tuple(map(wanted_of, given)), where=condition_of(where))
        _check_names(made, {f"f{at}" for at in range(len(given))}, where)
        return made
    cls = given if isinstance(given, type) else type(given)
    of = kind_of(cls)
    if of is None or of[0] != CLASS:
        raise BadInput(
            f"{given!r} is no template: use a tuple of values and types, a registered class, or an object of one"
        )
    named: list[tuple[str, Wanted]] = []
    if not isinstance(given, type):
        values = ((name, getattr(given, name)) for name in field_names(cls))
        named = [(name, wanted_of(value)) for name, value in values if value is not None]
    fields = tuple(want for _, want in named if want != ANYTHING)
    names = tuple(name for name, want in named if want != ANYTHING)
    return Template(ARITY_ANY, fields, of, names, condition_of(where))


def exactly(item: Item) -> Template:
    """The template that matches an item and those equal to it."""
    fields = tuple(Wanted((), field) for field in item.fields)
    return Template(ARITY_ANY, fields, item.of, item.names) if item.of else Template(len(fields), fields)


def wanted_of(given: Any) -> Wanted:
    """One field of a template."""
    if given is ANY or given is Ellipsis or given is object or given is Any:
        return ANYTHING
    if get_origin(given) in (Union, types.UnionType):
        return Wanted(tuple(kind for one in get_args(given) for kind in wanted_of(one).kinds))
    if isinstance(given, type):
        kind = kind_of(given)
        if kind is None:
            known = ", ".join(sorted({one.__name__ for one in PLAIN}))
            raise BadInput(
                f"no value in a space is of type {given.__name__}: register the class, or use one of {known}"
            )
        return Wanted((kind,))
    return Wanted((), field_of(given))


def _check_names(template: Template, known: set[str], where: str) -> None:
    unknown = fields_in(template.where) - known if template.where else set()
    if unknown:
        listed = ", ".join(sorted(known, key=lambda name: int(name[1:])))
        raise BadInput(f"the condition {where!r} names {', '.join(sorted(unknown))}: the fields are called {listed}")


def check_template(template: Template) -> None:
    """``MalformedFrame`` for a template that no release makes."""
    if len(template.fields) != (len(template.names) if template.of else max(template.arity, 0)):
        raise MalformedFrame(f"a template of {template.arity} fields that has {len(template.fields)}")
    if template.where:
        predicate_of(template.where)
