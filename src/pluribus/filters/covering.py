"""Does one filter cover another? ``covers(f, g)``: every event that matches g matches f.

Brokers use it to forward a subscription only where no wider one went before; a subscriber with f does not need g.

It is sound: a yes is always right. It is not complete, since deciding it exactly would take exponential time; a no
means "not proved". g is taken apart into alternatives, and each must imply f. What a conjunction says about one
*subject* (a field, or an expression that is compared with constants) is gathered as *facts*: an interval, a set of
values that it is one of, values that it is not, patterns that it matches. A condition is implied if the facts about its
subject leave nothing else, or if the conjunction contains it, or if the facts contradict each other.

Any comparison that is true also says that its fields are there.
"""

from __future__ import annotations

import math
from typing import Any

from .like import Pieces, Wild, matcher, pieces_of
from .normal import alternatives, fold, negations_inward
from .numbers import distance, kind_of
from .tree import (
    FALSE,
    MIRRORED,
    TRUE,
    And,
    Call,
    Compare,
    Constant,
    Field,
    In,
    IsNull,
    IsTruth,
    Kind,
    Like,
    Node,
    Not,
    Or,
    Path,
    Value,
    children,
    walk,
)

ALTERNATIVES_MAX = 64
SLACK_M = 0.001
"""Circles that touch within a millimetre are not decided."""

_IMPLIED = {
    "=": ("=", "<=", ">="),
    "<": ("<", "<=", "<>"),
    ">": (">", ">=", "<>"),
    "<=": ("<=",),
    ">=": (">=",),
    "<>": ("<>",),
}
"""A comparison of two sides, and the comparisons of the same sides that follow from it."""


def covers(wide: Node, narrow: Node) -> bool:
    wide, narrow = fold(negations_inward(wide)), fold(negations_inward(narrow))
    if wide in (TRUE, narrow) or narrow == FALSE:
        return True
    found = alternatives(narrow, ALTERNATIVES_MAX)
    if found is None:
        found = [narrow.terms if isinstance(narrow, And) else (narrow,)]
    conjunctions = found
    return all(_Facts(conjunction).imply(wide) for conjunction in conjunctions)


class _Subject:
    """The facts about one value: between ``low`` and ``high``, perhaps one of ``among``, none of ``excluded``."""

    def __init__(self) -> None:
        self.low: Any = None
        self.low_open = False
        self.high: Any = None
        self.high_open = False
        self.among: frozenset[Any] | None = None
        self.excluded: set[Any] = set()
        self.patterns: list[Pieces] = []

    def learn(self, operator: str, value: Any) -> None:
        if operator == "=":
            self.learn_among(frozenset([value]))
        elif operator == "<>":
            self.excluded.add(value)
        elif operator in ("<", "<="):
            if self.high is None or value < self.high or (value == self.high and operator == "<"):
                self.high, self.high_open = value, operator == "<"
        elif self.low is None or value > self.low or (value == self.low and operator == ">"):
            self.low, self.low_open = value, operator == ">"

    def learn_among(self, values: frozenset[Any]) -> None:
        self.among = values if self.among is None else self.among & values

    def possible(self) -> frozenset[Any] | None:
        """The values that it can have, if they are few."""
        if self.among is None:
            if self.low is not None and self.low == self.high and not self.low_open and not self.high_open:
                return frozenset([self.low]) - self.excluded
            return None
        return frozenset(value for value in self.among if self._allows(value))

    def _allows(self, value: Any) -> bool:
        if value in self.excluded:
            return False
        if self.low is not None and (value < self.low or (value == self.low and self.low_open)):
            return False
        if self.high is not None and (value > self.high or (value == self.high and self.high_open)):
            return False
        return all(matcher(pieces)(value) for pieces in self.patterns)

    def is_contradictory(self) -> bool:
        possible = self.possible()
        if possible is not None:
            return not possible
        if self.low is None or self.high is None:
            return False
        return bool(self.low > self.high or (self.low == self.high and (self.low_open or self.high_open)))

    def implies(self, operator: str, value: Any) -> bool:
        possible = self.possible()
        if possible is not None:
            return all(_HOLDS[operator](one, value) for one in possible)
        below = self.high is not None and (self.high < value or (self.high == value and self.high_open))
        above = self.low is not None and (self.low > value or (self.low == value and self.low_open))
        match operator:
            case "<":
                return below
            case "<=":
                return below or (self.high is not None and self.high == value)
            case ">":
                return above
            case ">=":
                return above or (self.low is not None and self.low == value)
            case "<>":
                return below or above or value in self.excluded
        return False

    def implies_like(self, wanted: Pieces) -> bool:
        possible = self.possible()
        if possible is not None:
            return all(matcher(wanted)(one) for one in possible)
        return wanted == (Wild.ANY,) or any(_contained(pieces, wanted) for pieces in self.patterns)


_HOLDS: dict[str, Any] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _contained(pieces: Pieces, wanted: Pieces) -> bool:
    """True if every text that matches ``pieces`` matches ``wanted``, if ``wanted`` is a start, an end or a part."""
    if pieces == wanted:
        return True
    first, last = (pieces[0], pieces[-1]) if pieces else (None, None)
    match wanted:
        case (str(start), Wild.ANY):
            return isinstance(first, str) and first.startswith(start)
        case (Wild.ANY, str(end)):
            return isinstance(last, str) and last.endswith(end)
        case (Wild.ANY, str(part), Wild.ANY):
            return any(isinstance(piece, str) and part in piece for piece in pieces)
    return False


