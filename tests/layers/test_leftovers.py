"""What was kept in a view is freed after its end, a little at a time: who enters the next one waits for none of it."""

import asyncio
import weakref
from collections import deque

from pluribus.core.limits import LEFTOVER_FRAMES_MAX
from pluribus.layers.reliable import Reliable
from pluribus.layers.reliable.leftovers import FEW, PAUSE_S, STEP_FRAMES, STEP_S, Leftovers
from pluribus.runtime.bus import VIEWS
from tests.sim.inside import in_a_world


class Thing:
    """In the place of a frame."""


class Later:
    """Calls that wait, with how long they were asked to."""

    def __init__(self):
        self.calls = []

    def after(self, delay_s, callback):
        self.calls.append((delay_s, callback))
        return callback

    def run(self):
        """The next one; how long it waited."""
        delay_s, callback = self.calls.pop(0)
        callback()
        return delay_s


def things(count):
    """So many, and how to see how many are alive."""
    made = deque(Thing() for _ in range(count))
    alive = weakref.WeakSet(made)
    return made, alive


def test_they_are_freed_in_steps_after_a_pause():
    leftovers, later = Leftovers(), Later()
    counts, left = (STEP_FRAMES + 100, FEW + 1, STEP_FRAMES * 2), weakref.WeakSet()
    for count in counts:
        made, _ = things(count)
        left.update(made)
        leftovers.take(made)
        del made
    leftovers.free_later(later.after)
    leftovers.free_later(later.after)
    assert len(later.calls) == 1, "one timer, however often it is asked for"
    assert len(left) == leftovers.count == sum(counts)
    delays = []
    while later.calls:
        before = len(left)
        delays.append(later.run())
        leftovers.validate()
        assert before - len(left) == min(STEP_FRAMES, before)
    assert len(left) == leftovers.count == 0
    assert delays == [PAUSE_S] + [STEP_S] * (len(delays) - 1)
    leftovers.free_later(later.after)
    assert not later.calls, "nothing is left to be done"


def test_a_few_are_freed_at_once():
    leftovers, later = Leftovers(), Later()
    made, alive = things(FEW)
    leftovers.take(made)
    leftovers.free_later(later.after)
    del made
    assert not alive and not later.calls


def test_there_is_a_bound():
    leftovers = Leftovers()
    one, first = things(LEFTOVER_FRAMES_MAX)
    leftovers.take(one)
    del one
    other, second = things(FEW + 1)
    leftovers.take(other)
    leftovers.validate()
    assert not first and len(second) == leftovers.count == FEW + 1, "the oldest go first"


@in_a_world(members=3, seed=5, stack=VIEWS)
async def test_a_view_that_ends_leaves_nothing_that_is_kept_and_frees_it_later(world):
    groups = [await bus.group("g", own=False) for bus in world.buses]
    for group in groups:
        await group.wait_for(3, timeout=30)
    readers = [asyncio.create_task(_read(group)) for group in groups]
    for number in range(400):
        await groups[0].send(b"%d" % number)
        await asyncio.sleep(0.0001)  # each is a frame of its own
    window = world.buses[1]._stack.find(Reliable)
    kept = _kept(window)
    assert kept > FEW
    await world.buses[2].close()
    async for view in groups[1].views():
        if len(view) == 2:
            break
    assert _kept(window) == 0
    assert window._leftovers.count, "it has not been freed before the view is there"
    await asyncio.sleep(PAUSE_S + STEP_S * (2 + kept / STEP_FRAMES))
    assert window._leftovers.count == 0
    for reader in readers:
        reader.cancel()


def _kept(window):
    """Frames of streams to all but those of protocols."""
    streams = {**window._in, **{(0, *key): out for key, out in window._out.items()}}
    return sum(len(stream.kept) for (_, group, to), stream in streams.items() if group and not to)


async def _read(group):
    async for _ in group:
        pass
