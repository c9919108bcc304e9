"""A carrier that had no processor for a while reads what came meanwhile before its protocol acts."""

import asyncio
from collections import deque
from types import SimpleNamespace

from pluribus.runtime.styles.conversations.carrier import LATE_S, LISTEN_TURNS, ProtocolCarrier
from tests.harness import on_a_loop

SOON_S = 0.05


class SlowlyRead:
    """A group whose reader takes some turns of the loop for each message."""

    name, me, closed = "x", 1, False
    view = SimpleNamespace(members=(1, 2))

    def __init__(self):
        self._channel = SimpleNamespace(inbox=deque())

    @property
    def has_unread(self):
        return bool(self._channel.inbox)

    async def __aiter__(self):
        while not self.closed:
            await turns(1)
            if self._channel.inbox:
                await turns(5)
                yield SimpleNamespace(sender=2, body=self._channel.inbox[0])
                self._channel.inbox.popleft()

    async def views(self):
        yield self.view
        await asyncio.Event().wait()

    async def close(self):
        self.closed = True


class Counting:
    """A protocol that would act soon, unless it hears a word."""

    def __init__(self, now, calmed):
        self.out, self.due_at, self.heard_words, self.ticks = deque(), now + SOON_S, [], 0
        self._calmed = calmed

    def heard(self, sender, word, now):
        self.heard_words.append(word)
        if self._calmed:
            self.due_at = now + 3_600.0

    def tick(self, now):
        self.ticks += 1
        self.due_at = now + 3_600.0

    def newcomer(self, now):
        pass


class Hand:
    """A clock that moves when told; the one timer of a carrier rings with it."""

    def __init__(self):
        self.at, self.ring = 0.0, lambda: None

    def now(self):
        return self.at

    def call_later(self, delay_s, callback):
        self.ring = callback
        return SimpleNamespace(cancel=lambda: None)


async def turns(count):
    for _ in range(count):
        await asyncio.sleep(0)


async def never():
    raise AssertionError("it is in the group")


async def stood_still(words, *, calmed):
    """A carrier, its group and its protocol, after the loop has stood still and words came in that while."""
    group, clock = SlowlyRead(), Hand()
    part = Counting(clock.now(), calmed=calmed)
    carrier = ProtocolCarrier(group, part, lambda body: body, clock, lambda: None, never, lambda joined: None)
    await turns(20)
    group._channel.inbox.extend(words)
    clock.at += SOON_S + 5 * LATE_S
    clock.ring()
    return carrier, group, part


@on_a_loop
async def test_what_came_while_it_stood_still_is_heard_first():
    carrier, _, part = await stood_still([b"said by another"], calmed=True)
    await turns(50)
    assert part.heard_words == [b"said by another"] and part.ticks == 0
    await carrier.close()


@on_a_loop
async def test_who_is_talked_to_without_end_acts_all_the_same():
    carrier, group, part = await stood_still([b"again"] * LISTEN_TURNS, calmed=False)
    await turns(2 * LISTEN_TURNS)
    assert part.ticks == 1 and group._channel.inbox, "it did not wait for the end"
    await carrier.close()