class _Facts:
    """The facts of a conjunction."""

    def __init__(self, conjunction: tuple[Node, ...]) -> None:
        self._terms = set(conjunction)
        self._subjects: dict[Node, _Subject] = {}
        self._pairs: dict[tuple[Node, Node], list[str]] = {}
        self._there: set[Path] = set()
        self._absent: set[Path] = set()
        for term in conjunction:
            self._learn(term)
        self._contradictory = (
            bool(self._there & self._absent)
            or any(subject.is_contradictory() for subject in self._subjects.values())
            or any(Not(term) in self._terms for term in conjunction)
        )

    def _learn(self, term: Node) -> None:
        match term:
            case IsNull(Field(path)):
                self._absent.add(path)
                return
            case Not(IsNull(Field(path))):
                self._there.add(path)
                return
            case Compare(operator, left, right):
                self._learn_comparison(operator, left, right)
            case In(subject, values):
                chosen = frozenset(value.value for value in values if isinstance(value, Constant))
                self._subject(subject).learn_among(chosen)
            case Not(In(subject, values)):
                for value in values:
                    if isinstance(value, Constant):
                        self._subject(subject).learn("<>", value.value)
            case Like(subject, Constant(pattern), escape):
                self._subject(subject).patterns.append(pieces_of(str(pattern), escape))
        if _is_of_values(term):
            self._there |= {node.path for node in walk(term) if isinstance(node, Field)}

    def _learn_comparison(self, operator: str, left: Node, right: Node) -> None:
        if isinstance(left, Constant):
            left, right, operator = right, left, MIRRORED[operator]
        if isinstance(right, Constant):
            self._subject(left).learn(operator, right.value)
        else:
            self._pairs.setdefault((left, right), []).append(operator)
            self._pairs.setdefault((right, left), []).append(MIRRORED[operator])

    def _subject(self, node: Node) -> _Subject:
        return self._subjects.setdefault(node, _Subject())

    def imply(self, wanted: Node) -> bool:
        if self._contradictory or wanted == TRUE or wanted in self._terms:
            return True
        match wanted:
            case And(terms):
                return all(map(self.imply, terms))
            case Or(terms):
                return any(map(self.imply, terms))
            case IsNull(Field(path)):
                return path in self._absent
            case Not(IsNull(Field(path))):
                return path in self._there
            case Compare(operator, left, right):
                return self._imply_comparison(operator, left, right)
            case In(subject, values):
                possible = self._subjects[subject].possible() if subject in self._subjects else None
                chosen = {value.value for value in values if isinstance(value, Constant)}
                return possible is not None and possible <= chosen
            case Not(In(subject, values)):
                return subject in self._subjects and all(
                    isinstance(value, Constant) and self._subjects[subject].implies("<>", value.value)
                    for value in values
                )
            case Like(subject, Constant(pattern), escape) if subject in self._subjects:
                return self._subjects[subject].implies_like(pieces_of(str(pattern), escape))
            case Not(Like(subject, Constant(pattern), escape)) if subject in self._subjects:
                possible = self._subjects[subject].possible()
                matches = matcher(pieces_of(str(pattern), escape))
                return possible is not None and not any(matches(one) for one in possible)
        return False

    def _imply_comparison(self, operator: str, left: Node, right: Node) -> bool:
        if isinstance(left, Constant):
            left, right, operator = right, left, MIRRORED[operator]
        if not isinstance(right, Constant):
            known = self._pairs.get((left, right), ())
            # Of two fields that may be true or false, equality says nothing about order.
            has_order = kind_of(left) in (Kind.NUMBER, Kind.TEXT)
            return any(operator in _IMPLIED[one] and (has_order or one != "=") for one in known)
        if left in self._subjects and self._subjects[left].implies(operator, right.value):
            return True
        return operator in ("<", "<=") and self._circle_inside(left, right.value)

    def _circle_inside(self, wanted: Node, radius: Any) -> bool:
        """A circle lies inside another if its centre is nearer than the difference of their radii."""
        circle = _circle(wanted)
        if circle is None:
            return False
        for subject, facts in self._subjects.items():
            inner = _circle(subject)
            if inner is None or inner[0] != circle[0] or facts.high is None:
                continue
            if distance(*inner[1], *circle[1]) + facts.high + SLACK_M < radius:
                return True
        return False


def _circle(node: Node) -> tuple[tuple[Node, Node], tuple[float, float]] | None:
    match node:
        case Call("DISTANCE", (Field() as lat, Field() as lon, Constant(north), Constant(east))):
            place = (float(north), float(east))
            return ((lat, lon), place) if all(map(math.isfinite, place)) else None
    return None


def _is_of_values(term: Node) -> bool:
    """True if it can only be true when all its fields are there. Not so for IS, and for conditions inside of it."""
    inner = term.term if isinstance(term, Not) else term
    if isinstance(inner, IsNull | IsTruth | And | Or):
        return False
    return all(isinstance(node, Value) for child in children(inner) for node in walk(child))
