"""Subscriptions by concept: programs that use different words for the same thing understand each other.

A vocabulary says which terms mean the same, which names programs use for its fields, and in which units the values are.
A subscriber asks for a concept by any of its terms. Events about the concept, whichever term they use, come with the
vocabulary's own field names and units; conditions refer to these.

The concept of an event is the first of these that is a term of the vocabulary: its header ``concept``, the body's field
``concept`` or ``kind``, the name of the body's type, a level of its topic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ..core.errors import BadInput
from ..filters.events import declared_fields
from .event import Event

UNIT_FIELDS = ("unit", "currency")


class Field(msgspec.Struct, frozen=True):
    """One property of a concept."""

    names: dict[str, float] = {}
    """Its names, each with the factor for its values: ``{"price": 1, "kurs": 1, "price_cents": 0.01}``."""
    units: dict[str, float] = {}
    """Factors for events that name a unit (header ``NAME.unit``, body field ``unit`` or ``currency``)."""


class Concept(msgspec.Struct, frozen=True):
    terms: list[str]
    fields: dict[str, Field] = {}


class Vocabulary:
    """``Vocabulary({"share": Concept(["share", "stock", "aktie"], {...})})``; dictionaries, as from JSON, will do.

    A term belongs to one concept; upper and lower case are the same.
    """

    def __init__(self, concepts: Mapping[str, Any]) -> None:
        self.concepts: dict[str, Concept] = {}
        self._concept_of: dict[str, str] = {}
        for name, given in concepts.items():
            try:
                concept = msgspec.convert(msgspec.to_builtins(given), Concept)
            except (msgspec.ValidationError, TypeError) as error:
                raise BadInput(f"concept {name!r} is none ({error}): give it terms, and fields with names") from None
            self.concepts[name] = concept
            for term in {name, *concept.terms}:
                known = self._concept_of.setdefault(term.casefold(), name)
                if known != name:
                    raise BadInput(f"the term {term!r} stands for {known!r} and for {name!r}: choose one of them")

    def concept(self, term: str) -> str:
        """The name of the concept that a term stands for."""
        found = self._concept_of.get(term.casefold())
        if found is None:
            known = ", ".join(sorted(self.concepts)) or "nothing"
            raise BadInput(f"the vocabulary has no concept for {term!r}: it knows {known}")
        return found

    def about(self, event: Event[Any]) -> tuple[str, str] | None:
        """The concept that an event is about, and the term that it uses."""
        body = _fields(event.body)
        words = [event.headers.get("concept"), body.get("concept"), body.get("kind"), type(event.body).__name__]
        for word in (*words, *event.topic.split("/")):
            if isinstance(word, str) and word.casefold() in self._concept_of:
                return self._concept_of[word.casefold()], word
        return None

    def translated(self, event: Event[Any], concept: str) -> Event[Any] | None:
        """The event in the vocabulary's own words and units, if it is about the concept; its header ``term`` is the
        word that it used."""
        about = self.about(event)
        if about is None or about[0] != concept:
            return None
        given = _fields(event.body)
        meanings = self.concepts[concept].fields
        called = {name: (own, factor) for own, field in meanings.items() for name, factor in field.names.items()}
        body: dict[str, Any] = {}
        for name, value in given.items():
            own, factor = called.get(name, (name, 1.0))
            if own in meanings:
                factor *= self._unit(meanings[own], own, name, given, event)
            plain = isinstance(value, int | float) and not isinstance(value, bool)
            body[own] = value * factor if plain and factor != 1.0 else value
        headers = {**event.headers, "concept": concept, "term": about[1]}
        return msgspec.structs.replace(event, body=body, headers=headers)

    def _unit(self, field: Field, own: str, name: str, given: Mapping[str, Any], event: Event[Any]) -> float:
        for known in (own, name):
            unit = event.headers.get(f"{known}.unit")
            if isinstance(unit, str) and unit in field.units:
                return field.units[unit]
        for place in UNIT_FIELDS:
            unit = given.get(place)
            if isinstance(unit, str) and unit in field.units:
                return field.units[unit]
        return 1.0


def _fields(body: Any) -> Mapping[str, Any]:
    if isinstance(body, Mapping):
        return body
    kind: type = type(body)
    return {name: getattr(body, name) for name in declared_fields(kind)}
