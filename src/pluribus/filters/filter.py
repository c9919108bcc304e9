"""The filter as programs hold it, and templates that make many filters of one text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from ..core.errors import BadFilter, BadInput
from .events import number
from .like import pieces_of
from .normal import fold
from .predicate import Now, Predicate, Resolve, compile_predicate
from .printing import to_text
from .schema import Schema
from .tree import (
    Call,
    Compare,
    Constant,
    Field,
    Kind,
    Like,
    Node,
    Not,
    Parameter,
    Path,
    children,
    replace_leaves,
    storable,
    walk,
)


class Filter:
    """A condition on events. Made by ``parse`` or by a template; immutable; two filters are equal if their trees are.

    ``str(filter)`` is SQL that parses to an equal filter. A filter with ``NOW()`` needs a clock:
    ``predicate(now=clock.now)``.
    """

    __slots__ = ("_predicate", "needs_now", "tree")

    def __init__(self, tree: Node) -> None:
        self._make(fold(tree), _asks_for_now(tree))

    def _make(self, tree: Node, needs_now: bool) -> None:
        self.tree = tree
        self.needs_now = needs_now
        self._predicate: Predicate | None = None

    def __str__(self) -> str:
        return to_text(self.tree)

    def __repr__(self) -> str:
        return f"Filter({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Filter) and self.tree == other.tree

    def __hash__(self) -> int:
        return hash(self.tree)

    @property
    def fields(self) -> dict[Path, Kind]:
        """The fields that it reads, and their kinds."""
        return {node.path: node.kind for node in walk(self.tree) if isinstance(node, Field)}

    def matches(self, event: Any) -> bool:
        """True if the filter is true for an event; False if it is false or unknown."""
        if self._predicate is None:
            self._predicate = compile_predicate(self.tree)
        return self._predicate(event)

    def truth(self, event: Any) -> bool | None:
        """True, false, or ``None`` where it is unknown."""
        if self.matches(event):
            return True
        return False if compile_predicate(Not(self.tree))(event) else None

    def covers(self, other: Filter) -> bool:
        """True if every event that matches the other matches this one. A yes is right; a no may mean "cannot tell"."""
        from .covering import covers

        return covers(self.tree, other.tree)

    def partial(self, known: Mapping[str, Any]) -> Filter:
        """The rest of the filter for events that have these values; ``None`` means a value that is known to be null."""
        from .partial import partial

        return Filter(partial(self.tree, known))

    def predicate(self, *, now: Now | None = None, resolve: Resolve | None = None) -> Predicate:
        """``matches`` as a plain function: quicker to call, and the way to hand in a clock or a resolver."""
        return compile_predicate(self.tree, now=now, resolve=resolve)


def parse(text: str, *, type: type | None = None) -> Filter:
    """Parse a text; ``BadFilter`` has position, reason and remedy.

    With ``type``, a struct or dataclass of events, fields that it does not have and values of other kinds are refused.
    """
    template = Template(text, type=type)
    if template.parameters:
        name = next(iter(template.parameters))
        raise BadFilter.at(text, text.find(f":{name}") + 1, f":{name} has no value", "use Template(text).bind(...)")
    return Filter(template.tree)


class Template:
    """A text with parameters, ``:name``; ``bind`` gives them values. Values never become SQL text.

    Parsing takes a fifth of a millisecond, binding a hundredth: make many filters of a shape from one template.
    """

    def __init__(self, text: str, *, type: type | None = None) -> None:
        from .grammar import parse_tree

        self.text = text
        self.tree, kinds = parse_tree(text, schema=None if type is None else Schema(type))
        self.parameters: dict[str, Kind] = {
            node.name: node.kind for node in walk(self.tree) if isinstance(node, Parameter)
        }
        self._plain = _parameters_are_plain(self.tree)
        self._needs_now = _asks_for_now(self.tree)
        if self._plain:
            self.tree = fold(self.tree)
        self._open = {name: kinds.like_parameter(name) for name, kind in self.parameters.items() if kind is Kind.ANY}

    def bind(self, values: Mapping[str, Any] | None = None, **more: Any) -> Filter:
        given = {**(values or {}), **more}
        for name in self.parameters.keys() ^ given.keys():
            what = "is not given" if name in self.parameters else "is no parameter of it"
            raise BadInput(f"filter {self.text!r}: :{name} {what}; its parameters are {', '.join(self.parameters)}")
        constants = {name: self._constant(name, value) for name, value in given.items()}
        fields = {(".", *path)[1:]: constants[name].kind for name, paths in self._open.items() for path in paths}

        def bound(leaf: Constant | Parameter | Field) -> Node:
            if isinstance(leaf, Parameter):
                return constants[leaf.name]
            if isinstance(leaf, Field) and leaf.kind is Kind.ANY and leaf.path in fields:
                return Field(leaf.path, fields[leaf.path], leaf.via)
            return leaf

        tree = replace_leaves(self.tree, bound)
        if self._plain and not any(made.kind is Kind.BOOLEAN for made in constants.values()):
            made = Filter.__new__(Filter)
            made._make(tree, self._needs_now)
            return made
        self._check_patterns(tree)
        return Filter(tree)

    def _constant(self, name: str, value: Any) -> Constant:
        wanted = self.parameters[name]
        made = constant(value)
        if made is None or wanted not in (Kind.ANY, made.kind):
            wish = wanted if wanted is not Kind.ANY else Kind.NUMBER
            raise BadInput(f"filter {self.text!r}: :{name} cannot be {value!r}; give it {wish.value}")
        return made

    def _check_patterns(self, tree: Node) -> None:
        for node in walk(tree):
            if isinstance(node, Like) and isinstance(node.pattern, Constant):
                try:
                    pieces_of(str(node.pattern.value), node.escape)
                except ValueError as error:
                    raise BadInput(
                        f"filter {self.text!r}: the pattern {node.pattern.value!r} is wrong: {error}"
                    ) from None


def _asks_for_now(tree: Node) -> bool:
    return any(isinstance(node, Call) and node.name == "NOW" for node in walk(tree))


def _parameters_are_plain(tree: Node) -> bool:
    """True if every parameter is compared with a field and nothing else, so that binding leaves nothing to compute."""
    parents = [node for node in walk(tree) if any(isinstance(child, Parameter) for child in children(node))]
    return all(
        isinstance(node, Compare) and any(isinstance(side, Field) for side in (node.left, node.right))
        for node in parents
    )


def constant(value: Any) -> Constant | None:
    """A Python value as a constant of the language; ``None`` if it cannot be one."""
    if isinstance(value, bool):
        return Constant(value, Kind.BOOLEAN)
    if isinstance(value, str):
        return Constant(str.__str__(value), Kind.TEXT) if storable(value) else None
    if isinstance(value, int | float | datetime | timedelta):
        amount = number(value)
        if abs(amount) <= 1.7976931348623157e308:
            return Constant(int(amount) if amount == int(amount) else amount, Kind.NUMBER)
    return None
