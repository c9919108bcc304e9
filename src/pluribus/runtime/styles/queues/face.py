"""Queues on a bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..style import Styled

if TYPE_CHECKING:  # loaded when first used, so that ``import pluribus`` stays quick
    from .queue import MessageQueue

OPEN_S = 15.0


class QueuesFace:
    """Queues: a message waits until one consumer has taken it and has settled it."""

    async def queue(
        self: Styled,
        name: str,
        *,
        durable: bool = True,
        create: bool = True,
        messages_max: int | None = None,
        bytes_max: int | None = None,
        full: str | None = None,
        tries: int | None = None,
        backoff: tuple[float, float] | None = None,
        window: float | None = None,
        lease: float | None = None,
        dead_max: int | None = None,
        dead_expired: bool | None = None,
        transform: str | None = None,
        timeout: float | None = OPEN_S,
    ) -> MessageQueue:
        """Open the queue of that name; the first to open it makes it. With ``create=False`` nobody makes it: if it is
        not there, ``BadInput`` says which queues there are. The queue is on the keepers' log, or with
        ``durable=False`` in the memory of the members that open it.

        A setting that is not given is as the queue was made, or has its default: ``messages_max`` and ``bytes_max``
        none, and when one is reached senders wait (``full="wait"``), are refused (``"refuse"``), or the oldest become
        dead letters (``"dead"``); ``tries`` 20, after so many deliveries a message that comes back is a dead letter;
        ``backoff`` from 1 s, doubled each time, to 60 s; ``window`` 120 s, in which a second message of the same ``id``
        is dropped; ``lease`` none: a consumer holds a message as long as it is there; ``dead_max`` 100,000 dead
        letters; ``dead_expired`` false: a message that outlives its ``ttl`` is removed, not a dead letter;
        ``transform`` none, or a chain of formats, such as ``"csv > json"``, that transforms every arriving message.
        Raises ``Refused`` if the queue was made with other settings than these; ``configure`` changes them.
        """
        from .options import settings_of
        from .queue import Queues

        given = settings_of(
            messages_max, bytes_max, full, tries, backoff, window, lease, dead_max, dead_expired, transform
        )
        return await self._style(Queues).open(name, durable, given, timeout, create=create)

    async def queues(self: Styled, *, timeout: float | None = OPEN_S) -> list[str]:
        """The names of the durable queues, sorted."""
        from .queue import Queues

        return await self._style(Queues).listed(timeout)
