"""Groups change thousands of times while the view of the bus stays the same: what was is forgotten."""

import pytest

from pluribus.core.frame import Frame
from pluribus.core.ids import ALL
from pluribus.core.tree import median
from pluribus.layers.spread import Spread, gossip, handing
from pluribus.layers.spread.lists import ENDED_GROUPS_MAX, OLDER_LISTS_MAX, Listed
from pluribus.layers.spread.words import Down, Rumour
from pluribus.stack.events import Install, Regroup
from tests.layers.alone import GROUP, Alone

ME, OTHER, THIRD = 1, 2, 3
MEMBERS = (OTHER, ME, THIRD)
CHANGES = 100


def member(way: str) -> Alone:
    alone = Alone(Spread(way), ME)
    alone.layer.event_down(Install(1, MEMBERS, {}, {}))
    return alone


def arrives(alone: Alone, group: int, stamp: int, way: str) -> None:
    along = Listed(group, stamp, MEMBERS).identity
    down = Down(along, 0, stamp, 0, OTHER, 0, 2, 0, median(1), 0, 0, [])
    word = Rumour(along, 0, stamp, 0, False) if way == "gossip" else down
    alone.layer.up(Frame(sender=OTHER, to=ME, group=group, count=1, headers=[word]))


@pytest.mark.parametrize("way", ["tree", "gossip"])
def test_messages_arrive_however_often_the_group_has_changed(way: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(handing, "STREAMS_MAX", 20)
    monkeypatch.setattr(gossip, "STREAMS_MAX", 20)
    alone = member(way)
    for stamp in range(2, CHANGES + 2):
        alone.layer.event_down(Regroup(GROUP, MEMBERS, {}, stamp))
        arrives(alone, GROUP, stamp, way)
        alone.layer.down(Frame(sender=ME, to=ALL, group=GROUP, count=1))
    assert len(alone.up) == CHANGES
    for table in (
        alone.layer._tree._streams,
        alone.layer._tree._own,
        alone.layer._gossip._tales,
        alone.layer._gossip._own,
    ):
        assert len(table) <= 2 * (1 + OLDER_LISTS_MAX)
    alone.layer.validate()


@pytest.mark.parametrize("way", ["tree", "gossip"])
def test_groups_that_ended_are_forgotten(way: str):
    alone = member(way)
    for group in range(10, 10 + 3 * ENDED_GROUPS_MAX):
        alone.layer.event_down(Regroup(group, MEMBERS, {}, group))
        arrives(alone, group, group, way)
        alone.layer.event_down(Regroup(group, (), {}, group + 1))
    assert len(alone.up) == 3 * ENDED_GROUPS_MAX
    assert len(alone.layer._lists._known) <= ENDED_GROUPS_MAX + 1
    assert len(alone.layer._tree._streams) + len(alone.layer._gossip._tales) <= ENDED_GROUPS_MAX
    alone.layer.validate()


def test_what_is_under_way_along_the_lists_before_goes_on():
    alone = member("tree")
    for stamp in range(2, 2 + OLDER_LISTS_MAX):
        alone.layer.event_down(Regroup(GROUP, MEMBERS, {}, stamp))
    alone.layer.event_down(Regroup(GROUP, (), {}, 99))
    arrives(alone, GROUP, 2, "tree")
    assert len(alone.up) == 1
