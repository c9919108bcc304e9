"""The kinds of a filter's fields, as the filter implies them; values that cannot be compared are refused.

A field has one kind in a filter. ``price > 100`` makes ``price`` a number; ``a = b`` makes ``a`` and ``b`` alike, so
that ``a = b AND b > 3`` makes both numbers. Fields and parameters that are alike form a class (union-find); a class
whose kind nothing implies stays ``ANY``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..core.errors import BadFilter
from .numbers import kind_of
from .tree import Constant, Field, Kind, Node, Parameter, replace_leaves

Name = tuple[str, ...]


class Kinds:
    """``at`` is any object from which ``position`` makes a position in the text, when a construct is refused."""

    def __init__(self, text: str, position: Callable[[Any], int]) -> None:
        self._text = text
        self._position = position
        self._parents: dict[Name, Name] = {}
        self._kinds: dict[Name, tuple[Kind, Any]] = {}

    def of(self, node: Node) -> Kind:
        name = _name(node)
        return kind_of(node) if name is None else self._kinds.get(self._find(name), (Kind.ANY, 0))[0]

    def expect(self, node: Node, kind: Kind, at: Any, where: str) -> None:
        """The node is used as of this kind; ``where`` is part of the error if it is of another."""
        name = _name(node)
        if name is None:
            found = kind_of(node)
            if found is not kind:
                self._refuse(at, f"{found.value} stands where {kind.value} is needed, {where}")
            return
        known = self._kinds.setdefault(self._find(name), (kind, at))
        if known[0] is not kind:
            first = f"{_shown(name)} is {known[0].value} at character {self._position(known[1])}"
            self._refuse(at, f"{first}, but is used as {kind.value} {where}")

    def alike(self, left: Node, right: Node, at: Any) -> Kind:
        """Two nodes are compared; gives their kind."""
        ours, others = self.of(left), self.of(right)
        if Kind.ANY not in (ours, others):
            if ours is not others:
                for side, wanted in ((left, others), (right, ours)):
                    if _name(side) is not None:
                        self.expect(side, wanted, at, "in a comparison")
                self._refuse(at, f"compares {ours.value}{_quoted(left)} with {others.value}{_quoted(right)}")
            return ours
        one, other = _name(left), _name(right)
        if one is not None and other is not None:
            self._unite(one, other)
        elif one is not None and others is not Kind.ANY:
            self.expect(left, others, at, "in a comparison")
        elif other is not None and ours is not Kind.ANY:
            self.expect(right, ours, at, "in a comparison")
        return others if ours is Kind.ANY else ours

    def settle(self, tree: Node) -> Node:
        """The tree with every field's and parameter's kind written in."""

        def settled(leaf: Constant | Parameter | Field) -> Node:
            if isinstance(leaf, Constant) or _name(leaf) is None:
                return leaf
            kind = self.of(leaf)
            return Parameter(leaf.name, kind) if isinstance(leaf, Parameter) else Field(leaf.path, kind, leaf.via)

        return replace_leaves(tree, settled)

    def like_parameter(self, name: str) -> frozenset[Name]:
        """The fields that are compared with a parameter whose kind is still open."""
        root = self._find((":", name))
        return frozenset(known[1:] for known in self._parents if known[0] == "." and self._find(known) == root)

    def _find(self, name: Name) -> Name:
        root = name
        while (parent := self._parents.setdefault(root, root)) != root:
            root = parent
        self._parents[name] = root
        return root

    def _unite(self, one: Name, other: Name) -> None:
        kept, gone = self._find(one), self._find(other)
        if kept != gone:
            self._parents[gone] = kept
            if gone in self._kinds:
                self._kinds.setdefault(kept, self._kinds.pop(gone))

    def _refuse(self, at: Any, reason: str) -> NoReturn:
        raise BadFilter.at(self._text, self._position(at), reason, "compare numbers with numbers and texts with texts")


def _name(node: Node) -> Name | None:
    """A member of a class: a parameter, or a field whose kind is not given by a function."""
    match node:
        case Field(path, Kind.ANY):
            return (".", *path)
        case Parameter(name, Kind.ANY):
            return (":", name)
    return None


def _shown(name: Name) -> str:
    return name[0] + name[1] if name[0] == ":" else ".".join(name[1:])


def _quoted(node: Node) -> str:
    return f" ({node.value!r})" if isinstance(node, Constant) else ""
