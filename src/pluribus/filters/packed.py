"""A filter's tree as bytes, for commands that are kept for years: our own form with a version, never SQL text.

A node is an array: its class, then its fields. A version that this release cannot read is refused; the error names the
version.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..core.errors import MalformedFrame
from .filter import Filter
from .tree import (
    And,
    Arithmetic,
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
)

VERSION = 1
DEPTH_MAX = 64
_CLASSES: tuple[type[msgspec.Struct], ...] = (
    Constant,
    Field,
    Arithmetic,
    Call,
    Compare,
    In,
    Like,
    IsNull,
    IsTruth,
    And,
    Or,
    Not,
)
_NUMBERS = {cls: number for number, cls in enumerate(_CLASSES)}
_KINDS = (Kind.BOOLEAN, Kind.NUMBER, Kind.TEXT, Kind.ANY)


def packed(filter: Filter) -> bytes:
    return msgspec.msgpack.encode((VERSION, _plain(filter.tree)))


def unpacked(data: bytes) -> Filter:
    """Decode a tree; ``MalformedFrame`` if this release cannot read it."""
    try:
        version, tree = msgspec.msgpack.decode(data, type=tuple[int, Any])
        if version != VERSION:
            raise MalformedFrame(f"a filter of version {version}: this release reads {VERSION}")
        return Filter(_node(tree, 0))
    except MalformedFrame:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a stranger's tree does to us is its fault
        raise MalformedFrame(f"a filter that cannot be read: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Kind):
        return _KINDS.index(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    number = _NUMBERS.get(type(value))
    if number is None:
        return value
    return {number: [_plain(getattr(value, name)) for name in value.__struct_fields__]}


def _node(plain: Any, depth: int) -> Node:
    if depth > DEPTH_MAX:
        raise MalformedFrame(f"a filter that is deeper than {DEPTH_MAX}")
    ((number, fields),) = plain.items()
    cls = _CLASSES[number]
    values: list[Any] = []
    for name, value in zip(cls.__struct_fields__, fields, strict=True):
        if name == "kind":
            values.append(_KINDS[value])
        elif name == "via":
            values.append(tuple((str(how), int(count)) for how, count in value))
        elif name == "path":
            values.append(tuple(str(step) for step in value))
        else:
            values.append(_value(value, depth + 1))
    made = cls(*values)
    assert isinstance(made, Node)
    return made


def _value(value: Any, depth: int) -> Any:
    if isinstance(value, dict):
        return _node(value, depth)
    if isinstance(value, list):
        return tuple(_value(one, depth) for one in value)
    return value
