"""Real time as a port."""

import asyncio
import time

import pytest

from pluribus.runtime.loop.clock import LoopClock, counts_sleep


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="This system has no clock that counts sleep.")
def test_elapsed_time_counts_sleep():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    elapsed = counts_sleep()()
    assert before <= elapsed <= time.clock_gettime(time.CLOCK_BOOTTIME)


def test_where_no_clock_counts_sleep_there_is_one_that_does_not(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    assert counts_sleep() is time.monotonic


def test_a_loop_has_both():
    loop = asyncio.new_event_loop()
    try:
        clock = LoopClock(loop)
        now, elapsed = clock.now(), clock.elapsed()
        assert clock.now() >= now and clock.elapsed() >= elapsed
    finally:
        loop.close()
