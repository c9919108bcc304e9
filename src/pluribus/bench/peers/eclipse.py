"""Eclipse Zenoh: peer to peer over TCP, the subscriber called back from a thread of the library."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep
from typing import Any

import zenoh

from ..ports import free_port
from . import IDLE_S

KEY = "pluribus/bench"
LOOK_S = 0.001


class Zenoh:
    settings = "peer to peer over TCP, no scouting, congestion control BLOCK, callback subscriber"

    @contextmanager
    def endpoints(self) -> Iterator[tuple[str, str]]:
        yield f"tcp/127.0.0.1:{free_port()}", f"tcp/127.0.0.1:{free_port()}"

    def sender(self, endpoint: str) -> Publisher:
        return Publisher(_session(listen=[endpoint]))

    def receiver(self, endpoint: str) -> Subscriber:
        return Subscriber(_session(connect=[endpoint]))


def _session(*, listen: list[str] | None = None, connect: list[str] | None = None) -> Any:
    config = zenoh.Config()
    config.insert_json5("mode", '"peer"')
    config.insert_json5("listen/endpoints", json.dumps(listen or []))
    config.insert_json5("connect/endpoints", json.dumps(connect or []))
    config.insert_json5("scouting/multicast/enabled", "false")
    return zenoh.open(config)


class Publisher:
    def __init__(self, session: Any) -> None:
        self._session = session
        self._publisher = session.declare_publisher(KEY, congestion_control=zenoh.CongestionControl.BLOCK)

    def send(self, payload: bytes, times: int) -> None:
        put = self._publisher.put
        for _ in range(times):
            put(payload)

    def flush(self) -> None:
        """Nothing to do: threads of the library send."""

    def close(self) -> None:
        self._session.close()


class Subscriber:
    """Counts messages in the call-back. A reader of many messages looks at the count now and then; a reader that waits
    for one is woken."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self._got = self._taken = 0
        self._waiting = False
        self._arrived = threading.Event()
        self._subscriber = session.declare_subscriber(KEY, self._receive)

    def _receive(self, sample: Any) -> None:
        sample.payload.to_bytes()
        self._got += 1
        if self._waiting:
            self._arrived.set()

    def take(self, most: int) -> int:
        if most > 1 and 0 < self._got - self._taken < most:
            sleep(LOOK_S)
        elif self._got == self._taken:
            self._arrived.clear()
            self._waiting = True
            if self._got == self._taken:
                self._arrived.wait(IDLE_S)
            self._waiting = False
        some = min(self._got - self._taken, most)
        self._taken += some
        return some

    def close(self) -> None:
        self._session.close()


def peer(name: str) -> Zenoh:
    return Zenoh()
