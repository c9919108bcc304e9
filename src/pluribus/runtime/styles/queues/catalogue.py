"""Which durable queues there are: the machines of their kind on the keepers' log."""

from __future__ import annotations

from typing import Any

from ....core.errors import BadInput
from ....group.host.requests import Examine
from ....group.keepers.operations import Roll
from ....group.keepers.voting import Standing
from ....queues.machine import Queue
from ....queues.words import Count, encode

MACHINE = "queue."
"""How the names of their machines begin."""
TOLD_MAX = 8
"""Names in a sentence."""


async def listed(bus: Any, timeout: float | None) -> list[str]:
    """Their names, sorted; of all keepers that answer, as one may be behind."""
    roll: list[Standing] = await bus.durable.ask(Roll(), timeout)
    machines = [machine for keeper in roll for machine in keeper.machines if machine.kind == Queue.kind]
    return sorted({machine.name.removeprefix(MACHINE) for machine in machines if machine.name.startswith(MACHINE)})


async def find(bus: Any, name: str, durable: bool, timeout: float | None) -> None:
    """Raises ``BadInput`` if there is no queue of that name."""
    if not durable:
        raise BadInput("create=False is for durable queues: one in memory is where members have it open")
    try:
        await bus.durable.ask(Examine(MACHINE + name, encode(Count())), timeout)
    except BadInput:  # there is no such machine
        names = await listed(bus, timeout)
        if name not in names:
            raise BadInput(
                f"there is no queue {name!r} on this bus, only {_told(names)}: await bus.queue({name!r}) or "
                f"`pluribus queue configure {name}` makes it"
            ) from None


def _told(names: list[str]) -> str:
    if not names:
        return "none at all"
    more = len(names) - TOLD_MAX
    return ", ".join(map(repr, names[:TOLD_MAX])) + (f" and {more:,} more" if more > 0 else "")
