"""Text that is no UTF-8, wherever words are read: msgspec raises ``UnicodeDecodeError`` for it, which is none of its
own exceptions. Each reader must take it for what it is, a frame that is none; a keeper must not stop at a command."""

from contextlib import suppress

import pytest

from pluribus.core.errors import MalformedFrame
from pluribus.group.host import words as host_words
from pluribus.group.keepers import words as keeper_words
from pluribus.pubsub.durable import commands
from pluribus.queues import words as queue_words
from pluribus.spaces import words as space_words
from pluribus.wire import asking
from pluribus.wire.asking import Arriving
from pluribus.wire.kqml import from_binary

BAD = b"\xa1\x80"
"""One byte of text, which begins no character."""


@pytest.mark.parametrize(
    "read",
    [
        asking.decode,
        from_binary,
        host_words.word_of,
        keeper_words.decode,
        commands.command_of,
        queue_words.command_of,
        space_words.command_of,
    ],
)
@pytest.mark.parametrize("tag", range(1, 24))
def test_bad_text_is_malformed(read, tag):
    for fields in range(1, 6):
        for place in range(fields):
            parts = [b"\x01"] * fields
            parts[place] = BAD
            data = bytes([0x91 + fields]) + bytes([tag]) + b"".join(parts)
            with suppress(MalformedFrame):  # some of them are words; no other exception comes of the rest
                read(data)


def test_bad_text_in_a_question_is_answered():
    import msgspec

    import pluribus.pubsub.requests  # noqa: F401 - its words

    with pytest.raises(MalformedFrame):
        asking.request_of(Arriving(1, "topics", msgspec.Raw(b"\x92\x06" + BAD)))
