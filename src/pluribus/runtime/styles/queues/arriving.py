"""What a sender does with a message for a queue that transforms arriving messages.

A queue keeps the text of its chain among its settings, and refuses a batch that was not made by this chain
(``UNLIKE``). Every sender, on a member or a client, learns the chain from the refusal, transforms the bodies, and sends
again. A body that cannot be transformed is sent as it is, with the reason, and the queue makes it a dead letter.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from ....core.errors import BadInput, NotTransformed, PluribusError, Refused, TooLarge
from ....transformations.chain import Chain
from ....wire.bodies import BYTES, Kind, array_header, decode_bodies, encode_body
from .outgoing import OutgoingMessage

ARRIVING_BYTES_MAX = 1 << 20
"""Longer bodies travel in pieces, and are not transformed on arrival."""


@lru_cache(256)
def chain_of(text: str) -> Chain:
    """The chain in a queue's settings; None if there is none."""
    try:
        return Chain.parse(text)
    except BadInput as error:
        raise Refused(f"the queue transforms what arrives in a way that this release does not know: {error}") from None


def checked_chain(text: str) -> str:
    """The text of a chain for the settings of a queue. Only formats are allowed, which every sender has."""
    if not text:
        return ""
    chain = Chain.parse(text)
    if chain.functions:
        raise BadInput(
            f"{chain.functions[0]!r} is no format: on arrival a queue transforms by formats alone, because functions "
            "are not in every program that sends; let bus.transformer(...) move messages from one queue to another"
        )
    return str(chain)


def transformed(message: OutgoingMessage, text: str) -> OutgoingMessage:
    """The message as it is sent to the queue: transformed, or with the reason why that failed."""
    if message.upload[0] or len(message.body) > ARRIVING_BYTES_MAX:
        raise TooLarge(
            f"a body of more than {ARRIVING_BYTES_MAX:,} bytes is not transformed on arrival: send it to a queue "
            "without, and let bus.transformer(...) move it"
        )
    made = msgspec.structs.replace(message, chain=text)
    try:
        made.kind, made.body = encode_body(chain_of(text).apply(decoded(message.kind, message.body)))
    except (NotTransformed, BadInput) as error:
        made.failure = str(error)[:1_000]
        return made
    if len(made.body) > ARRIVING_BYTES_MAX:
        raise TooLarge(
            f"transformed on arrival the body has {len(made.body):,} bytes, and {ARRIVING_BYTES_MAX:,} are the most: "
            "send it to a queue without, and let bus.transformer(...) move it"
        )
    return made


def decoded(kind: Kind, body: bytes) -> object:
    """A body as its consumer would receive it."""
    if kind == BYTES:
        return body
    try:
        return decode_bodies(kind, msgspec.Raw(array_header(1) + body), 1)[0]
    except PluribusError as error:
        raise NotTransformed(str(error)) from None
