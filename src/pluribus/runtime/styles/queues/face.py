"""What queues add to a bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..style import Styled

if TYPE_CHECKING:  # loaded when first used, so that ``import pluribus`` stays quick
    from .queue import MessageQueue

OPEN_S = 15.0


class QueuesFace:
    """Messages that wait until one consumer has taken each of them, and is done with it."""

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
        """The queue of that name; it is made if nobody did, unless ``create=False``, which raises ``BadInput`` then and
        says which queues there are. It is on the keepers' log, or with ``durable=False`` in the memory of the members
        that open it.

        What is not given is as the queue was made, or usual: ``messages_max`` and ``bytes_max`` none, and when one is
        reached senders wait (``full="wait"``), are refused (``"refuse"``), or the oldest become dead letters
        (``"dead"``); ``tries`` 20, then a message that came back is a dead letter; ``backoff`` from 1 s, doubled each
        time, to 60 s; ``window`` 120 s, in which an ``id`` counts once; ``lease`` none: a consumer holds a message as
        long as it is there; ``dead_max`` 100,000 dead letters; ``dead_expired`` false: what outlives its ``ttl`` goes;
        ``transform`` nothing: else what arrives is transformed by this chain of formats, such as ``"csv > json"``.
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
