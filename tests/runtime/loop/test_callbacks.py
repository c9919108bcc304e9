"""Call-backs: what they raise, what is missing, and how they end."""

import asyncio

from pluribus.core.errors import Gap, Refused
from pluribus.pubsub.event import Event
from pluribus.runtime.loop.callbacks import call_with_events


class Scripted:
    """A subscription that gives these bodies, raises these errors, and is closed by ``None``."""

    pattern = "t"

    def __init__(self, *script):
        self.closed = False
        self._script = list(script)

    async def __aiter__(self):
        while self._script:
            step = self._script.pop(0)
            if isinstance(step, Exception):
                raise step
            if step is None:
                self.closed = True
                return
            yield Event(step, 1, (1, 1), "t", 0.0)


def words(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "pluribus.runtime.loop.callbacks"]


def heard_by(subscription):
    heard = []

    async def call(body):
        heard.append(body)
        if body == "bad":
            raise ValueError(body)

    asyncio.run(call_with_events(subscription, call, True))
    return heard


def test_failures_and_gaps_are_told_and_the_next_event_comes(caplog):
    assert heard_by(Scripted("a", "bad", Gap("2 are missing"), "b", None, "after the end")) == ["a", "bad", "b"]
    assert words(caplog) == ["the call-back of 't' failed with event (1, 1)", "'t': 2 are missing"]


def test_a_subscription_that_fails_or_ends_by_itself_is_told_and_the_end(caplog):
    assert heard_by(Scripted("a", Refused("another took over"), "b")) == ["a"]
    assert heard_by(Scripted("a")) == ["a"]
    assert words(caplog) == [
        "the call-back of 't' is called no more: its subscription failed",
        "the call-back of 't' is called no more: its subscription ended, subscribe again",
    ]
