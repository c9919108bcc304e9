"""A cut is reached whatever waits ahead of what is missing."""

import pytest

from pluribus.core.frame import Frame
from pluribus.core.ids import ALL
from pluribus.layers.reliable import Reliable, streams
from pluribus.layers.reliable.headers import Data
from pluribus.stack.events import Freeze, Install, Reach, Reached
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
