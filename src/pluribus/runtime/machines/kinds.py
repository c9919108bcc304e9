"""The machines of Pluribus's own styles, which every keeper has the code of. A style adds its own here."""

from __future__ import annotations

from importlib import import_module

from ...group.host import Machine, rights
from ..loop.lateness import loaded

STYLE_MACHINES: dict[str, str | type[Machine]] = {
    "access": "pluribus.access.machine:AccessList",
    "queue": "pluribus.queues.machine:Queue",
    "slots-map": "pluribus.slots.shelf:MapShelf",
    "space": "pluribus.spaces.machine:SpaceMachine",
    "transactions": "pluribus.transactions.machine:Transactions",
}
"""By kind: the module and the class. They are loaded when a keeper is started, or a machine in memory opened."""


def machine_of_style(code: type[Machine]) -> type[Machine]:
    """A decorator, for machines of styles of your own: this process has its code from now on."""
    STYLE_MACHINES[code.kind] = code
    return code


def style_machines() -> dict[str, type[Machine]]:
    found: dict[str, type[Machine]] = {}
    for kind, place in STYLE_MACHINES.items():
        if isinstance(place, str):
            module, _, name = place.partition(":")
            found[kind] = getattr(import_module(module), name)
        else:
            found[kind] = place
    return found


async def style_machines_loaded() -> None:
    """Import their modules in a thread, so that the loop is not late."""
    for place in STYLE_MACHINES.values():
        if isinstance(place, str):
            await loaded(place.partition(":")[0])


def _rights_loaded() -> None:
    """Styles say which right each of their commands needs beside the words themselves."""
    for module in ("access", "queues", "spaces", "transactions", "pubsub.consumer_groups"):
        import_module(f"pluribus.{module}.words")
    for place in ("pubsub.durable.rights", "slots.shelf"):
        import_module(f"pluribus.{place}")


rights.loading.append(_rights_loaded)
