"""What the page of software buses knows and does; no browser is needed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..core.errors import BadInput, PluribusError
from ..slots.drawing import draw
from ..slots.plan import SHADOW

if TYPE_CHECKING:
    from ..runtime.bus import Bus
    from ..runtime.styles.slots.communications import BusShown, CommunicationsManager
    from ..runtime.styles.slots.slot import EnrolledSlot
    from ..slots.words import Advertise

LISTEN_S = 0.05


class SoftwareBuses:
    """Made for each browser that looks; ``close`` gives back the shadow slot that it may occupy."""

    def __init__(self, bus: Bus, manager: CommunicationsManager) -> None:
        self._bus = bus
        self._manager = manager
        self._shadow: EnrolledSlot | None = None
        self.key: str | None = None
        """The passphrase of a role, if the person has given one."""
        self.buses: list[Advertise] = []
        self.selected = ""
        self.shown: BusShown | None = None
        self.complaint = ""

    async def refresh(self) -> bool:
        """Look again; whether something is different."""
        before = (self.buses, self.shown, self.complaint)
        self.buses = await self._manager.buses(listen_s=LISTEN_S)
        if self.selected:
            try:
                self.shown = await self._manager.show(self.selected, key=self.key, timeout=1.0)
                self.complaint = ""
            except PluribusError as error:
                self.complaint = str(error)
                if self.selected not in {advert.bus for advert in self.buses}:
                    self.shown = None
        return (self.buses, self.shown, self.complaint) != before

    async def select(self, name: str) -> None:
        await self.close()
        self.selected, self.shown = name, None
        await self.refresh()

    def picture(self) -> str:
        """The graph with its occupants, as SVG."""
        if self.shown is None:
            return ""
        counts = {slot.name: len(self.shown.occupants(slot.name)) for slot in self.shown.plan.slots}
        return draw(self.shown.plan, counts)

    def state_of(self, slot: str) -> str:
        assert self.shown is not None
        found = self.shown.plan.slot(slot)
        there = len(self.shown.occupants(slot))
        if found is None:
            return ""
        if there < found.least:
            return f"{there} of {found.least}: the bus waits for it"
        return f"{there} of at most {found.greatest}" if there else "empty"

    def properties(self, slot: str) -> list[str]:
        """Everything about a slot, a line each."""
        assert self.shown is not None
        found = self.shown.plan.slot(slot)
        if found is None:
            return []
        lines = [f"{found.name}: {found.kind}, {found.least} to {found.greatest} occupants"]
        lines += [found.about] if found.about else []
        lines += [f"program: {found.program}"] if found.program else ["no program"]
        for port in found.ports:
            type = f" : {port.type}" if port.type else ""
            lines.append(f"{port.kind} {port.name}{type}{f' -> {port.answer}' if port.answer else ''}")
        lines += [f"for {', '.join(found.enrol)}"] if found.enrol else []
        lines += [f"occupied by {seat.name}, ticket {seat.number}" for seat in self.shown.occupants(slot)]
        return lines

    async def start(self, slot: str) -> None:
        """Start the slot's tool."""
        await self._manager.start(self.selected, slot, key=self.key)

    async def add_route(self, source: str, target: str) -> None:
        await (await self._reconfigurer()).add_route(source, target)

    async def del_route(self, source: str, target: str) -> None:
        await (await self._reconfigurer()).del_route(source, target)

    async def _reconfigurer(self) -> EnrolledSlot:
        """The console in a shadow slot of the bus."""
        if self._shadow is None or self._shadow.state != "enrolled":
            assert self.shown is not None
            shadow = next((slot.name for slot in self.shown.plan.slots if slot.kind == SHADOW), None)
            if shadow is None:
                raise BadInput(f"bus {self.selected!r} has no shadow slot from which routes can be changed: add one")
            self._shadow = await self._bus.enroll(shadow, on=self.selected, key=self.key, name="console", timeout=3.0)
        return self._shadow

    async def close(self) -> None:
        shadow, self._shadow = self._shadow, None
        if shadow is not None and shadow.state == "enrolled":
            await shadow.close()
