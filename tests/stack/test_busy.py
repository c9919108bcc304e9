"""Streams that are in use share the buffer; those that rest or hardly move have no part in it."""

from pluribus.stack.busy import IDLE_S, NOTABLE_PART, Busy

BUFFER = 64_000
MUCH = BUFFER // NOTABLE_PART


def test_streams_that_moved_lately_are_counted_once():
    busy = Busy()
    assert busy.share({}, BUFFER, 0.0) == BUFFER
    assert busy.share({"a": MUCH, "b": MUCH}, BUFFER, 0.1) == BUFFER // 2
    assert busy.share({"a": 2 * MUCH}, BUFFER, 0.2) == BUFFER // 2


def test_a_stream_that_rests_is_not_counted():
    busy = Busy()
    busy.share({"a": MUCH, "b": MUCH, "c": MUCH}, BUFFER, 0.0)
    busy.share({"a": 2 * MUCH}, BUFFER, IDLE_S)
    assert busy.share({"a": 3 * MUCH}, BUFFER, 2 * IDLE_S + 0.1) == BUFFER


def test_a_word_now_and_then_makes_no_stream_busy():
    busy = Busy()
    words = dict.fromkeys("bcdefgh", MUCH - 1)
    assert busy.share(words, BUFFER, 0.0) == BUFFER
    assert busy.share({"a": MUCH, **words}, BUFFER, 0.1) == BUFFER
    for turn in range(1, 10):  # little more than nothing a second, for ever
        spoken = dict.fromkeys(words, MUCH - 1 + turn)
        assert busy.share({"a": (turn + 1) * MUCH, **spoken}, BUFFER, turn * (IDLE_S + 0.1)) == BUFFER


def test_one_that_was_silent_for_long_and_brought_much_before_is_counted():
    busy = Busy()
    busy.share({"a": MUCH}, BUFFER, 0.0)
    busy.share({}, BUFFER, 5 * IDLE_S)
    busy.share({"b": MUCH}, BUFFER, 10 * IDLE_S)
    assert busy.share({"a": MUCH + 1}, BUFFER, 10 * IDLE_S) == BUFFER // 2
