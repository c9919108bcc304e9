"""ZeroMQ through pyzmq: PUB and SUB, one frame a message, over TCP and over Unix sockets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import zmq

from ..ports import free_port
from . import IDLE_S

LINGER_MS = 2_000


class ZeroMq:
    settings = "PUB/SUB, blocking send and recv, no high-water mark: the window bounds what is under way"

    def __init__(self, transport: str) -> None:
        self._transport = transport

    @contextmanager
    def endpoints(self) -> Iterator[tuple[str, str]]:
        if self._transport == "tcp":
            yield f"tcp://127.0.0.1:{free_port()}", f"tcp://127.0.0.1:{free_port()}"
            return
        with tempfile.TemporaryDirectory() as folder:
            yield f"ipc://{folder}/there", f"ipc://{folder}/back"

    def sender(self, endpoint: str) -> Publisher:
        return Publisher(endpoint)

    def receiver(self, endpoint: str) -> Subscriber:
        return Subscriber(endpoint)


class Publisher:
    def __init__(self, endpoint: str) -> None:
        self._socket: Any = zmq.Context.instance().socket(zmq.PUB)
        self._socket.setsockopt(zmq.SNDHWM, 0)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.bind(endpoint)

    def send(self, payload: bytes, times: int) -> None:
        send = self._socket.send
        for _ in range(times):
            send(payload)

    def flush(self) -> None:
        """Nothing to do: a thread of the library sends."""

    def close(self) -> None:
        self._socket.close()


class Subscriber:
    def __init__(self, endpoint: str) -> None:
        self._socket: Any = zmq.Context.instance().socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.RCVTIMEO, int(IDLE_S * 1e3))
        self._socket.subscribe(b"")
        self._socket.connect(endpoint)

    def take(self, most: int) -> int:
        receive, got = self._socket.recv, 0
        try:
            for got in range(1, most + 1):  # noqa: B007 - how far it came is the answer
                receive()
        except zmq.Again:
            return got - 1
        return got

    def close(self) -> None:
        self._socket.close()


def peer(name: str) -> ZeroMq:
    return ZeroMq(name.partition("-")[2])
