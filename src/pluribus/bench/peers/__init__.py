"""Other systems, measured beside us in the same run: each with its usual Python client, a file a system.

A peer needs three things: endpoints, a sender and a receiver (below). ``flow`` does the rest the same way for all of
them. Their clients are in the extra ``peers``; nothing else in the library imports them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Protocol

from ...core.errors import BadInput, Unavailable

PEERS = {
    "zmq-tcp": "zeromq",
    "zmq-ipc": "zeromq",
    "zenoh": "eclipse",
    "nats": "carrier",
    "redis": "redis_server",
    "mqtt": "mosquitto",
}
"""Every peer and the module that has it."""

IDLE_S = 0.02
"""Seconds for which ``take`` waits when no message comes."""


class Sender(Protocol):
    def send(self, payload: bytes, times: int) -> None:
        """Publish it so many times, by one call of the client a message; return when the client has taken them."""

    def flush(self) -> None:
        """Send what the client still holds."""

    def close(self) -> None: ...


class Receiver(Protocol):
    def take(self, most: int) -> int:
        """Wait for messages, at most so many; how many the program has got. 0 after ``IDLE_S`` without any."""

    def close(self) -> None: ...


class Peer(Protocol):
    settings: str
    """Settings that are not the defaults, for the report."""

    def endpoints(self) -> AbstractContextManager[tuple[str, str]]:
        """The addresses of two ways, there and back, as text. If they need a server, it runs as long as the context
        lasts."""

    def sender(self, endpoint: str) -> Sender: ...

    def receiver(self, endpoint: str) -> Receiver: ...


def names(wanted: str) -> list[str]:
    """The peers that a text names: ``zmq`` stands for all whose names begin with it, ``all`` for every peer; several
    names are separated by commas."""
    found: list[str] = list(PEERS) if wanted == "all" else []
    wanted = "" if wanted == "all" else wanted
    for word in filter(None, wanted.split(",")):
        matching = [name for name in PEERS if name == word or name.startswith(f"{word}-")]
        if not matching:
            raise BadInput(f"there is no peer {word!r}: use {', '.join(PEERS)}")
        found += matching
    return list(dict.fromkeys(found))


def peer(name: str) -> Peer:
    """The peer of that name; its client is imported now."""
    try:
        made: Peer = import_module(f"{__name__}.{PEERS[name]}").peer(name)
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"the client of {name} is not installed ({error.name}): pip install 'pluribus[peers]'"
        ) from None
    return made
