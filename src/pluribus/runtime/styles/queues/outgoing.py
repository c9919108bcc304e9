"""One message on its way to a queue, and its part in a batch."""

from __future__ import annotations

from typing import Any

import msgspec

from ....queues import batch, words
from ....wire.bodies import Kind


class OutgoingMessage(msgspec.Struct):
    """One message on its way."""

    kind: Kind
    body: bytes
    priority: int = words.PRIORITY
    ttl_us: int = 0
    delay_us: int = 0
    key: str = ""
    id: str = ""
    correlation: str = ""
    reply_to: str = ""
    properties: bytes = b""
    upload: tuple[int, int] = (0, 0)
    failure: str = ""
    """The reason why the body could not be transformed."""
    chain: str = ""
    """The chain that made the body, for a queue that transforms arriving messages."""

    @property
    def plain(self) -> bool:
        options = (self.ttl_us, self.delay_us, self.key, self.id, self.correlation, self.reply_to, self.properties)
        return self.priority == words.PRIORITY and not any(options) and not self.upload[0] and not self.failure


def extra_of(messages: list[OutgoingMessage], chain: str = "") -> batch.BatchExtra | None:
    """The fields of a batch besides its bodies, which ``chain`` made; None if there are none."""
    if not chain and all(one.plain for one in messages):
        return None

    def column(name: str, nothing: Any) -> list[Any]:
        values = [getattr(one, name) for one in messages]
        return values if any(value != nothing for value in values) else []

    return batch.BatchExtra(
        column("priority", words.PRIORITY),
        column("ttl_us", 0),
        column("delay_us", 0),
        column("key", ""),
        column("id", ""),
        column("correlation", ""),
        column("reply_to", ""),
        column("properties", b""),
        column("upload", (0, 0)),
        column("failure", ""),
        chain,
    )
