"""Redis through redis-py: PUBLISH and SUBSCRIBE, with a server of our own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from . import IDLE_S
from .servers import server

PIPELINED = 64
REST_S = 0.001
"""Seconds to wait for the rest of a message of which a part has come: without a wait the client may give up in the
middle."""


class Redis:
    settings = "PUBLISH pipelined by 64, redis-py with hiredis, nothing on disk, no output-buffer limit"

    @contextmanager
    def endpoints(self) -> Iterator[tuple[str, str]]:
        with server("redis-server", _arguments) as address:
            yield f"{address}/there", f"{address}/back"

    def sender(self, endpoint: str) -> Publisher:
        return Publisher(*endpoint.split("/"))

    def receiver(self, endpoint: str) -> Subscriber:
        return Subscriber(*endpoint.split("/"))


def _arguments(port: int, folder: Path) -> list[str]:
    limits = ["--client-output-buffer-limit", "pubsub 0 0 0"]
    return [
        "--bind",
        "127.0.0.1",
        "--port",
        str(port),
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        str(folder),
        *limits,
    ]


def _client(address: str) -> Any:
    host, _, port = address.partition(":")
    return redis.Redis(host, int(port))


class Publisher:
    def __init__(self, address: str, channel: str) -> None:
        self._channel = channel
        self._client = _client(address)
        self._pipe = self._client.pipeline(transaction=False)
        self._waiting = 0

    def send(self, payload: bytes, times: int) -> None:
        publish, channel = self._pipe.publish, self._channel
        for _ in range(times):
            publish(channel, payload)
            self._waiting += 1
            if self._waiting == PIPELINED:
                self.flush()
        if times < PIPELINED:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._pipe.execute()
            self._waiting = 0

    def close(self) -> None:
        self._client.close()


class Subscriber:
    def __init__(self, address: str, channel: str) -> None:
        self._client = _client(address)
        self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)
        self._pubsub.subscribe(channel)

    def take(self, most: int) -> int:
        get, got = self._pubsub.get_message, 0
        while got < most:
            if get(timeout=IDLE_S if not got else REST_S) is None:
                break
            got += 1
        return got

    def close(self) -> None:
        self._pubsub.close()
        self._client.close()


def peer(name: str) -> Redis:
    return Redis()
