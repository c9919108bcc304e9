"""The bus secret, and the keys of closed groups: bytes that never show."""

from __future__ import annotations

from typing import NoReturn

from .errors import BadInput
from .limits import SECRET_BYTES_MIN

REMEDY = 'make one with python -c "import secrets; print(secrets.token_hex(32))"'


class Secret:
    """What the members of a bus share and nobody else knows. It is not printed, not compared, not pickled."""

    __slots__ = ("_value",)

    def __init__(self, value: bytes | bytearray | str, what: str = "bus secret") -> None:
        if not isinstance(value, bytes | bytearray | str):
            raise BadInput(f"a {what} is bytes or text, not {type(value).__name__}: {REMEDY}")
        encoded = value.encode() if isinstance(value, str) else bytes(value)
        if len(encoded) < SECRET_BYTES_MIN:
            raise BadInput(f"the {what} has {len(encoded)} bytes, less than {SECRET_BYTES_MIN}: {REMEDY}")
        self._value = encoded

    def reveal(self) -> bytes:
        """For the derivation of keys, and nothing else."""
        return self._value

    def __repr__(self) -> str:
        return "<secret>"

    def __reduce__(self) -> NoReturn:
        raise BadInput("a bus secret is not pickled: give every process its own, for example by $PLURIBUS_SECRET")
