"""A raw TCP connection to an engine, for saying what no engine says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pluribus.core.ports import Address


class Stranger:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, data: bytes) -> None:
        self.writer.write(data)

    async def is_cut_off(self) -> bool:
        try:
            while await asyncio.wait_for(self.reader.read(65_536), 10):
                pass
        except ConnectionError:
            pass
        return True

    async def hears(self, count: int) -> bytes:
        return await asyncio.wait_for(self.reader.readexactly(count), 10)


@asynccontextmanager
async def stranger(to: Address) -> AsyncIterator[Stranger]:
    reader, writer = await asyncio.open_connection(*to)
    try:
        yield Stranger(reader, writer)
    finally:
        writer.transport.abort()
