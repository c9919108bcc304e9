"""No router at all: the map is a replica, and every occupant has it.

``MapMachine`` applies the same commands at every member, in one order. So each occupant counts by itself the occupants
that must acknowledge a message (a send costs 1 + R messages), and knows which messages it may accept. ``MapRoutes``
answers from that copy as a routing table does. A copy that is behind the sender's is in doubt: it waits for the command
that it has not applied.

A passphrase is proved for a challenge that names the bus, the member and its nonce: no router is there to send another.

*Lives.* The map of a replica is lost when all its members are gone, and may fall back when a forced primary goes on an
older state. Where keepers have it (``shelf.py``), ``Resume`` goes on with theirs, in a later epoch, which distinguishes
words of the earlier life. Several members may notice at once: the second ``Resume`` names an epoch that is over.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from .map import Begin, BusMap, Change, Command, Denied, Done, Enrol, Outcome, Resume
from .routes import STALE, Stale
from .words import Leg, SendData, Version

_encode = msgspec.msgpack.encode
_commands = msgspec.msgpack.Decoder(Command)
_outcomes = msgspec.msgpack.Decoder(Outcome)


def packed(command: Command) -> bytes:
    return _encode(command)


def outcome_of(answer: bytes) -> Outcome:
    found: Outcome = _outcomes.decode(answer)
    return found


def challenge_for(bus: str, member: int, nonce: int) -> bytes:
    return f"{bus}/{member}/{nonce}".encode()


class MapMachine:
    """The state machine that members replicate: ``Begin`` says which bus it is."""

    def __init__(self) -> None:
        self.map: BusMap | None = None
        self.on_change: Callable[[list[Change]], None] = lambda changes: None
        self.on_replaced: Callable[[], None] = lambda: None
        """Called when the whole map was replaced."""

    def apply(self, index: int, command: bytes) -> bytes:
        given = _commands.decode(command)
        if isinstance(given, Resume):
            return _encode(self._resume(given))
        if self.map is None:
            if not isinstance(given, Begin):
                return _encode(Denied("this bus has not begun: start it with bus.slots(FILE, by='replica')"))
            self.map = BusMap(given.plan)
            self.map.born = given.epoch
            self.map.begin(given.epoch)
            self.on_replaced()
            return _encode(Done())
        if isinstance(given, Begin) and given.plan.name != self.map.plan.name:
            return _encode(Denied(f"this is bus {self.map.plan.name!r}: start another under its own name"))
        if isinstance(given, Enrol) and given.challenge != challenge_for(self.map.plan.name, given.member, given.nonce):
            given = msgspec.structs.replace(given, proofs=())
        outcome = self.map.apply(given)
        changes = self.map.take_changes()
        if changes:
            self.on_change(changes)
        return _encode(outcome)

    def _resume(self, given: Resume) -> Outcome:
        here, kept = self.map, BusMap.restored(given.state) if given.state else None
        if given.instead_of != (0 if here is None else here.epoch) or (here is None and kept is None):
            return Done()
        if kept is not None and (here is None or kept.born != here.born or kept.age > here.age):
            self.map = kept
        assert self.map is not None
        self.map.begin(max(self.map.epoch, given.instead_of, given.epoch - 1) + 1)
        self.on_replaced()
        return Done()

    def snapshot(self) -> bytes:
        return b"" if self.map is None else self.map.snapshot()

    def restore(self, state: bytes) -> None:
        self.map = BusMap.restored(state) if state else None
        self.on_replaced()


class MapRoutes:
    """A routing table that is the whole map."""

    def __init__(self, machine: MapMachine) -> None:
        self._machine = machine

    @property
    def version(self) -> Version:
        return (0, 0) if self._machine.map is None else self._machine.map.version

    @version.setter
    def version(self, version: Version) -> None:
        raise AttributeError("the version is the map's own")

    def targets(self, data: SendData, slot: str) -> tuple[Leg, ...] | Stale | None:
        here = self._machine.map
        if here is None or data.version > here.version or data.generation > here.generation(data.source.slot):
            return None
        if not here.valid(data.ticket, data.source.slot):
            return STALE
        return tuple(leg for leg in here.legs(data.source) if leg.target.slot == slot)
