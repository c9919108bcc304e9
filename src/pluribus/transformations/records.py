"""Binary structs: fields one after another, in one byte order or the other, in the language of Python's ``struct``."""

from __future__ import annotations

import re
import struct
from typing import Any

from ..core.errors import BadInput, NotTransformed
from ..core.limits import DOCUMENT_BYTES_MAX, RECORD_FIELDS_MAX
from .steps import Format, Plain, bytes_of, checked_encoding, checked_size, encoded_text

_PIECE = re.compile(r"\s*(\d*)([A-Za-z?])")


class BinaryRecord(Format, frozen=True, kw_only=True):
    """A record is a list of its fields, or with ``names`` a dictionary. ``many``: a body is records one after another.

    ``format`` begins with the byte order, ``<`` (little) or ``>`` (big). Fields of bytes (``8s``) are text with an
    ``encoding``; zero bytes at their end are then padding.
    """

    format: str
    names: tuple[str, ...] = ()
    many: bool = False
    encoding: str = ""

    def __post_init__(self) -> None:
        if self.encoding:
            checked_encoding(self.encoding)
        if self.format[:1] not in ("<", ">", "!"):
            raise BadInput(
                f"struct({self.format}): begin with the byte order, '<' for little or '>' for big, as in struct(<ihd)"
            )
        fields = self._count()
        try:
            size = struct.calcsize(self.format)
        except struct.error as error:
            raise BadInput(f"struct({self.format}): {error}; see the module struct of Python") from None
        if size > DOCUMENT_BYTES_MAX or fields > RECORD_FIELDS_MAX:
            raise BadInput(
                f"struct({self.format}) is {size:,} bytes and {fields:,} fields: at most {DOCUMENT_BYTES_MAX:,} and "
                f"{RECORD_FIELDS_MAX:,}"
            )
        if not fields or not size:
            raise BadInput(f"struct({self.format}) has no fields: name some, as in struct(<ihd)")
        if self.names and (len(self.names) != fields or len(set(self.names)) != fields):
            raise BadInput(f"{len(self.names)} names= for {fields} fields: name each field, once")

    def _count(self) -> int:
        """The number of fields; counted before ``struct`` makes a table of them, which may be huge."""
        at, fields = 1, 0
        while match := _PIECE.match(self.format, at):
            at = match.end()
            digits, code = match.groups()
            if len(digits) > 10:
                raise BadInput(f"struct({self.format}): {digits} is too many")
            if code != "x":
                fields += 1 if code in "sp" else int(digits or 1)
        if self.format[at:].strip():
            raise BadInput(f"struct({self.format}): {self.format[at:]!r} is no field; see the module struct of Python")
        return fields

    def read(self, body: Any) -> Plain:
        data = checked_size(bytes_of(body, "binary struct"), "a binary struct")
        size = struct.calcsize(self.format)
        if not self.many and len(data) != size:
            raise NotTransformed(f"{len(data)} bytes, and struct({self.format}) is {size}")
        if len(data) % size:
            raise NotTransformed(f"{len(data)} bytes are no whole number of records of {size}")
        found = [self._read(fields) for fields in struct.iter_unpack(self.format, data)]
        return found if self.many else found[0]

    def _read(self, fields: tuple[Any, ...]) -> Plain:
        values = list(fields)
        if self.encoding:
            values = [self._text(one) if isinstance(one, bytes) else one for one in values]
        return dict(zip(self.names, values, strict=True)) if self.names else values

    def _text(self, field: bytes) -> str:
        try:
            return field.rstrip(b"\0").decode(self.encoding)
        except UnicodeDecodeError as error:
            raise NotTransformed(f"a field that is not {error.encoding}: {error.reason}") from None

    def write(self, value: Plain) -> Any:
        if not self.many:
            return self._written(value)
        if not isinstance(value, list | tuple):
            raise NotTransformed(f"a {type(value).__name__} is no list of records: leave many=true out")
        return checked_size(b"".join([self._written(one) for one in value]), "binary structs")

    def _written(self, value: Plain) -> bytes:
        if isinstance(value, dict):
            if value.keys() != set(self.names):
                raise NotTransformed(f"it has the fields {list(value)}, and not {list(self.names)}: say names=")
            value = [value[name] for name in self.names]
        if not isinstance(value, list | tuple):
            raise NotTransformed(f"a {type(value).__name__} is no record: give a list, or a dictionary with names=")
        if self.encoding:
            value = [encoded_text(one, self.encoding) if isinstance(one, str) else one for one in value]
        self._check_room(value)
        try:
            return struct.pack(self.format, *value)
        except (struct.error, OverflowError, TypeError) as error:
            raise NotTransformed(f"it does not fit struct({self.format}): {error}") from None

    def _check_room(self, values: Any) -> None:
        """Refuses bytes that are too long for their field; ``struct`` would cut them in silence."""
        at = 0
        for digits, code in _PIECE.findall(self.format[1:]):
            if code in "sp":
                room = int(digits or 1) - (code == "p")
                if at < len(values) and isinstance(values[at], bytes) and len(values[at]) > max(room, 0):
                    raise NotTransformed(f"{len(values[at])} bytes do not fit the field {digits}{code}")
                at += 1
            elif code != "x":
                at += int(digits or 1)
