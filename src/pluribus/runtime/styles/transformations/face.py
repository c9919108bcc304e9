"""Transformations on a bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..style import Styled

if TYPE_CHECKING:  # loaded when first used, so that ``import pluribus`` stays quick
    from ....filters import Filter
    from ..queues.queue import MessageQueue
    from .transformer import Transformer

STEP_S = 30.0


class TransformationsFace:
    """Messages that change their format on the way from one queue to another."""

    def transformer(
        self: Styled,
        source: str | MessageQueue,
        target: str | MessageQueue,
        chain: str,
        *,
        where: str | Filter | None = None,
        timeout: float = STEP_S,
    ) -> Transformer:
        """``async with bus.transformer("incoming", "orders", "csv > clean > json"):`` moves messages from one queue to
        another while the block runs, each once, transformed by the chain. A name means a durable queue.

        Functions of the chain are those that this process registered with ``@pluribus.transformation(name)``. A message
        keeps its key, priority, properties, ``id``, ``correlation``, ``reply_to`` and the rest of its ``ttl``. A
        message that cannot be transformed, or takes more than ``timeout`` seconds, becomes a dead letter of the source,
        with the reason. With ``where`` only messages that match are taken.
        """
        from .transformer import Transformers

        return self._style(Transformers).make(source, target, chain, where, timeout)
