"""The window of a reliable stream: whose share of the buffer it is."""

import asyncio

from pluribus.core.ids import ALL
from pluribus.core.limits import WINDOW_BYTES_MAX
from pluribus.layers.reliable import Reliable
from pluribus.runtime.bus import VIEWS
from tests.sim.inside import in_a_world


@in_a_world(members=5, seed=7, stack=VIEWS)
async def test_a_view_that_was_just_agreed_leaves_a_lone_sender_the_whole_window(world):
    """Agreeing on it took streams of words among all members; they have no part in the buffer."""
    groups = [await bus.group("g", own=False) for bus in world.buses]
    for group in groups:
        await group.wait_for(5, timeout=30)
    reliable = world.buses[0]._stack.find(Reliable)
    stream = (groups[0]._channel.number, ALL)
    readers = [asyncio.create_task(_read(group)) for group in groups[1:]]
    for _ in range(100):
        await groups[0].send(bytes(8_192))
    await groups[0].send(b"the last", wait="stable")
    sent = reliable._out[stream]
    assert sent.offset > 100 * 8_192
    assert sent.room >= WINDOW_BYTES_MAX // 2, "each receiver grants again when half of the window was used"
    for reader in readers:
        reader.cancel()


async def _read(group):
    async for _ in group:
        pass
