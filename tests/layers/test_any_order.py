"""Groups whose order is made above: what is behind a gap is passed up at once, once, and by all survivors of a view."""

import pytest

from pluribus.core.frame import Ahead, Frame, Header, Parents
from pluribus.core.ids import ALL
from pluribus.layers.reliable import Reliable
from pluribus.layers.reliable.early import EARLY_FRAMES_MAX, EarlyCut, name_of
from pluribus.layers.reliable.headers import Data, Want
from pluribus.layers.window import HOLES_MAX, Sent, Window
from pluribus.stack.events import AnyOrder, CollectDigest, Freeze, Install, Members, Reach, Reached
from tests.layers.alone import GROUP, Alone

ME, SENDER, OTHER, STAMP = 1, 2, 3, 5
PLAIN = frozenset({Parents})


class Unknown(Header, tag=99):
    """Of a layer that wants its sender's order."""


def reliable(group: bool = True) -> Alone:
    alone = Alone(Reliable(), ME)
    everybody = (ME, SENDER, OTHER)
    alone.layer.event_down(Install(STAMP, everybody, {GROUP: everybody}, {}))
    if group:
        alone.layer.event_down(AnyOrder(GROUP, PLAIN))
    return alone


def data(number: int, *headers: Header) -> Frame:
    said = Data(number * 1_000, 0, STAMP)
    return Frame(sender=SENDER, to=ALL, group=GROUP, first=number, count=1, size=10, headers=[*headers, said])


def passed(alone: Alone) -> list[tuple[int, int | None]]:
    """First number, and the floor that a frame out of order came with."""
    return [
        (f.first, f.headers[-1].floor if f.headers and isinstance(f.headers[-1], Ahead) else None) for f in alone.up
    ]


def test_what_is_behind_a_gap_is_passed_at_once_and_once():
    alone = reliable()
    for number in (0, 2, 4, 2, 1, 3, 4, 5):
        alone.layer.up(data(number))
        alone.layer.validate()
    assert passed(alone) == [(0, None), (2, 1), (4, 1), (1, None), (3, None), (5, None)]
    assert alone.layer.stats()["early_passed"] == 2


def test_other_groups_and_frames_of_other_layers_keep_their_order():
    plain, alone = reliable(group=False), reliable()
    plain.layer.up(data(1))
    alone.layer.up(data(1, Unknown()))
    alone.layer.up(data(2, Parents([None])))
    assert passed(plain) == [] and [frame.first for frame in alone.up] == [2]


def test_only_so_many_frames_are_early():
    alone = reliable()
    for number in range(1, EARLY_FRAMES_MAX + 10):
        alone.layer.up(data(number))
    assert len(alone.up) == EARLY_FRAMES_MAX
    alone.layer.up(data(0))
    assert sorted(frame.first for frame in alone.up) == list(range(EARLY_FRAMES_MAX + 10))


def test_a_view_ends_with_the_same_early_frames_for_all():
    """1 and 3 are lost with their sender; one survivor has passed 2, the other 4."""
    one, other = reliable(), Alone(Reliable(), OTHER)
    other.layer.event_down(Install(STAMP, (ME, SENDER, OTHER), {GROUP: (ME, SENDER, OTHER)}, {}))
    other.layer.event_down(AnyOrder(GROUP, PLAIN))
    for alone, numbers in ((one, (0, 2)), (other, (0, 4))):
        for number in numbers:
            alone.layer.up(data(number))
    cut: dict[tuple[int, int], int] = {}
    holders: dict[tuple[int, int], int] = {}
    for alone in (one, other):
        alone.layer.event_down(Freeze())
        digest: dict[tuple[int, int], int] = {}
        alone.layer.event_down(CollectDigest(digest, {}))
        for key, upto in digest.items():
            if upto > cut.get(key, -1):
                cut[key], holders[key] = upto, alone.me
    for alone in (one, other):
        alone.layer.event_down(Reach(dict(cut), dict(holders)))
        assert not any(isinstance(event, Reached) for event in alone.told_up)
    for asker, asked, lacks in ((one, other, 4), (other, one, 2)):
        wants = [(frame.to, frame.headers[-1]) for frame in asker.down if isinstance(frame.headers[-1], Want)]
        assert wants == [(asked.me, Want(SENDER, GROUP, ALL, lacks, lacks + 1))]
        asker.layer.up(data(lacks))
        assert any(isinstance(event, Reached) for event in asker.told_up)
    assert sorted(passed(one)) == sorted(passed(other)) == [(0, None), (2, 1), (4, 1)]


def test_names_of_early_frames_are_told_from_streams():
    members = (11, 22, 1 << 62 | 5)
    upto = {(22, GROUP): 7, (name_of(1, 9), GROUP): 12, (1 << 62 | 5, GROUP): 3, (name_of(3, 0), GROUP): 1}
    cut = EarlyCut()
    streams = cut.take_from(upto, {(name_of(1, 9), GROUP): 11}, members, ALL)
    assert streams == {(22, GROUP): 7, (1 << 62 | 5, GROUP): 3, (name_of(3, 0), GROUP): 1}
    assert list(cut) == [((22, GROUP, ALL), {9: (12, 11)})] and ((22, GROUP, ALL), 9) in cut


def window() -> Alone:
    alone = Alone(Window(), ME)
    alone.layer.event_up(Members(GROUP, (ME, SENDER), {}))
    alone.layer.event_down(AnyOrder(GROUP, PLAIN))
    return alone


def sent(number: int, *headers: Header, epoch: int = 1) -> Frame:
    said = Sent(number * 1_000, epoch)
    return Frame(sender=SENDER, to=ALL, group=GROUP, first=number, count=1, size=10, headers=[*headers, said])


def test_without_repair_what_was_overtaken_is_passed_when_it_comes_and_once():
    alone = window()
    for number in (7, 10, 9, 9, 10, 6, 8, 11):
        alone.layer.up(sent(number))
        alone.layer.validate()
    assert passed(alone) == [(7, None), (10, 8), (9, None), (8, None), (11, None)]
    stats = alone.layer.stats()
    assert (stats["lost"], stats["late"], stats["overtaken"]) == (0, 3, 2)


@pytest.mark.parametrize("late", ["of another layer", "of an older epoch"])
def test_what_may_not_be_late_is_not(late: str):
    alone = window()
    alone.layer.up(sent(0, epoch=2))
    alone.layer.up(sent(2, epoch=2))
    alone.layer.up(sent(1, Unknown(), epoch=2) if late == "of another layer" else sent(1, epoch=1))
    assert [frame.first for frame in alone.up] == [0, 2]


def test_gaps_are_remembered_up_to_a_limit():
    alone = window()
    for number in range(0, 2 * HOLES_MAX + 8, 2):
        alone.layer.up(sent(number))
    for number in (1, 2 * HOLES_MAX + 5):
        alone.layer.up(sent(number))
    assert alone.up[-1].first == 2 * HOLES_MAX + 5 and alone.layer.late == 1
