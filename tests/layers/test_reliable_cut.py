"""What belongs to a view is passed up in it, whatever waits and however late it was said."""

import pytest

from pluribus.core.frame import Frame
from pluribus.core.ids import ALL
from pluribus.layers.reliable import Reliable, streams
from pluribus.layers.reliable.headers import Data
from pluribus.stack.events import CollectDigest, Freeze, Install, Reach, Reached
from tests.layers.alone import GROUP, Alone

ME, OTHER, STAMP = 1, 2, 5
AHEAD = 4


def test_what_is_due_is_taken_although_no_more_may_wait_ahead(monkeypatch: pytest.MonkeyPatch):
    """The first frame is lost and so many came after it that no more are kept; then the view changes. Without the first
    the cut is out of reach, and with it the next view, for everybody and for ever."""
    monkeypatch.setattr(streams, "AHEAD_MAX", AHEAD)
    alone = Alone(Reliable(), ME)
    alone.layer.event_down(Install(STAMP, (ME, OTHER), {GROUP: (ME, OTHER)}, {}))

    def arrives(number: int) -> None:
        data = Data(number * 1_000, 0, STAMP)
        alone.layer.up(Frame(sender=OTHER, to=ALL, group=GROUP, first=number, count=1, headers=[data]))

    for number in range(1, AHEAD + 3):
        arrives(number)
    alone.layer.event_down(Freeze())
    alone.layer.event_down(Reach({(OTHER, GROUP): AHEAD + 3}, {(OTHER, GROUP): OTHER}))
    for number in (0, AHEAD + 1, AHEAD + 2):  # as they are asked for
        arrives(number)
    assert [frame.first for frame in alone.up] == list(range(AHEAD + 3))
    assert any(isinstance(event, Reached) for event in alone.told_up)


def test_what_a_member_said_just_before_the_view_ends_it_hears_in_that_view():
    """A relay sends in the middle of what it receives, and the proposal of the next view may be in the same list of
    datagrams. The others have what was sent, by the cut; so must it."""
    alone, waiting = Alone(Reliable(), ME), []
    alone.layer.stimulus = waiting.append  # after what is going on
    alone.layer.event_down(Install(STAMP, (ME, OTHER), {GROUP: (ME, OTHER)}, {(ME, GROUP): 0}))
    alone.layer.down(Frame(sender=ME, to=ALL, group=GROUP, first=0, count=1))
    alone.layer.event_down(Freeze())
    digest: dict[tuple[int, int], int] = {}
    alone.layer.event_down(CollectDigest(digest, {}))
    assert digest[(ME, GROUP)] == 1
    alone.layer.event_down(Reach(digest, dict.fromkeys(digest, ME)))
    assert any(isinstance(event, Reached) for event in alone.told_up)
    assert [(frame.sender, frame.first) for frame in alone.up] == [(ME, 0)]
    for later in waiting:
        later()
    assert len(alone.up) == 1, "and once"
