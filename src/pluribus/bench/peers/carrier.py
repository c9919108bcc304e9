"""NATS through nats-py: core publish and subscribe, with a server of our own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import nats

from ...core.errors import Unavailable
from ..engines import carried
from . import IDLE_S

LOOK_S = 0.001
UNLIMITED = 1 << 40


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The loop of this process, in which questions are sent and answers awaited."""
    return asyncio.new_event_loop()


class Nats:
    settings = "one nats-server, core publish and subscribe, callback subscription without pending limits"

    @contextmanager
    def endpoints(self) -> Iterator[tuple[str, str]]:
        with carried() as server:
            if not server:
                raise Unavailable("nats-server is not installed: get it from your distribution")
            yield f"{server}/there", f"{server}/back"

    def sender(self, endpoint: str) -> Publisher:
        return Publisher(*endpoint.split("/"))

    def receiver(self, endpoint: str) -> Subscriber:
        return Subscriber(*endpoint.split("/"))


class Publisher:
    def __init__(self, server: str, subject: str) -> None:
        self._subject = subject
        self._client: Any = _loop().run_until_complete(nats.connect(f"nats://{server}"))

    def send(self, payload: bytes, times: int) -> None:
        _loop().run_until_complete(self._send(payload, times))

    async def _send(self, payload: bytes, times: int) -> None:
        publish, subject = self._client.publish, self._subject
        for _ in range(times):
            await publish(subject, payload)
        await asyncio.sleep(0)  # the client's own task writes

    def flush(self) -> None:
        _loop().run_until_complete(self._client.flush())

    def close(self) -> None:
        _loop().run_until_complete(self._client.close())


class Subscriber:
    def __init__(self, server: str, subject: str) -> None:
        self._got = self._taken = 0
        self._waiter: asyncio.Future[None] | None = None
        self._client: Any = _loop().run_until_complete(self._connect(server, subject))

    async def _connect(self, server: str, subject: str) -> Any:
        client = await nats.connect(f"nats://{server}")
        limits: dict[str, Any] = {"pending_msgs_limit": UNLIMITED, "pending_bytes_limit": UNLIMITED}
        await client.subscribe(subject, cb=self._receive, **limits)
        await client.flush()
        return client

    async def _receive(self, message: Any) -> None:
        self._got += 1
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def take(self, most: int) -> int:
        if self._got - self._taken < most:
            _loop().run_until_complete(self._wait(most))
        some = min(self._got - self._taken, most)
        self._taken += some
        return some

    async def _wait(self, most: int) -> None:
        if self._got > self._taken:
            await asyncio.sleep(LOOK_S)
            return
        self._waiter = asyncio.get_running_loop().create_future()
        await asyncio.wait([self._waiter], timeout=IDLE_S)
        self._waiter = None

    def close(self) -> None:
        _loop().run_until_complete(self._client.close())


def peer(name: str) -> Nats:
    return Nats()
