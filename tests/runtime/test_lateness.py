"""A late loop is reported once an episode, with the stack of whoever held it, on every loop."""

import asyncio
import logging
import threading
import time

import pytest

import pluribus
from pluribus.core.limits import LATE_S
from pluribus.runtime import lateness
from tests.harness import eventually, new_bus, on_a_loop


async def hold_the_loop_up() -> None:
    time.sleep(4 * LATE_S)  # noqa: ASYNC251 - the culprit


async def culprit(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with pluribus.connect(new_bus()):
            watch = lateness._watches[asyncio.get_running_loop()]
            await hold_the_loop_up()
            await eventually(lambda: watch.episodes, "the late loop was noticed")
    (record,) = [record for record in caplog.records if "the loop is late by" in record.message]
    assert "hold_the_loop_up" in record.message
    assert "time.sleep" in record.message


def test_a_late_loop_is_reported_with_the_stack_of_the_culprit(caplog: pytest.LogCaptureFixture):
    asyncio.run(culprit(caplog))


def test_so_it_is_on_uvloop(caplog: pytest.LogCaptureFixture):
    pytest.importorskip("uvloop")
    pluribus.run(culprit(caplog))


@on_a_loop
async def test_one_watch_serves_all_members_of_a_loop_and_ends_with_the_last():
    loop = asyncio.get_running_loop()
    url = new_bus()
    async with pluribus.connect(url):
        watch = lateness._watches[loop]
        async with pluribus.connect(url):
            assert lateness._watches[loop] is watch
            assert sum(thread.name == "pluribus-loop-watch" for thread in threading.enumerate()) >= 1
        assert loop in lateness._watches
    assert loop not in lateness._watches
    await eventually(lambda: not watch._thread.is_alive(), "the watching thread ended")


@on_a_loop
async def test_a_loop_that_is_only_busy_is_not_late(caplog: pytest.LogCaptureFixture):
    async with pluribus.connect(new_bus()):
        watch = lateness._watches[asyncio.get_running_loop()]
        began = time.monotonic()
        while time.monotonic() - began < 3 * LATE_S:  # noqa: ASYNC110 - it is busy, not waiting
            await asyncio.sleep(0)
        assert watch.episodes == 0
