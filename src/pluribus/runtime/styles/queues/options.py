"""Arguments of queues, checked: messages, selectors, settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ....core.errors import BadInput
from ....filters import Filter, parse
from ....filters.packed import packed
from ....group.host.demand import CREDIT_MAX
from ....queues import words
from ....queues.words import Settings
from .arriving import checked_chain
from .outgoing import OutgoingMessage
from .sender import checked, encoded_properties


def message_of(
    kind: int | str,
    encoded: bytes,
    priority: int,
    ttl: float | None,
    delay: float | None,
    properties: Mapping[str, Any] | None,
    key: str,
    id: str,
    correlation: str,
    reply_to: str,
) -> OutgoingMessage:
    return checked(
        OutgoingMessage(
            kind,
            encoded,
            priority,
            microseconds(ttl, "ttl"),
            microseconds(delay, "delay"),
            key,
            id,
            correlation,
            reply_to,
            encoded_properties(properties),
        )
    )


def microseconds(seconds: float | None, what: str) -> int:
    if seconds is None:
        return 0
    if not 0 <= seconds <= 1e9:
        raise BadInput(f"{what}={seconds!r}: give seconds, from 0 to 1,000,000,000")
    return max(int(seconds * 1e6), 1)


def checked_credit(credit: int) -> int:
    if not 0 < credit <= CREDIT_MAX:
        raise BadInput(f"credit={credit}: give 1 to {CREDIT_MAX:,} messages")
    return credit


def selector_of(where: str | Filter | None) -> bytes:
    if where is None:
        return b""
    filter = parse(where) if isinstance(where, str) else where
    if filter.needs_now:
        raise BadInput(f"the selector '{filter}' asks for NOW(), which a queue does not: use ttl= and delay= in send")
    return packed(filter)


def settings_of(
    messages_max: int | None,
    bytes_max: int | None,
    full: str | None,
    tries: int | None,
    backoff: tuple[float, float] | None,
    window: float | None,
    lease: float | None,
    dead_max: int | None,
    dead_expired: bool | None,
    transform: str | None = None,
    usual: Settings | None = None,
) -> Settings | None:
    """The given settings, with defaults for the others if ``usual``; None if no setting is given."""
    given: dict[str, Any] = {
        "count_max": messages_max,
        "bytes_max": bytes_max,
        "policy": full,
        "tries_max": tries,
        "backoff_us": None if backoff is None else int(backoff[0] * 1e6),
        "backoff_us_max": None if backoff is None else int(backoff[1] * 1e6),
        "window_us": None if window is None else int(window * 1e6),
        "lease_us": None if lease is None else int(lease * 1e6),
        "dead_max": dead_max,
        "bury_expired": dead_expired,
        "transform": None if transform is None else checked_chain(transform),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    if any(not isinstance(value, str | bool) and value < 0 for value in chosen.values()):
        raise BadInput(f"settings of a queue cannot be negative: {chosen}")
    if full is not None and full not in (words.WAIT, words.REFUSE, words.BURY):
        raise BadInput(f"full={full!r}: use 'wait', 'refuse' or 'dead'")
    return msgspec.structs.replace(usual or Settings(), **chosen) if chosen else None
