"""Object messages: typed objects that are sent to another process and built again there.

An object travels as a graph: instances of registered types (``pluribus.register``), lists, dictionaries, sets and
tuples of these, numbers, text, bytes, None; dates and the like as fields. Identity is kept inside one message: an
object that is there twice arrives as one object, and a cycle as a cycle. Nothing is pickled, and no code comes along.

A type arrives as itself or not at all. Its fields are checked against their annotations. Programs of different ages
understand each other as follows: a field that the receiver does not know is left out; a field that the sender did not
know gets its default; if it has none, the message is refused with the name of the field.

A dataclass's ``__post_init__`` runs when the whole graph is there. A struct's runs when the struct is made, so a struct
that has one cannot be in a cycle with itself alone or with others like it.

The form: msgpack of (root, nodes). A node is (0, values) for a list, (1, pairs) for a dictionary, (2, values) for a
set, or (name of the type, {field: value}). A value is plain, or [0, place of a node], or [1, values …] for a tuple, or
[2, plain form] for a date and the like.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from ..core.errors import BadBody, MalformedFrame, TooLarge
from ..core.limits import BODY_BYTES_MAX, GRAPH_DEPTH_MAX, GRAPH_NODES_MAX
from ..wire.bodies import registered_name, type_of
from .types import as_type, hints_of

LIST, DICT, SET = 0, 1, 2
NODE, TUPLE, FOREIGN = 0, 1, 2
_PLAIN = (type(None), bool, int, float, str, bytes)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[Any, list[tuple[int | str, Any]]]).decode


class _Field(msgspec.Struct, frozen=True):
    name: str
    hint: Any
    default: Any
    factory: Any
    required: bool

    def absent(self) -> Any:
        return self.factory() if self.factory is not None else self.default


_fields: WeakKeyDictionary[type, list[_Field]] = WeakKeyDictionary()


def fields_of(cls: type) -> list[_Field]:
    found = _fields.get(cls)
    if found is None:
        hints = hints_of(cls)
        if issubclass(cls, msgspec.Struct):
            none: Any = msgspec.NODEFAULT
            listed = [(f.name, f.default, f.default_factory) for f in msgspec.structs.fields(cls)]
        else:
            none = dataclasses.MISSING
            listed = [(f.name, f.default, f.default_factory) for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
        found = []
        for name, default, factory in listed:
            made = None if factory is none else factory
            required = default is none and made is None
            found.append(_Field(name, hints.get(name, Any), None if default is none else default, made, required))
        _fields[cls] = found
    return found


def encode_graph(root: Any) -> bytes:
    """The bytes of an object and all that it refers to; ``BadBody`` or ``TooLarge`` if it cannot travel."""
    places: dict[int, int] = {}
    found: list[Any] = []
    """The nodes; the list also keeps objects alive whose addresses ``places`` has."""

    def value_of(value: Any, depth: int, field: bool) -> Any:
        if type(value) in _PLAIN:
            return value
        if type(value) is tuple:
            if depth > GRAPH_DEPTH_MAX:
                raise TooLarge(f"tuples inside each other exceed {GRAPH_DEPTH_MAX}: use lists")
            return [TUPLE, *[value_of(inner, depth + 1, False) for inner in value]]
        if type(value) in (list, dict, set) or registered_name(type(value)) is not None:
            place = places.get(id(value))
            if place is None:
                place = places[id(value)] = len(found)
                found.append(value)
                if place >= GRAPH_NODES_MAX:
                    raise TooLarge(f"more than {GRAPH_NODES_MAX:,} objects in one message: send it in parts")
            return [NODE, place]
        if field and not (dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct)):
            try:
                return [FOREIGN, msgspec.to_builtins(value)]
            except (TypeError, ValueError):
                pass
        name = type(value).__name__
        raise BadBody(f"a {name} cannot travel: register it with pluribus.register({name}), or send plain data")

    top = value_of(root, 0, False)
    nodes: list[Any] = []
    while len(nodes) < len(found):  # which grows meanwhile
        node = found[len(nodes)]
        if type(node) is dict:
            pairs = [(value_of(key, 0, False), value_of(inner, 0, False)) for key, inner in node.items()]
            nodes.append((DICT, pairs))
        elif type(node) in (list, set):
            nodes.append((LIST if type(node) is list else SET, [value_of(inner, 0, False) for inner in node]))
        else:
            name = registered_name(type(node))
            given = {f.name: value_of(getattr(node, f.name), 0, True) for f in fields_of(type(node))}
            nodes.append((name, given))
    try:
        data = _encode((top, nodes))
    except (TypeError, ValueError, OverflowError) as error:
        raise BadBody(f"an object that cannot travel ({error}): use numbers of 64 bits and plain data") from None
    if len(data) > BODY_BYTES_MAX:
        raise TooLarge(f"an object message of {len(data):,} bytes exceeds {BODY_BYTES_MAX:,}: send it in parts")
    return data


def decode_graph(data: bytes) -> Any:
    """Decode the objects. ``BadBody`` names a type that is not registered here, or a field that does not fit;
    ``MalformedFrame`` if these bytes are not an object message."""
    try:
        top, nodes = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedFrame(f"bytes that are no object message: {error}") from None
    if len(nodes) > GRAPH_NODES_MAX:
        raise MalformedFrame(f"{len(nodes):,} objects in one message: the limit is {GRAPH_NODES_MAX:,}")
    return _Builder(nodes).build(top)


class _Foreign(msgspec.Struct, frozen=True):
    plain: Any


class _Builder:
    def __init__(self, nodes: list[tuple[int | str, Any]]) -> None:
        self._nodes = nodes
        self._built: list[Any] = [None] * len(nodes)
        self._ready = [False] * len(nodes)
        self._types: dict[str, type] = {}

    def build(self, top: Any) -> Any:
        late = [place for place in range(len(self._nodes)) if not self._shell(place)]
        for place in late:
            self._strict(place)
        for place, (kind, content) in enumerate(self._nodes):
            self._fill(place, kind, content)
        for place, (kind, _) in enumerate(self._nodes):
            if isinstance(kind, str) and dataclasses.is_dataclass(self._types[kind]):
                after = getattr(self._built[place], "__post_init__", None)
                if after is not None:
                    _made(kind, after)
        return self._value(top, 0)

    def _shell(self, place: int) -> bool:
        """True if the node is made empty now, and filled when all others are there."""
        kind, content = self._nodes[place]
        if isinstance(kind, int):
            if kind not in (LIST, DICT, SET) or not isinstance(content, list):
                raise MalformedFrame(f"an object message with a node of kind {kind}")
            self._built[place] = ([], {}, set())[kind]
        else:
            cls = self._type(kind)
            if not isinstance(content, dict):
                raise MalformedFrame(f"an object message with a {kind} without fields")
            if issubclass(cls, msgspec.Struct):
                if hasattr(cls, "__post_init__"):
                    return False
                self._built[place] = cls(**dict.fromkeys(cls.__struct_fields__))
            else:
                self._built[place] = object.__new__(cls)
        self._ready[place] = True
        return True

    def _strict(self, place: int) -> None:
        """A struct that checks its fields when it is made: it is made after the nodes to which it refers."""
        under_way: list[int] = [place]
        while under_way:
            at = under_way[-1]
            if self._ready[at]:
                under_way.pop()
                continue
            kind, content = self._nodes[at]
            assert isinstance(kind, str)
            missing = [ref for ref in _references(list(content.values())) if not self._known(ref)]
            if any(ref in under_way for ref in missing):
                raise BadBody(f"a {kind} with __post_init__ refers to itself: take out the cycle, or the __post_init__")
            if missing:
                under_way += missing
                continue
            cls = self._type(kind)
            given = self._fields(kind, content)
            self._built[at] = _made(kind, lambda cls=cls, given=given: cls(**given))
            self._ready[at] = True
            under_way.pop()

    def _known(self, place: int) -> bool:
        if not 0 <= place < len(self._nodes):
            raise MalformedFrame(f"an object message that refers to a node {place}")
        return self._ready[place]

    def _fill(self, place: int, kind: int | str, content: Any) -> None:
        built = self._built[place]
        if kind == LIST:
            built.extend([self._value(inner, 0) for inner in content])
        elif kind == SET:
            _hashed(lambda: built.update(self._value(inner, 0) for inner in content))
        elif kind == DICT:
            for pair in content:
                if not isinstance(pair, list) or len(pair) != 2:
                    raise MalformedFrame("an object message with a dictionary of no pairs")
            _hashed(lambda: built.update((self._value(key, 0), self._value(inner, 0)) for key, inner in content))
        else:
            assert isinstance(kind, str)
            cls = self._type(kind)
            if issubclass(cls, msgspec.Struct):
                if not hasattr(cls, "__post_init__"):
                    for name, value in self._fields(kind, content).items():
                        msgspec.structs.force_setattr(built, name, value)
            else:
                for name, value in self._fields(kind, content).items():
                    object.__setattr__(built, name, value)

    def _fields(self, kind: str, content: dict[str, Any]) -> dict[str, Any]:
        given = {}
        for field in fields_of(self._type(kind)):
            if field.name not in content:
                if field.required:
                    raise BadBody(f"a {kind} came without its field {field.name!r}: give that field a default")
                given[field.name] = field.absent()
                continue
            value = self._value(content[field.name], 0)
            try:
                given[field.name] = as_type(value.plain if isinstance(value, _Foreign) else value, field.hint)
            except ValueError as error:
                raise BadBody(f"the field {field.name!r} of a {kind} does not fit: {error}") from None
        return given

    def _value(self, value: Any, depth: int) -> Any:
        if type(value) is not list:
            if type(value) is dict:
                raise MalformedFrame("an object message with a mapping outside of a node")
            return value
        if not value or depth > GRAPH_DEPTH_MAX:
            raise MalformedFrame("an object message with an empty value, or with tuples too deep")
        mark = value[0]
        if mark == NODE and len(value) == 2 and type(value[1]) is int and self._known(value[1]):
            return self._built[value[1]]
        if mark == TUPLE:
            return tuple(self._value(inner, depth + 1) for inner in value[1:])
        if mark == FOREIGN and len(value) == 2:
            return _Foreign(value[1])
        raise MalformedFrame(f"an object message with a value {value!r:.60}")

    def _type(self, kind: str) -> type:
        found = self._types.get(kind)
        if found is None:
            known = type_of(kind)
            if known is None:
                raise BadBody(f"the type {kind!r} is not registered here: pluribus.register it in this program, too")
            found = self._types[kind] = known
        return found


def _references(values: list[Any]) -> list[int]:
    found = []
    for value in values:
        if type(value) is list and value:
            if value[0] == NODE and len(value) == 2 and type(value[1]) is int:
                found.append(value[1])
            elif value[0] == TUPLE:
                found += _references(value[1:])
    return found


def _hashed(fill: Any) -> None:
    try:
        fill()
    except TypeError as error:
        raise MalformedFrame(f"an object message with a key that cannot be one: {error}") from None


def _made(kind: str, make: Any) -> Any:
    try:
        return make()
    except Exception as error:
        raise BadBody(f"a {kind} refused its fields: {type(error).__name__}: {error}") from error
