"""Streams that are in use share the buffer; the idle ones have no part in it."""

from pluribus.stack.busy import IDLE_S, Busy


def test_streams_that_moved_lately_are_counted_once():
    busy = Busy()
    assert busy.count([], 0.0) == 1
    assert busy.count(["a", "b"], 0.1) == 2
    assert busy.count(["a"], 0.2) == 2


def test_a_stream_that_rests_is_not_counted():
    busy = Busy()
    busy.count(["a", "b", "c"], 0.0)
    busy.count(["a"], IDLE_S)
    assert busy.count(["a"], 2 * IDLE_S + 0.1) == 1
