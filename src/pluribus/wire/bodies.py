"""Message bodies: what an application may send, and how a batch of them is encoded and decoded in one go.

Every batch has one *kind*: bytes as they are, text, plain data (numbers, strings, lists, dictionaries), or the name of
a registered type. Bodies other than bytes are encoded one at a time, when they are sent: the sender may change the
object afterwards, and must be told at once of a body that cannot travel. The encoded bodies are joined behind an array
header and decoded by one call. Nothing is ever pickled. A type arrives as itself only where the receiving program
registered it too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any, TypeVar, Union

import msgspec

from ..core.errors import BadBody, BadInput, MalformedFrame, TooLarge
from ..core.ids import MemberId, checked_name
from ..core.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX, TYPES_MAX

BYTES, TEXT, DATA = 0, 1, 2
"""The numbers 3 to 5 are those of ``questions``."""
EVENTS = 6
"""Batches of events. The codec encodes them directly into the frame, so that their bodies are copied only once."""

Kind = int | str
T = TypeVar("T")


class Opaque(msgspec.Struct, frozen=True):
    """A body of a type that this program did not register: its name and its encoded fields."""

    kind: str
    encoded: bytes


def _plain(value: object) -> object:
    """A ``MemberId``, which msgspec does not know, travels as its number."""
    if isinstance(value, MemberId):
        return int(value)
    raise TypeError(f"{type(value).__name__} is unknown to the wire")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode
_names: dict[type, Kind] = {}
_decoders: dict[Kind, Callable[[Any], list[Any]]] = {
    BYTES: msgspec.msgpack.Decoder(list[bytes]).decode,
    TEXT: msgspec.msgpack.Decoder(list[str]).decode,
    DATA: msgspec.msgpack.Decoder(list[Any]).decode,
}
_BUILT_IN: dict[Kind, type] = {BYTES: bytes, TEXT: str}
_PLAIN = (bytes, str, bool, int, float, list, dict, type(None), datetime, Opaque)
"""The types of bodies that need not be registered."""
_decode_raw = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode


def register(cls: type[T], name: str | None = None) -> type[T]:
    """Let instances of ``cls`` (a msgspec.Struct or a dataclass) travel; usable as a decorator.

    Both sides register the type under the same name, by default the class's own. Registering it twice is harmless,
    registering another class under a taken name raises ``BadInput``.
    """
    candidate: Any = cls
    if not isinstance(candidate, type) or not (issubclass(cls, msgspec.Struct) or dataclasses.is_dataclass(cls)):
        raise BadInput(f"{cls!r} cannot be registered: make it a msgspec.Struct or a dataclass")
    name = checked_name(name or cls.__name__, "the type name")
    taken = next((other for other, taken in _names.items() if taken == name and other is not cls), None)
    if taken is not None and (taken.__module__, taken.__qualname__) != (cls.__module__, cls.__qualname__):
        raise BadInput(f"the type name {name!r} belongs to {taken.__module__}.{taken.__qualname__}: pass another name=")
    if len(_names) >= TYPES_MAX:
        raise TooLarge(f"{TYPES_MAX} types are registered already: register classes, not values")
    if taken is not None:  # a class defined again, as notebooks do
        del _names[taken]
    try:
        _decoders[name] = msgspec.msgpack.Decoder(list[cls]).decode  # type: ignore[valid-type]
    except NameError:  # its fields name a class that is defined later: two types that refer to each other
        _decoders[name] = partial(_decode_late, name, cls)
    _names[cls] = name
    return cls


def _decode_late(name: str, cls: type, bodies: Any) -> list[Any]:
    decode = msgspec.msgpack.Decoder(list[cls]).decode  # type: ignore[valid-type]
    _decoders[name] = decode
    return decode(bodies)


def type_of(kind: Kind) -> type | None:
    """The type of bodies of a kind; ``None`` if there are several types, or if the type is not registered here."""
    if kind in _BUILT_IN:
        return _BUILT_IN[kind]
    return next((cls for cls, name in _names.items() if name == kind), None)


def checked_type(wanted: Any) -> type | None:
    """The type itself, if bodies can be of it or of a subclass; else ``BadInput``."""
    if wanted is None:
        return None
    if not isinstance(wanted, type):
        raise BadInput(f"type={wanted!r} is no type: give the class of the bodies")
    known: tuple[type, ...] = (*_PLAIN, *_names)
    if not any(issubclass(each, wanted) for each in known):
        name = wanted.__name__
        raise BadInput(
            f"type={name}: no body arrives as one, because it is not registered: call pluribus.register({name}) first, "
            "or give a type of plain data such as dict"
        )
    return wanted


def plain_type(name: str) -> type:
    """The type of plain data of that name; else ``BadInput``."""
    for cls in (*_PLAIN, object):
        if cls.__name__ == name and cls is not Opaque:
            return cls
    raise BadInput(f"{name!r} is no type of plain data: register it, or use one such as dict")


def names_of(wanted: type) -> list[str]:
    """The names of the registered types whose bodies are of this type, sorted; none for a type of plain data."""
    if wanted is object or wanted in _PLAIN:
        return []
    return sorted(name for cls, name in _names.items() if isinstance(name, str) and issubclass(cls, wanted))


def registered_name(cls: type) -> str | None:
    """The name under which a program registered a type; None if it did not."""
    name = _names.get(cls)
    return name if isinstance(name, str) else None


def reserve(kind: int, *classes: type) -> None:
    """Reserve a kind for words of a protocol, which are sent like bodies of applications. Several classes may share a
    kind if each has a tag."""
    for cls in classes:
        _names[cls] = kind
    _decoders[kind] = msgspec.msgpack.Decoder(list[Union[classes]]).decode  # type: ignore[valid-type]  # noqa: UP007


def receive_as(kind: int, cls: type) -> None:
    """Reserve a kind for structs that are put into a frame as they are, and encoded together with it."""
    _decoders[kind] = msgspec.msgpack.Decoder(list[cls]).decode  # type: ignore[valid-type]


def encode_body(body: object) -> tuple[Kind, bytes]:
    """The kind of a body and its bytes, for everything but plain ``bytes`` (which travel as they are)."""
    kind: Kind | None = _names.get(type(body))
    if kind is None:
        if isinstance(body, Opaque):  # of a type that only others know: passed on as it came
            return body.kind, check_size(body.encoded)
        if isinstance(body, bytes | bytearray | memoryview):
            return BYTES, check_size(bytes(body))
        if isinstance(body, str):
            kind = TEXT
        elif isinstance(body, msgspec.Struct) or dataclasses.is_dataclass(body):
            raise BadBody(
                f"{type(body).__name__} is not registered: call pluribus.register({type(body).__name__}) first"
            )
        else:
            kind = DATA
    try:
        return kind, check_size(_encode(body))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, BadInput):
            raise
        what = type(body).__name__
        raise BadBody(f"a {what} cannot travel ({error}): send bytes, text, data or a registered type") from None


def encode_quickly(body: object) -> bytes:
    """The bytes of a body whose kind is known; ``BadBody`` as ``encode_body``."""
    try:
        return _encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return encode_body(body)[1]  # which says what is wrong


def join_bodies(kind: Kind, encoded: list[bytes]) -> list[bytes] | msgspec.Raw:
    """The ``bodies`` of a frame from the bodies of one kind."""
    if kind in (BYTES, EVENTS):
        return encoded
    return msgspec.Raw(array_header(len(encoded)) + b"".join(encoded))


def decode_bodies(kind: Kind, bodies: list[bytes] | msgspec.Raw, count: int) -> list[Any]:
    """The bodies of a frame; ``MalformedFrame`` when they are not what the frame says."""
    if isinstance(bodies, list):  # never left this process
        return bodies
    decode = _decoders.get(kind)
    try:
        if decode is not None:
            decoded = decode(bodies)
        elif isinstance(kind, str):
            decoded = [Opaque(kind, bytes(raw)) for raw in _decode_raw(bodies)]
        else:
            raise MalformedFrame(f"unknown kind {kind}: install the same release on both sides")
    except MalformedFrame:
        raise
    except Exception as error:  # noqa: BLE001 - the __post_init__ of a registered type may raise anything
        raise MalformedFrame(f"bodies that are not {kind!r}: {error}") from None
    if len(decoded) != count:
        raise MalformedFrame(f"{len(decoded)} bodies where the frame says {count}")
    return decoded


def runs(encoded: list[bytes], room_bytes: int, overhead_bytes: int) -> Iterator[tuple[list[bytes], int]]:
    """Cut a list of bodies into runs that fit into ``room_bytes`` each, counting ``overhead_bytes`` for each body;
    yields each run with its size. A body that is too large is a run of its own. If all fit, or if all are of one
    length, this needs no loop over the bodies."""
    sizes = list(map(len, encoded))
    total = sum(sizes)
    if total + overhead_bytes * len(encoded) <= room_bytes and len(encoded) <= BATCH_MESSAGES_MAX:
        yield encoded, total
        return
    if min(sizes) == max(sizes):
        step = max(min(room_bytes // (sizes[0] + overhead_bytes), BATCH_MESSAGES_MAX), 1)
        for at in range(0, len(encoded), step):
            run = encoded[at : at + step]
            yield run, sizes[0] * len(run)
        return
    ends = list(accumulate(size + overhead_bytes for size in sizes))
    start, base = 0, 0
    for at, end in enumerate(ends):
        if (end - base > room_bytes and at > start) or at - start >= BATCH_MESSAGES_MAX:
            yield encoded[start:at], sum(sizes[start:at])
            start, base = at, ends[at - 1]
    yield encoded[start:], sum(sizes[start:])


def array_header(length: int) -> bytes:
    if length < 16:
        return bytes([0x90 | length])
    if length < 1 << 16:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")


def check_size(encoded: bytes) -> bytes:
    """The same bytes, or ``TooLarge``."""
    if len(encoded) > BODY_BYTES_MAX:
        raise TooLarge(f"a body of {len(encoded):,} bytes exceeds {BODY_BYTES_MAX:,}: send it in parts")
    return encoded
