"""What only the engine of one process can meet: loops of other threads, which come and go."""

import asyncio

from pluribus.engines.inproc import InprocEngine


class Closing:
    """A loop that is closed in the moment after it was looked at."""

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, *given: object) -> None:
        raise RuntimeError("Event loop is closed")


def test_a_peer_whose_loop_ends_meanwhile_is_a_datagram_dropped():
    async def scenario() -> None:
        one, other = InprocEngine("ends-meanwhile"), InprocEngine("ends-meanwhile")
        for engine in (one, other):
            await engine.open(lambda datagrams: None, lambda: None)
        other._loop = Closing()
        one.send([b"a", b"b"], other.address)
        assert one.stats.dropped == 2
        for engine in (one, other):
            await engine.close()

    asyncio.run(scenario())
