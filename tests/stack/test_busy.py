"""Streams that are in use share the buffer; those that hardly move have little of it, and those that rest none."""

from pluribus.stack.busy import IDLE_S, NOTABLE_PART, Busy

BUFFER = 64_000
MUCH = BUFFER // NOTABLE_PART


def test_streams_that_moved_lately_share_the_buffer():
    busy = Busy()
    busy.moved({"a": MUCH, "b": MUCH}, BUFFER, 0.1)
    assert busy.share("a") == busy.share("b") == BUFFER // 2
    busy.moved({"a": 2 * MUCH}, BUFFER, 0.2)
    assert busy.share("a") == BUFFER // 2


def test_a_stream_that_rests_has_no_part():
    busy = Busy()
    busy.moved({"a": MUCH, "b": MUCH, "c": MUCH}, BUFFER, 0.0)
    busy.moved({"a": 2 * MUCH}, BUFFER, IDLE_S)
    busy.moved({"a": 3 * MUCH}, BUFFER, 2 * IDLE_S + 0.1)
    assert busy.share("a") == BUFFER


def test_a_word_now_and_then_takes_nothing_from_a_stream_in_use():
    busy = Busy()
    words = dict.fromkeys("bcdefgh", MUCH - 1)
    busy.moved({"a": MUCH, **words}, BUFFER, 0.1)
    assert busy.share("a") == BUFFER and busy.share("b") == BUFFER // 8
    for turn in range(1, 10):  # little more than nothing a second, for ever
        spoken = dict.fromkeys(words, MUCH - 1 + turn)
        busy.moved({"a": (turn + 1) * MUCH, **spoken}, BUFFER, turn * (IDLE_S + 0.1))
        assert busy.share("a") == BUFFER and busy.share("b") == BUFFER // 8


def test_many_that_say_little_are_kept_within_the_buffer_together():
    busy = Busy()
    for turn in range(20):
        busy.moved(dict.fromkeys(range(50), turn + 1), BUFFER, turn * 0.3)
    assert sum(busy.share(name) for name in range(50)) <= BUFFER


def test_one_that_was_silent_for_long_and_brought_much_before_is_in_use():
    busy = Busy()
    busy.moved({"a": MUCH}, BUFFER, 0.0)
    busy.moved({}, BUFFER, 5 * IDLE_S)
    busy.moved({"b": MUCH}, BUFFER, 10 * IDLE_S)
    busy.moved({"a": MUCH + 1}, BUFFER, 10 * IDLE_S)
    assert busy.share("a") == busy.share("b") == BUFFER // 2
