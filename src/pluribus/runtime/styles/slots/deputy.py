"""A deputy: where there is no router, a member does a router's work for the guest of one of its clients.

A client has no copy of the map; its member has one. The deputy receives the words of the guest to a router, gives
commands to the replica in the guest's name, counts its messages and answers its questions about routes. It ends with
the client, as the guest does. To the other occupants the guest is an occupant like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ....core.errors import PluribusError, Refused
from ....slots.machine import challenge_for
from ....slots.map import Change, Connect, Disconnect, Enrol, Granted, Leave
from ....slots.router import challenge_word, count_of, route_of
from ....slots.words import (
    DENIED,
    STALE,
    AckRoute,
    AddRoute,
    DelRoute,
    Dropout,
    Dropped,
    Enroll,
    NegAck,
    ReqRoute,
    SendData,
    Ticket,
    Word,
)

if TYPE_CHECKING:
    from .hosts import ReplicaHost

CALL_S = 10.0


class Deputy:
    """A machine of the station. A request that comes again while it is under way is ignored."""

    due_at = None

    def __init__(self, host: ReplicaHost, guest: int) -> None:
        self.guest = guest
        self.out: list[tuple[int, Word]] = []
        self._host = host
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._epoch = 0
        """The latest change that the guest was told of: it is told of no earlier one."""

    def tick(self, now: float) -> None:
        pass

    def validate(self) -> None:
        pass

    def take(self, sender: int, word: Word, now: float) -> None:
        action = ACTIONS.get(type(word))
        if sender != self.guest or action is None or self._host.machine.map is None:
            return
        ticket = getattr(word, "ticket", None)
        if ticket is not None and not self._holds(ticket) and not isinstance(word, Dropout):
            reason = f"ticket {ticket} is not valid any more: enroll again"
            self._say(NegAck(ticket, STALE, reason, max(self._epoch, self._host.map.epoch)))
            return
        action(self, word)

    def told(self, changes: list[Change]) -> None:
        """The map has changed."""
        if self._host.map.plan.announces:
            for change in changes:
                self._say(change)

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    def _holds(self, ticket: int) -> bool:
        seat = self._host.map.seats.get(ticket)
        return seat is not None and seat.member == self.guest

    def _say(self, word: Word) -> None:
        self._epoch = max(self._epoch, self._host.map.epoch)
        self.out.append((self.guest, word))

    def _begin(self, number: int, what: Callable[[], Awaitable[None]]) -> None:
        """Do a command to which the replica must agree; a refusal is sent to the guest, which otherwise asks again."""

        async def done() -> None:
            try:
                await what()
            except Refused as error:
                self._say(NegAck(number, DENIED, str(error), self._host.map.epoch))
            except PluribusError:
                pass
            finally:
                self._under_way.pop(number, None)
                self._host._station.flush()

        if number not in self._under_way:
            self._under_way[number] = asyncio.ensure_future(done())

    # Words of the guest

    def _enroll(self, word: Enroll) -> None:
        host, plan = self._host, self._host.map.plan
        slot = plan.slot(word.slot)
        challenge = challenge_for(plan.name, self.guest, word.nonce)
        if (word.keyed or (slot is not None and slot.enrol)) and plan.roles and not word.proofs:
            self._say(challenge_word(plan, word.nonce, challenge))
            return

        async def enrol() -> None:
            wish = Enrol(word.slot, self.guest, word.nonce, word.name, challenge, word.proofs, word.claims)
            granted = await host.call(wish, timeout=CALL_S)
            assert isinstance(granted, Granted)
            seat, here = granted.seat, host.map
            generation, waiting = here.generation(seat.slot), here.waiting()
            number, shape = seat.number, here.shape
            self._say(
                Ticket(word.nonce, number, seat.slot, generation, here.version, shape, waiting, "replica", seat.roles)
            )

        self._begin(word.nonce, enrol)

    def _dropout(self, word: Dropout) -> None:
        async def leave() -> None:
            if self._holds(word.ticket):
                await self._host.call(Leave(word.ticket, word.end), timeout=CALL_S)
            self._say(Dropped(word.ticket))

        self._begin(word.ticket, leave)

    def _data(self, word: SendData) -> None:
        self._say(count_of(self._host.map, word))

    def _req_route(self, word: ReqRoute) -> None:
        self._say(route_of(self._host.map, word))

    def _change_route(self, word: AddRoute | DelRoute) -> None:
        async def change() -> None:
            if isinstance(word, AddRoute):
                await self._host.call(Connect(word.ticket, word.connection), timeout=CALL_S)
            else:
                await self._host.call(Disconnect(word.ticket, word.source, word.target), timeout=CALL_S)
            self._say(AckRoute(word.nonce, self._host.map.version))

        self._begin(word.nonce, change)


ACTIONS: dict[type, Callable[[Deputy, Any], None]] = {
    Enroll: Deputy._enroll,
    Dropout: Deputy._dropout,
    SendData: Deputy._data,
    ReqRoute: Deputy._req_route,
    AddRoute: Deputy._change_route,
    DelRoute: Deputy._change_route,
}
"""The words of its guest with which a deputy deals; all others go on to the group without it."""
