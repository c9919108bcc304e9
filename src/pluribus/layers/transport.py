"""Transport: the bottom of every stack; frames become datagrams, datagrams become frames.

Promises: what the engine delivers and the codec accepts goes up, in lists as it came; everything else is counted,
logged once a peer, and dropped. No frame, whatever is in it, raises into the loop: a layer above that fails on one is
reported as ``faulty`` and the node goes on.

A frame that is longer than the path is offered to the layers above, one of which may know how to cut it; if none does,
the engine gets it as it is and does what it can.

*Refused* is the one header of this layer: a stack that cannot accept a process's frames tells it so, in clear and at a
bounded rate, with a reason from a fixed list. The only effect is a line in the log.

A member is reached at the address from which its frames come, until presence or membership names another. Strangers
have a table of their own, so that a flood of them cannot push members out.
"""

from __future__ import annotations

import logging
from typing import Any

from ..core.errors import MalformedFrame
from ..core.frame import Frame, Refused
from ..core.ids import ALL, MemberId
from ..core.limits import LOGGED_PEERS_MAX, REFUSALS_PER_S_MAX, STRANGERS_MAX
from ..core.ports import Address, Datagram
from ..stack.events import Addresses, Event, Hurry, Refuse, TooLong
from ..stack.layer import Layer

log = logging.getLogger(__name__)

UNLIMITED_BYTES = 1 << 62
REASONS = {1: "it has another bus secret, or only one of you has one: give both the same with connect(..., secret=)"}
"""The reasons of a refusal. On the wire a reason is a code, so that nobody can write into a log from outside."""


class Transport(Layer):
    """datagrams to and from the engine"""

    name = "transport"
    provides = frozenset({"datagrams"})
    headers = (Refused,)
    __slots__ = ("_addresses", "_long_bytes", "_to_all")  # what is asked a frame

    def __init__(self) -> None:
        self._long_bytes = UNLIMITED_BYTES
        self._to_all: list[bytes] = []
        self._to_one: dict[int, list[bytes]] = {}
        self._addresses: dict[int, Address] = {}
        self._strangers: dict[int, Address] = {}
        self._logged: set[object] = set()
        self._refused: set[int] = set()
        self._refused_since = 0.0
        self.malformed = 0
        self.too_long = 0
        self.refused_by = 0
        self.faulty = 0
        self.unknown_destination = 0

    def start(self) -> None:
        self._long_bytes = self.ports.engine.long_bytes

    def down(self, frame: Frame) -> None:
        datagram = self.node.codec.encode(frame)
        self.unsettled = True
        if len(datagram) > self._long_bytes:
            self._cut(frame.to, datagram)
        elif frame.to == ALL:
            self._to_all.append(datagram)
        else:
            self._to_one.setdefault(frame.to, []).append(datagram)

    def _cut(self, to: int, datagram: bytes) -> None:
        self.too_long += 1
        frames: list[Frame] = []
        self.tell_up(TooLong(to, datagram, frames))
        datagrams = [self.node.codec.encode(frame) for frame in frames] or [datagram]
        if to == ALL:
            self._to_all += datagrams
        else:
            self._to_one.setdefault(to, []).extend(datagrams)

    def settle(self) -> None:
        self.unsettled = False
        engine = self.ports.engine
        if self._to_all:
            waiting, self._to_all = self._to_all, []
            engine.send_all(waiting)
        if self._to_one:
            one_by_one, self._to_one = self._to_one, {}
            for member, datagrams in one_by_one.items():
                address = self._addresses.get(member) or self._strangers.get(member)
                if address is None:
                    self.unknown_destination += len(datagrams)
                else:
                    engine.send(datagrams, address)

    def receive(self, datagrams: list[Datagram]) -> None:
        """The engine's call-back, inside a stimulus."""
        for data, source in datagrams:
            self.take(data, source)

    def take(self, data: bytes, source: Address) -> None:
        try:
            frame = self.node.codec.decode(data)
        except MalformedFrame as error:
            self.malformed += 1
            self._log_once(source, "a malformed datagram", error)
        else:
            self.accept(frame, source)

    def accept(self, frame: Frame, source: Address) -> None:
        """A frame that was decoded."""
        sender, me, strangers = frame.sender, self.node.me, self._strangers
        if sender == me or (frame.to != ALL and frame.to != me):
            return
        if sender not in self._addresses and strangers.get(sender) != source:
            if sender not in strangers and len(strangers) >= STRANGERS_MAX:
                del strangers[next(iter(strangers))]
            strangers[sender] = source  # the latest: one forged datagram does not keep a member out for good
        if frame.headers and type(frame.headers[-1]) is Refused:
            self._was_refused(sender, frame.headers[-1].reason)
            return
        try:
            self.pass_up(frame)
        except Exception as error:  # noqa: BLE001 - a node never dies of a frame; the counter and the log say that one tried
            self.failed(source, error)

    def failed(self, source: Address, error: Exception) -> None:
        """A layer above could not handle a frame."""
        self.faulty += 1
        self._log_once((source, "faulty"), "a frame that a layer could not handle", error, trace=True)

    def event_down(self, event: Event) -> None:
        if isinstance(event, Addresses):
            self._addresses = dict(event.addresses)
            for member in self._addresses.keys() & self._strangers.keys():
                del self._strangers[member]
            self.ports.engine.set_peers(list(event.addresses.values()))
        elif isinstance(event, Refuse):
            self._refuse(event.member, event.reason)
        elif isinstance(event, Hurry):
            self.settle()

    def _refuse(self, member: int, reason: int) -> None:
        now = self.ports.clock.now()
        if now - self._refused_since >= 1:
            self._refused.clear()
            self._refused_since = now
        if member not in self._refused and len(self._refused) < REFUSALS_PER_S_MAX:
            self._refused.add(member)
            self.down(Frame(sender=self.node.me, to=member, headers=[Refused(reason)]))

    def _was_refused(self, member: int, reason: int) -> None:
        self.refused_by += 1
        if (member, reason) not in self._logged and len(self._logged) < LOGGED_PEERS_MAX:
            self._logged.add((member, reason))
            sentence = REASONS.get(reason, f"reason {reason}, which this release does not know")
            log.warning("%s was refused by %s: %s", MemberId(self.node.me), MemberId(member), sentence)

    def stats(self) -> dict[str, Any]:
        return {
            "malformed": self.malformed,
            "faulty": self.faulty,
            "unknown_destination": self.unknown_destination,
            "too_long": self.too_long,
            "refused_by": self.refused_by,
            **{name: getattr(self.ports.engine.stats, name) for name in self.ports.engine.stats.__struct_fields__},
        }

    def validate(self) -> None:
        assert len(self._strangers) <= STRANGERS_MAX
        assert len(self._logged) <= LOGGED_PEERS_MAX
        assert not self._to_all and not self._to_one, "a settled transport holds nothing back"

    def _log_once(self, peer: object, what: str, error: Exception, *, trace: bool = False) -> None:
        if peer in self._logged or len(self._logged) >= LOGGED_PEERS_MAX:
            return
        self._logged.add(peer)
        me = MemberId(self.node.me)
        log.warning(
            "%s dropped %s from %s: %s (said once a peer)", me, what, peer, error, exc_info=error if trace else None
        )
