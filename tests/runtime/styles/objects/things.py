"""Objects that the tests talk to, and buses to put them on."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pluribus
from pluribus.objects import Kqml, handles
from tests.harness import new_bus


@pluribus.register
@dataclasses.dataclass
class Reading:
    degrees: float
    place: str = ""
    of: "list[Reading]" = dataclasses.field(default_factory=list)


class Thermometer:
    """Tells its degrees, remembers what it was told."""

    def __init__(self, place: str = "", degrees: float = 20.0) -> None:
        self.place, self.degrees = place, degrees
        self.heard: list[Any] = []

    @handles("ask-one", "ask-all")
    async def asked(self, message: Kqml) -> Any:
        if message.content == "temperature":
            return self.degrees
        if message.content == "reading":
            return Reading(self.degrees, self.place)
        if message.content == "place":
            return self.place
        if message.content == "never":
            await asyncio.Event().wait()
        if message.content == "wrong":
            raise LookupError("nothing here")
        return None

    @handles("tell", quick=True)
    def told(self, message: Kqml) -> None:
        self.heard.append(message)

    @handles(Reading, quick=True)
    def given(self, message: Any) -> str:
        self.heard.append(message)
        return "thanks"

    @pluribus.exposed
    async def read(self, offset: float = 0.0) -> float:
        return self.degrees + offset

    @pluribus.exposed
    def fail(self) -> None:
        raise LookupError("nothing here")


@asynccontextmanager
async def buses(count: int = 2, url: str | None = None, **options: Any) -> AsyncIterator[list[pluribus.Bus]]:
    """So many members that know each other as holders of objects."""
    url = url or new_bus()
    opened: list[pluribus.Bus] = []
    try:
        for number in range(count):
            opened.append(await pluribus.connect(url, name=f"m{number}", **options))
        groups = await asyncio.gather(*[bus._post.group() for bus in opened])
        await asyncio.gather(*[group.wait_for(count) for group in groups])
        yield opened
        for bus in opened:
            if not bus.closed:
                bus.validate()
    finally:
        for bus in opened:
            await bus.close()
