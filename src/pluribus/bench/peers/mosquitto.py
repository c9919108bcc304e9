"""MQTT through paho-mqtt and mosquitto: quality of service 0, the subscriber called back from a thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from . import IDLE_S
from .servers import server

LOOK_S = 0.001
CONNECT_S = 10.0
CONFIGURATION = (
    "listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\nuser root\n"
    "max_queued_messages 0\nmax_queued_bytes 0\n"
)


class Mqtt:
    settings = "mosquitto, paho-mqtt, QoS 0, no limits to the broker's queues"

    @contextmanager
    def endpoints(self) -> Iterator[tuple[str, str]]:
        with server("mosquitto", _arguments) as address:
            yield f"{address}/there", f"{address}/back"

    def sender(self, endpoint: str) -> Publisher:
        return Publisher(*endpoint.split("/"))

    def receiver(self, endpoint: str) -> Subscriber:
        return Subscriber(*endpoint.split("/"))


def _arguments(port: int, folder: Path) -> list[str]:
    file = folder / "mosquitto.conf"
    file.write_text(CONFIGURATION.format(port=port), encoding="utf-8")
    return ["-c", str(file)]


def _connected(address: str, client: Any) -> Any:
    host, _, port = address.partition(":")
    client.connect(host, int(port))
    client.loop_start()
    return client


class Publisher:
    def __init__(self, address: str, topic: str) -> None:
        self._topic = f"bench/{topic}"
        self._client = _connected(address, Client(CallbackAPIVersion.VERSION2))

    def send(self, payload: bytes, times: int) -> None:
        publish, topic = self._client.publish, self._topic
        for _ in range(times):
            while publish(topic, payload).rc:
                sleep(LOOK_S)  # it is full, which is no loss

    def flush(self) -> None:
        """Nothing to do: a thread of the library sends."""

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Subscriber:
    """Counts messages in the call-back. A reader of many messages looks at the count now and then; a reader that waits
    for one is woken."""

    def __init__(self, address: str, topic: str) -> None:
        self._got = self._taken = 0
        self._arrived, ready = threading.Event(), threading.Event()
        client: Any = Client(CallbackAPIVersion.VERSION2)
        client.on_message = self._receive
        client.on_subscribe = lambda *_: ready.set()
        client.on_connect = lambda *_: client.subscribe(f"bench/{topic}")
        self._client = _connected(address, client)
        ready.wait(CONNECT_S)

    def _receive(self, client: Any, data: Any, message: Any) -> None:
        self._got += 1
        self._arrived.set()

    def take(self, most: int) -> int:
        if most > 1 and 0 < self._got - self._taken < most:
            sleep(LOOK_S)
        elif self._got == self._taken:
            self._arrived.clear()
            if self._got == self._taken:
                self._arrived.wait(IDLE_S)
        some = min(self._got - self._taken, most)
        self._taken += some
        return some

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def peer(name: str) -> Mqtt:
    return Mqtt()
