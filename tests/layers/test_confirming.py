"""Which streams somebody waits for, and what is told and asked of them."""

from pluribus.core.frame import Frame
from pluribus.core.ids import ALL
from pluribus.layers.reliable.confirming import Confirming
from pluribus.layers.reliable.outgoing import Outgoing

GROUP, ME, OTHER = 9, 1, 2
TO_ALL, TO_OTHER = (GROUP, ALL), (GROUP, OTHER)
MEMBERS = {GROUP: frozenset({ME, OTHER})}


def sent(messages: int, acknowledged: int) -> Outgoing:
    stream = Outgoing(0)
    stream.receivers(frozenset({OTHER}), 1_000)
    for number in range(messages):
        stream.kept.append(Frame(sender=ME, first=number, count=1))
        stream.next = number + 1
    stream.acknowledged(OTHER, acknowledged, 2_000)
    stream.validate()
    return stream


def test_what_everybody_has_is_told_at_once_and_forgotten():
    confirming = Confirming()
    confirming.want(TO_ALL, 3)
    assert confirming.look({TO_ALL: sent(3, 3)}, MEMBERS) == ([(TO_ALL, 3)], [])
    assert not confirming.wanted
    confirming.want(TO_ALL, 2)
    assert confirming.look({TO_ALL: sent(3, 3)}, MEMBERS) == ([(TO_ALL, 3)], [])


def test_a_stream_is_asked_about_once_as_soon_as_it_has_gone_so_far():
    confirming = Confirming()
    confirming.want(TO_ALL, 2)
    assert confirming.look({TO_ALL: sent(1, 1)}, MEMBERS) == ([(TO_ALL, 1)], [])
    assert confirming.look({TO_ALL: sent(2, 1)}, MEMBERS) == ([], [TO_ALL])
    assert confirming.look({TO_ALL: sent(2, 1)}, MEMBERS) == ([], [])
    confirming.want(TO_ALL, 3)
    assert confirming.look({TO_ALL: sent(3, 1)}, MEMBERS) == ([], [TO_ALL])
    assert confirming.look({TO_ALL: sent(3, 2)}, MEMBERS) == ([(TO_ALL, 2)], []), "somebody may have waited for that"
    assert confirming.look({TO_ALL: sent(3, 3)}, MEMBERS) == ([(TO_ALL, 3)], [])


def test_a_stream_that_is_gone_is_waited_for_no_longer():
    confirming = Confirming()
    confirming.want(TO_ALL, 3)
    confirming.want(TO_OTHER, 3)
    assert confirming.look({}, MEMBERS) == ([(TO_ALL, 3)], []), "the group was left, and settled"
    assert confirming.wanted == {TO_OTHER: 3}, "nothing has been sent to the other yet"
    assert confirming.look({}, {GROUP: frozenset({ME})}) == ([], [])
    assert not confirming.wanted
