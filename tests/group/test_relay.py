"""Senders from outside and the members that forward for them: what each says to the other."""

from typing import Any

from pluribus.core.errors import PluribusError, Uncertain
from pluribus.core.frame import Frame, Header, Relayed, Standing
from pluribus.core.ids import MemberId
from pluribus.group.relay.member import Relay, Told
from pluribus.group.relay.outside import Outside
from pluribus.group.relay.words import Forward, Settled
from pluribus.stack.events import Members
from pluribus.wire.bodies import BYTES

ME, OTHER, SENDER, STAMP = 1, 2, 9, 5


class Forwarding:
    """A relay in a view of two, where both have said how far they are."""

    def __init__(self) -> None:
        self.sent: list[Header] = []
        self.said: list[Any] = []
        self.confirmed: list[Told] = []
        """To be told that everybody has what was sent."""
        self.relay = Relay(
            ME,
            ready=lambda: True,
            room=lambda: True,
            send=self._send,
            confirm=lambda number, told: self.confirmed.append(told),
            say=lambda to, word: self.said.append(word),
            release=lambda frame: None,
            consumed=lambda frame: None,
        )
        self.relay.view_changed(STAMP, (ME, OTHER), (ME, OTHER, SENDER))
        self.relay.pump()
        for member in (ME, OTHER):
            assert self.relay.arrived(Frame(sender=member, group=3, count=1, headers=[Standing([])]))

    def _send(self, header: Header, kind: Any, bodies: list[bytes], size: int) -> int:
        self.sent.append(header)
        return len(self.sent)


def test_a_relay_goes_on_where_another_one_settled():
    at = Forwarding()
    at.relay.asked(SENDER, Forward(STAMP, 0, 8, BYTES, [b"x"], 8))
    assert at.said[-1] == Settled(STAMP, 0, 9), "it has not read itself what is before"
    assert len(at.sent) == 2, "its standing, and the message"
    at.relay.validate()


def test_a_relay_does_not_take_what_is_behind_a_gap():
    at = Forwarding()
    at.relay.asked(SENDER, Forward(STAMP, 0, 8, BYTES, [b"x"]))
    assert at.said[-1] == Settled(STAMP, 0, 0) and len(at.sent) == 1


def test_a_relay_that_is_cut_off_does_not_say_that_everybody_has_what_it_sent():
    at = Forwarding()
    for number in (0, 1):
        at.relay.asked(SENDER, Forward(STAMP, 0, number, BYTES, [b"x"]))
        assert at.relay.arrived(Frame(sender=ME, group=3, count=1, headers=[Relayed(SENDER, number, 0)]))
    everybody, those_that_are_left = at.confirmed
    everybody(True)
    assert at.said[-1] == Settled(STAMP, 1, 2)
    at.relay.cut_off()
    those_that_are_left(True)
    at.relay.asked(SENDER, Forward(STAMP, 0, 2, BYTES, [b"x"]))
    assert at.said[-1] == Settled(STAMP, 1, 2) and len(at.confirmed) == 2, "it is not answered, nor forwarded for"
    assert at.relay.arrived(Frame(sender=OTHER, group=3, count=1, headers=[Relayed(SENDER, 1, 0)]))
    assert at.relay.duplicates == 1, "what comes out of limbo is counted as before"
    at.relay.validate()


class Sending:
    """A sender that has said one message of two."""

    def __init__(self) -> None:
        self.lost: list[tuple[int, int, PluribusError]] = []
        self.outside = Outside(
            "news", MemberId(SENDER), say=lambda to, word: None, after=lambda delay_s, call: Timer(), now=lambda: 0.0
        )
        self.outside.on_lost = lambda first, end, error: self.lost.append((first, end, error))
        self.see(STAMP)
        self.outside.add(BYTES, b"said")
        self.outside.pump()
        self.outside.add(BYTES, b"not said")

    def see(self, stamp: int) -> None:
        self.outside.shown(Members(3, (ME, OTHER), {}, promises="fifo open", stamp=stamp))


class Timer:
    def cancel(self) -> None: ...


def test_what_was_under_way_while_the_bus_was_apart_is_uncertain_in_the_end():
    at = Sending()
    at.outside.apart()
    at.see(STAMP + 1)
    assert at.lost == [] and at.outside.pending == 2, "it is said on"
    at.outside.heard(ME, Settled(STAMP + 1, 2, 2))
    ((first, end, error),) = at.lost
    assert (first, end, at.outside.pending) == (0, 1, 0) and isinstance(error, Uncertain)
    at.outside.validate()


def test_a_change_of_members_leaves_no_doubt():
    at = Sending()
    at.see(STAMP + 1)
    at.outside.heard(ME, Settled(STAMP + 1, 2, 2))
    assert at.lost == [] and at.outside.pending == 0
