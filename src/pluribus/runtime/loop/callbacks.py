"""Call-backs of subscriptions: one loop, for members and for clients, for live and for durable events."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

from ...core.errors import Gap
from ...pubsub.event import Event
from .futures import in_a_thread

log = logging.getLogger(__name__)

Call = Callable[[Any], Any]


class Readable(Protocol):
    """A subscription as far as its call-back is concerned. Iterating ends when it is closed, and may begin again after
    a ``Gap``."""

    closed: bool

    @property
    def pattern(self) -> str: ...

    def __aiter__(self) -> AsyncIterator[Event[Any]]: ...


async def call_with_events(subscription: Readable, call: Call, bodies: bool) -> None:
    """Call a function with one event after another: a coroutine function is awaited, a plain one runs in a thread.

    An exception in it is logged, and the next event follows; missing events are logged, too. If nothing more can be
    read although the subscription was not closed, that is logged, and the calls end, because reading would fail for
    ever.
    """
    pattern, waits = subscription.pattern, inspect.iscoroutinefunction(call)
    while not subscription.closed:
        try:
            async for event in subscription:
                given = event.body if bodies else event
                try:
                    await (call(given) if waits else in_a_thread(call, given))
                except Exception:
                    log.exception("the call-back of %r failed with event %s", pattern, event.id)
            break
        except Gap as gap:
            log.warning("%r: %s", pattern, gap)
        except Exception:
            log.exception("the call-back of %r is called no more: its subscription failed", pattern)
            return
    if not subscription.closed:
        log.error("the call-back of %r is called no more: its subscription ended, subscribe again", pattern)
