"""Both ends of an engine under test: what arrived, and waiting for it with a deadline."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from pluribus.core.ports import Address, Datagram, Engine
from pluribus.core.url import parse_url
from pluribus.engines import engine_for

DEADLINE_S = 10.0
POLL_S = 0.002

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]


class End:
    """An open engine and everything that it received, in order."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.got: list[Datagram] = []
        self.lists = 0
        self.rooms = 0

    def receive(self, datagrams: list[Datagram]) -> None:
        assert datagrams, "an empty list was received"
        self.got += datagrams
        self.lists += 1

    def room(self) -> None:
        assert self.engine.writable, "room while not writable"
        self.rooms += 1

    @property
    def address(self) -> Address:
        return self.engine.address

    @property
    def bodies(self) -> list[bytes]:
        return [data for data, _ in self.got]

    async def arrived(self, count: int) -> None:
        await until(lambda: len(self.got) >= count, lambda: f"{len(self.got)} of {count} datagrams arrived")

    async def may_send(self) -> None:
        await until(lambda: self.engine.writable, lambda: "never writable again")


async def until(condition: Callable[[], bool], otherwise: Callable[[], str] = lambda: "in vain") -> None:
    """Wait for a condition, or fail after the deadline."""
    give_up_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_at, otherwise()
        await asyncio.sleep(POLL_S)


async def opened(url: str) -> End:
    end = End(engine_for(parse_url(url)))
    await end.engine.open(end.receive, end.room)
    return end


@asynccontextmanager
async def ends(url: str, count: int) -> AsyncIterator[list[End]]:
    """So many members that use the same URL, closed at the end; all know each other as peers."""
    members = [await opened(url) for _ in range(count)]
    try:
        addresses = [member.address for member in members]
        assert len(set(addresses)) == count
        for member in members:
            member.engine.set_peers(addresses)
        yield members
    finally:
        await asyncio.gather(*(member.engine.close() for member in members))


def run_on(new_loop: Callable[[], asyncio.AbstractEventLoop], work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a new loop; whatever was raised into the loop on the way fails the test."""
    raised: list[dict[str, Any]] = []

    async def watched() -> T:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        return await asyncio.wait_for(work, 60)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        result = runner.run(watched())
    assert not raised, f"raised into the loop: {raised}"
    return result


async def refused(opening: Awaitable[object], error: type[Exception]) -> str:
    """The sentence with which opening was refused; fails if it is more than one sentence without a remedy."""
    try:
        await opening
    except error as refusal:
        return checked_sentence(refusal)
    raise AssertionError(f"not refused with {error.__name__}")


def checked_sentence(error: Exception) -> str:
    text = str(error)
    assert "\n" not in text, text
    assert 20 < len(text) < 240, text
    assert ": " in text, f"no remedy: {text}"
    assert "Errno" not in text, text
    assert "Traceback" not in text, text
    return text
