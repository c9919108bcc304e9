"""Introductions: where the medium does not reach everybody, members tell newcomers of each other.

Over UDP and TCP a newcomer knows only the addresses in its URL. A member that hears of a new member sends it the
addresses of all others that it knows, and the newcomer's next hello goes to those as well. So one member in common is
enough, whichever it is. Where the engine broadcasts, the layer does nothing.

An address at which nobody is costs one datagram a hello until it is forgotten: when ``FORGET_S`` seconds have passed,
or when more than ``PLACES_MAX`` addresses are known.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from ..core.frame import Frame, Header, Number
from ..core.limits import FRAME_OVERHEAD_BYTES, HOST_CHARS_MAX
from ..core.ports import Address
from ..stack.events import Addresses, Event, Introduced, Visitor
from ..stack.layer import Layer

PLACES_MAX = 1_024
FORGET_S = 10.0
PLACE_BYTES = 40

Host = Annotated[str, msgspec.Meta(max_length=HOST_CHARS_MAX)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class Introduction(Header, tag=8):
    """Members and where they are reached."""

    places: Annotated[list[tuple[Number, tuple[Host, Port]]], msgspec.Meta(max_length=PLACES_MAX)]


class Introductions(Layer):
    """tells newcomers of the others, where the medium does not"""

    name = "introductions"
    requires = frozenset({"datagrams"})
    provides = frozenset({"introductions"})
    headers = (Introduction,)
    selective = True

    def __init__(self) -> None:
        self._known: dict[int, Address] = {}
        self._places: dict[int, tuple[Address, float]] = {}
        self._newcomers: list[int] = []

    def up(self, frame: Frame) -> None:
        header = frame.headers[-1] if frame.headers else None
        if type(header) is Introduction:
            self._learn(header)
        else:
            self.pass_up(frame)

    def settle(self) -> None:
        """Newcomers are introduced here, after their hellos were handled, so that the addressee knows the
        introducer."""
        self.unsettled = False
        newcomers, self._newcomers = self._newcomers, []
        room = max((self.ports.engine.path_bytes - FRAME_OVERHEAD_BYTES) // PLACE_BYTES, 1)
        for newcomer in newcomers:
            others = [(member, address) for member, address in self._known.items() if member != newcomer]
            for at in range(0, min(len(others), PLACES_MAX), room):
                some = Introduction(others[at : at + room])
                self.pass_down(Frame(sender=self.node.me, to=newcomer, headers=[some]))

    def event_down(self, event: Event) -> None:
        if isinstance(event, Addresses):
            if not getattr(self.ports.engine, "broadcasts", True):
                self._newcomers += [member for member in event.addresses if member not in self._known]
                self.unsettled = True
            self._known = dict(event.addresses)
            for member in self._known:
                self._places.pop(member, None)
            self._tell()
        elif isinstance(event, Visitor):
            if not getattr(self.ports.engine, "broadcasts", True):
                self._newcomers.append(event.member)
                self.unsettled = True
        else:
            self.tell_down(event)

    def _learn(self, introduction: Introduction) -> None:
        now = self.ports.clock.now()
        self._places = {m: (place, at) for m, (place, at) in self._places.items() if now - at < FORGET_S}
        new = False
        for member, place in introduction.places:
            if member != self.node.me and member not in self._known and len(self._places) < PLACES_MAX:
                new = new or member not in self._places
                self._places[member] = (place, now)
        if new:
            self._tell()
            self.tell_up(Introduced())

    def _tell(self) -> None:
        introduced = {member: place for member, (place, _) in self._places.items()}
        self.tell_down(Addresses({**introduced, **self._known}))

    def validate(self) -> None:
        assert len(self._places) <= PLACES_MAX
        assert not self._places.keys() & self._known.keys()
