"""A checker that finds nothing proves nothing: each catches the history that breaks its promise, and passes the same
history mended."""

import pytest

from pluribus.core.errors import Violation
from pluribus.sim.checkers.delivery import fifo, integrity, reached
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.scenarios.disk import LOG, appended, durable

A, B, C = 11, 22, 33


def history(*happenings) -> History:
    made = History()
    for at, happening in enumerate(happenings):
        made.add(Happening(float(at), *happening))
    return made


def sent(member, number, body=b"body", group="g"):
    return (member, "send", group, (member, number), body)


def got(member, sender, number, body=b"body", group="g"):
    return (member, "deliver", group, (sender, number), body)


def settled(*members):
    return (0, "settled", "", (0, 0), b"", members)


GOOD = (
    sent(A, 0),
    got(A, A, 0),
    got(B, A, 0),
    sent(A, 1),
    got(B, A, 1),
    settled(A, B),
    sent(B, 0),
    got(A, B, 0),
    got(B, B, 0),
)


def test_a_good_history_passes_and_is_counted():
    good = history(*GOOD)
    assert integrity(good) == fifo(good) == 5
    assert reached(good) == 2
    assert len(good) == len(GOOD)


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ((got(B, A, 0),), "which nobody sent"),
        ((sent(A, 0), got(B, A, 1)), "which nobody sent"),
        ((sent(A, 0), got(B, C, 0)), "which nobody sent"),
        ((sent(A, 0, group="h"), got(B, A, 0, group="g")), "which nobody sent"),
        ((sent(A, 0, b"one"), got(B, A, 0, b"two")), "with another body"),
        ((sent(A, 0), got(B, A, 0), got(B, A, 0)), "a second time"),
    ],
)
def test_integrity_finds_what_was_invented_changed_or_repeated(bad, sentence):
    with pytest.raises(Violation, match=sentence):
        integrity(history(*bad))


def test_integrity_lets_two_members_deliver_the_same():
    assert integrity(history(sent(A, 0), got(A, A, 0), got(B, A, 0))) == 2


def test_fifo_finds_a_reversal():
    with pytest.raises(Violation, match="after 1 of the same sender"):
        fifo(history(got(B, A, 0), got(B, A, 1), got(B, C, 0), got(B, A, 0)))


def test_fifo_allows_gaps_and_any_mixture_of_senders_members_and_groups():
    mixture = [got(B, A, 5), got(B, A, 9), got(B, C, 3), got(C, A, 1), got(B, A, 1, group="h")]
    assert fifo(history(*mixture)) == 5


@pytest.mark.parametrize("missing", [8, 7])
def test_reached_finds_a_member_that_missed_a_message_sent_in_the_calm(missing):
    bad = [happening for at, happening in enumerate(GOOD) if at != missing]
    with pytest.raises(Violation, match=r"never delivered .* after all faults"):
        reached(history(*bad))


def test_reached_asks_nothing_of_messages_before_the_calm_or_of_members_that_are_gone():
    assert reached(history(sent(A, 0), settled(A))) == 0
    assert reached(history(sent(A, 0))) == 0
    assert reached(history(settled(A), sent(B, 0), got(A, B, 0))) == 1


def append(place, row, host=0):
    return (host, "append", LOG, (host, place), row)


def acknowledged(place, row, host=0):
    return (host, "acknowledged", LOG, (host, place), row)


def read(place, row, host=0):
    return (host, "read", LOG, (host, place), row)


@pytest.mark.parametrize(
    ("rest", "sentence"),
    [((), "is gone"), ((read(0, b"b"),), "reads b'b', acknowledged was b'a'"), ((read(0, b"a", 1),), "is gone")],
)
def test_durable_finds_what_was_lost_or_changed(rest, sentence):
    with pytest.raises(Violation, match=sentence):
        durable(history(append(0, b"a"), acknowledged(0, b"a"), *rest))


def test_durable_accepts_damage_that_is_known():
    assert durable(history(acknowledged(0, b"a"), read(0, b"?"), acknowledged(1, b"b"), read(1, b"b"))) == 2


def test_appended_finds_what_was_never_written_there():
    good = [append(0, b"a"), append(1, b"b"), append(1, b"c"), read(0, b"a"), read(1, b"c"), read(2, b"?")]
    assert appended(history(*good)) == 3
    for wrong in (read(0, b"b"), read(0, b"a", 1), read(3, b"a")):
        with pytest.raises(Violation, match="never appended there"):
            appended(history(*good, wrong))
