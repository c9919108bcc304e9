"""The methods for software buses on a bus: ``bus.slots`` starts one, ``bus.enroll`` occupies a slot."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from ....core.limits import SLOT_QUEUE_MESSAGES
from ....core.ports import Store
from ..style import Styled

if TYPE_CHECKING:  # loaded by those who use them, so that ``import pluribus`` stays quick
    from ....slots.carry import Carry
    from .buses import Slots
    from .communications import CommunicationsManager
    from .hosts import GivenPlan, SlotsHost
    from .slot import EnrolledSlot

ENROL_S = 10.0


class SlotsFace:
    """The methods that software buses add to a bus."""

    async def slots(
        self,
        plan: GivenPlan,
        *,
        by: str = "router",
        store: str | os.PathLike[str] | Store | None = None,
        answers: str = "asker",
        invoke: bool = True,
    ) -> SlotsHost:
        """Start a software bus from an interconnection file, or go on with the map that ``move()`` returned.

        ``by="router"`` makes this member its router; ``by="replica"`` needs none: every occupant has the map, and it
        lives as long as one of them does; ``by="central"`` queues and delivers every message here, for comparison.
        ``store`` is a file that keeps a router's map: started with it again, tickets and routes are as they were.
        ``answers="all"`` sends the answer to each question about routes to every member. ``invoke=False``: programs of
        invoked slots are not started here. Raises ``BadPlan`` if the file has an error.
        """
        return await _slots(self).host(plan, by, store, answers, invoke)

    async def enroll(
        self,
        slot: str,
        *,
        on: str | None = None,
        name: str | None = None,
        key: str | None = None,
        carry: Carry | bytes | None = None,
        capacity: int = SLOT_QUEUE_MESSAGES,
        trusts: bool = False,
        timeout: float = ENROL_S,
    ) -> EnrolledSlot:
        """Occupy a slot of the software bus ``on``; without a name, of the only one that is advertised.

        ``key`` is the passphrase of a role. ``carry`` is the result of ``move()``: its queue and memory go on here.
        ``capacity`` bounds the messages that are queued. ``trusts=True`` accepts messages that a sender addressed to
        this slot, without asking the router (source routing). Raises ``Refused`` with the router's reason,
        ``NoMembers`` if no router answers within ``timeout`` seconds.
        """
        return await _slots(self).enroll(slot, on, name, key, carry, capacity, trusts, timeout)

    async def communications(self) -> CommunicationsManager:
        """A communications manager: it lists the software buses of this bus, shows their slots and occupants, and
        starts the tool of a slot."""
        return await _slots(self).communications()


def _slots(face: Any) -> Slots:
    from .buses import Slots

    return cast(Styled, face)._style(Slots)
