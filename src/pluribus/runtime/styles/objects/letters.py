"""Messages as they travel between processes."""

from __future__ import annotations

from ....core.errors import MalformedFrame
from ....objects.graphs import decode_graph, encode_graph
from ....objects.messages import ObjectMessage, Said
from ....objects.words import KQML, OBJECT, Letter
from ....wire.kqml import Kqml, from_binary, to_binary


def letter_of(message: Said, receiver: str, how: int) -> Letter:
    """Encode a message to travel; ``BadInput`` if that is impossible."""
    if isinstance(message, Kqml):
        sender, token = str(message.get("sender", "")), str(message.get("reply-with", ""))
        return Letter(KQML, receiver, how, sender, to_binary(message), token, str(message.get("in-reply-to", "")))
    payload = encode_graph(message.body)
    tokens = message.reply_with, message.in_reply_to
    return Letter(OBJECT, receiver, how, message.sender, payload, *tokens, message.bridges)


def opened(letter: Letter) -> Said:
    """Decode a message. ``BadBody`` names a type that is not registered here; ``MalformedFrame`` for any other
    error."""
    if letter.kind == KQML:
        return from_binary(letter.payload)
    if letter.kind == OBJECT:
        body = decode_graph(letter.payload)
        tokens = letter.reply_with, letter.in_reply_to
        return ObjectMessage(body, letter.sender, letter.receiver, *tokens, letter.bridges)
    raise MalformedFrame(f"a letter of kind {letter.kind}: install the same release on both sides")
