"""Mutants of valid frames: about half of them still decode, with a field that no honest member would send.

Two ways. *Raw*: bits flipped, bytes changed, cut, spliced; most no longer decode. *Structured*: taken apart, a number,
a text, a list or a whole header changed, and encoded again; most decode, and reach the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import msgspec

from ..core.frame import Frame

_encode = msgspec.msgpack.Encoder().encode

FIELDS = {name: place for place, name in enumerate(Frame.__struct_fields__)}
SENDER, TO, KIND, HEADERS, BODIES = (FIELDS[name] for name in ("sender", "to", "kind", "headers", "bodies"))
NUMBERS = [FIELDS[name] for name in ("sender", "to", "group", "first", "count", "size")]
EDGES = [0, 1, 2, 127, 128, 255, 65_535, 65_536, 1 << 31, 1 << 32, 1 << 53, (1 << 62) - 1, 1 << 62, (1 << 63) - 1]
BROKEN: list[Any] = [-1, 1 << 63, (1 << 64) - 1, None, "text", b"bytes", 1.5, [], {}]
ENDINGS = ("Bye", "Refusal", "Leaving")
SENDERS = 6
VALID = 64
GREETINGS = 6
KINDS = [0, 1, 2, 3, 4, 5, 99, "FuzzTick", "Unheard", "x" * 128]
_SAMPLES: list[Any] = [[], [b""], [b"x"] * 200, ["text"], [None], [[[[]]]], {}, b"", "no array"]
BODY_SAMPLES = [msgspec.Raw(_encode(bodies)) for bodies in _SAMPLES]


class Mutants:
    """Endless mutants of a few frames. ``identify`` says who their senders are from now on."""

    def __init__(self, frames: Sequence[Frame], me: int, random: Random) -> None:
        self._random = random
        self._bases = [_taken_apart(frame, me) for frame in frames for _ in range(_weight(frame))]
        self._greetings = [_taken_apart(frame, me) for frame in frames if not frame.count and not _ends(frame)]
        self._senders: list[int] = []
        self._numbers = [*EDGES, me, *{base[FIELDS["group"]] for base in self._bases}]
        self._valid: list[bytes] = []
        self._ways: list[Callable[[list[Any]], None]] = [
            *(self._change_number,) * 6,
            *(self._change_header,) * 8,
            *(self._change_headers,) * 2,
            self._change_bodies,
            self._change_kind,
        ]
        self.identify()

    def identify(self) -> None:
        """Use new senders: an incarnation that has left, or about which mutants lied, is of no more use."""
        random = self._random
        self._senders = [random.getrandbits(62) + 1 for _ in range(SENDERS)]
        self._valid = [_encode(self._sent(base)) for base in random.sample(self._bases, VALID)]

    def _sent(self, base: list[Any]) -> list[Any]:
        sent = base.copy()
        sent[SENDER] = self._senders[int(self._random.random() * SENDERS)]
        return sent

    def greetings(self) -> list[bytes]:
        """The first frames of each sender, so that the node knows it: the control frames of an undisturbed
        beginning."""
        return [
            _encode([*base[:SENDER], sender, *base[SENDER + 1 :]])
            for sender in self._senders
            for base in self._greetings[:GREETINGS]
        ]

    def raw(self) -> bytes:
        random, valid = self._random.random, self._valid
        data = valid[int(random() * len(valid))]
        way = random()
        if way < 0.3:
            damaged = bytearray(data)
            damaged[int(random() * len(damaged))] ^= 1 << int(random() * 8)
        elif way < 0.6:
            damaged = bytearray(data)
            for _ in range(1 + int(random() * 4)):
                damaged[int(random() * len(damaged))] = int(random() * 256)
        elif way < 0.75:
            return data[: int(random() * len(data))]
        elif way < 0.9:
            other = valid[int(random() * len(valid))]
            return data[: int(random() * len(data))] + other[int(random() * len(other)) :]
        else:
            damaged = bytearray(data)
            at = int(random() * len(damaged))
            damaged[at : at + int(random() * 6)] = self._random.randbytes(int(random() * 6))
        return bytes(damaged)

    def structured(self) -> bytes:
        random = self._random.random
        base = self._sent(self._bases[int(random() * len(self._bases))])
        self._ways[int(random() * len(self._ways))](base)
        return _encode(base)

    def _change_number(self, base: list[Any]) -> None:
        place = NUMBERS[int(self._random.random() * len(NUMBERS))]
        base[place] = self._other_number(base[place])

    def _change_kind(self, base: list[Any]) -> None:
        base[KIND] = KINDS[int(self._random.random() * len(KINDS))]

    def _change_bodies(self, base: list[Any]) -> None:
        random = self._random.random
        if random() < 0.5:
            base[BODIES] = self._bases[int(random() * len(self._bases))][BODIES]
        else:
            base[BODIES] = BODY_SAMPLES[int(random() * len(BODY_SAMPLES))]

    def _change_header(self, base: list[Any]) -> None:
        """Change one value in one header, at any depth."""
        headers = base[HEADERS] = list(base[HEADERS])
        if headers:
            at = int(self._random.random() * len(headers))
            headers[at] = self._other(headers[at])

    def _change_headers(self, base: list[Any]) -> None:
        """Remove, add or replace a header, or change the order of the headers."""
        random = self._random.random
        headers = base[HEADERS] = list(base[HEADERS])
        others = self._bases[int(random() * len(self._bases))][HEADERS]
        way = int(random() * 4)
        if way == 0 and headers:
            del headers[int(random() * len(headers))]
        elif way == 1:
            headers[int(random() * (len(headers) + 1)) : 0] = others
        elif way == 2 and headers and others:
            headers[int(random() * len(headers))] = others[int(random() * len(others))]
        else:
            headers += headers
            headers.reverse()

    def _other(self, value: Any) -> Any:
        """A value of the same type, mostly."""
        random = self._random.random
        if random() < 0.02:
            return BROKEN[int(random() * len(BROKEN))]
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return self._other_number(value)
        if isinstance(value, str):
            return ("", value + "é", value[: len(value) // 2], value * 3, "\x00", "\U0001f600" * 40)[int(random() * 6)]
        if isinstance(value, bytes):
            return (b"", value + b"\x00", value[: len(value) // 2], value * 3)[int(random() * 4)]
        if isinstance(value, list):
            return self._other_list(value)
        return value

    def _other_list(self, value: list[Any]) -> list[Any]:
        """Change or remove one element, or repeat some."""
        random = self._random.random
        changed = value.copy()
        if not changed:
            return [self._numbers[int(random() * len(self._numbers))]]
        at, way = int(random() * len(changed)), random()
        if way < 0.85:
            changed[at] = self._other(changed[at])
        elif way < 0.9:
            del changed[at]
        else:
            changed += [changed[at]] * int(random() * 50)
        return changed

    def _other_number(self, value: int) -> Any:
        random = self._random.random
        way = random()
        if way < 0.45:
            if way < 0.1:
                return self._senders[int(random() * SENDERS)]
            return self._numbers[int(random() * len(self._numbers))]
        if way < 0.65:
            return max(value + int(random() * 7) - 3, 0)
        if way < 0.85:
            return value ^ (1 << int(random() * 62))
        if way < 0.97:
            return self._random.getrandbits(62)
        return BROKEN[int(random() * len(BROKEN))]


def _weight(frame: Frame) -> int:
    """The weight of a frame. Frames after which a sender is ignored, such as byes, are fed less often."""
    return 1 if _ends(frame) else 10


def _ends(frame: Frame) -> bool:
    return any(type(header).__name__ in ENDINGS for header in frame.headers)


def _taken_apart(frame: Frame, me: int) -> list[Any]:
    fields = [getattr(frame, name) for name in Frame.__struct_fields__]
    fields[TO] = frame.to and me
    fields[HEADERS] = msgspec.msgpack.decode(_encode(frame.headers))
    fields[BODIES] = msgspec.Raw(bytes(frame.bodies))
    return fields
