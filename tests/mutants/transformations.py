"""Transformers with one mistake each, such as a programmer makes. Campaigns must find them."""

from contextlib import suppress

from pluribus.core.errors import PluribusError
from pluribus.runtime.styles.transformations.transformer import Transformer


class SendsThenSettles:
    """Sends to the target, then settles in the source, as if nobody could die in between."""

    of = Transformer

    async def _move_together(self, source, target, consumer, made):
        for message, outgoing in made:
            outgoing.id = ""
            await target.pass_on(outgoing)
            with suppress(PluribusError):
                await message.ack()


class SettlesThenSends:
    """Settles in the source, then sends to the target."""

    of = Transformer

    async def _move_together(self, source, target, consumer, made):
        for message, outgoing in made:
            await message.ack()
            await target.pass_on(outgoing)


class Silent:
    """Acknowledges what it cannot transform."""

    of = Transformer

    async def _reject(self, message, reason):
        with suppress(PluribusError):
            await message.ack()


FOUND = {
    SendsThenSettles: (0, "more than once"),
    SettlesThenSends: (0, "are not in the target"),
    Silent: (0, "are no dead letters"),
}
