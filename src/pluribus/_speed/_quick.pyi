"""What ``c/quick.c`` offers. Each name is explained by its twin in Python; ``README.md`` says which that is."""

import socket
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

from ..core.ports import Address, Datagram
from .arrivals import Arrivals as Arrivals
from .arrivals import Line as Line
from .arrivals import Waiter as Waiter
from .ends import flatten as flatten
from .packing import Outline
from .passing import Pass
from .passing import Runner as Runner
from .reading import Reading as Reading

if sys.version_info < (3, 12):  # 3.11 only, to be deleted with it
    from .ends import End as End
    from .ends import OpenBatch as OpenBatch
    from .ends import publishes as publishes
    from .ends import sends as sends

FIELDS: dict[str, list[str]]
"""By part of the straight way: the fields that are read as those of a structure."""

def way(own: Mapping[type, Pass], concerned: Sequence[tuple[Container[int], Pass]], after: Pass) -> Pass: ...
def of_one_topic(pairs: Sequence[Any]) -> tuple[str, list[bytes], int] | None: ...
def pack_plain(
    topic: str, session: int, first: int, sender: int, kind: int | str, time: int, bodies: Sequence[bytes | memoryview]
) -> bytes | None: ...
def outline_plain(command: bytes) -> Outline | None: ...

class Straight:
    """Its twin is the layers of the stack; see ``runtime/group/straight.py`` for its parts."""

    received: int
    sent: int

    def __new__(cls, **parts: object) -> Straight: ...
    def receive(self, datagrams: list[Datagram]) -> None: ...
    def send(self, channel: Any, body: bytes, kind: int | str) -> None: ...
    def send_alone(self, channel: Any, body: bytes, kind: int | str = ...) -> Any: ...

class Wire:
    send: Callable[[bytes, Address], int]

    def __new__(cls, sock: socket.socket, joins: int = 0) -> Wire: ...
    def receive(self, most: int, enough: int) -> list[Datagram]: ...
    def close(self) -> None: ...
