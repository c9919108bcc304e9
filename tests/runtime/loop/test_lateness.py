"""A late loop is reported once an episode, with the stack of whoever held it, on every loop."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import pluribus
from pluribus.core.errors import BadInput
from pluribus.core.limits import LATE_S
from pluribus.runtime.loop import lateness
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


SLOW = """
import time
time.sleep({seconds})
"""


def slow_module(tmp_path, monkeypatch, name):
    (tmp_path / f"{name}.py").write_text(SLOW.format(seconds=4 * LATE_S))
    monkeypatch.syspath_prepend(tmp_path)


def test_the_librarys_own_imports_are_nobodys_fault(tmp_path, monkeypatch, caplog):
    """The watch sees a slow import from a function whose module says that it is ours."""
    slow_module(tmp_path, monkeypatch, "slow_part")
    ours = {"__name__": "pluribus.runtime.lazy"}
    exec("def use(): import slow_part", ours)

    async def work():
        async with pluribus.connect(new_bus()):
            watch = lateness._watches[asyncio.get_running_loop()]
            ours["use"]()
            assert watch.episodes == 0

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    assert "late" not in caplog.text


def test_a_part_that_another_task_is_still_loading_is_waited_for(tmp_path, monkeypatch):
    slow_module(tmp_path, monkeypatch, "slow_shared_part")
    with (tmp_path / "slow_shared_part.py").open("a") as file:
        file.write("\ncomplete = True\n")

    async def used():
        await lateness.loaded("slow_shared_part")
        return sys.modules["slow_shared_part"].complete

    async def work():
        first = asyncio.create_task(used())
        await eventually(lambda: "slow_shared_part" in sys.modules)
        return [await used(), await first]

    assert asyncio.run(work()) == [True, True]


def test_an_import_of_the_application_is_told(tmp_path, monkeypatch, caplog):
    slow_module(tmp_path, monkeypatch, "slow_application")

    async def work():
        async with pluribus.connect(new_bus()):
            watch = lateness._watches[asyncio.get_running_loop()]
            import slow_application  # noqa: F401

            await eventually(lambda: watch.episodes, "the late loop was noticed")

    with caplog.at_level(logging.WARNING):
        asyncio.run(work())
    assert "slow_application" in caplog.text


PROGRAM = """
import asyncio, logging, sys
import pluribus
logging.basicConfig(format="%(message)s")

async def main():
    async with pluribus.connect("inproc://standing"):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

{run}(main())
"""


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="Processes are stopped by signals on Unix alone.")
@pytest.mark.parametrize("run", ["asyncio.run", "pluribus.run"])
def test_a_process_that_was_stopped_blames_nobody(run):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(run=run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGSTOP)
        time.sleep(2 * lateness.STOOD_STILL_S)  # it is stopped for so long: there is nothing to wait for
        process.send_signal(signal.SIGCONT)
        first = process.stderr.readline()
        _, err = process.communicate("end\n", timeout=60)
    assert re.match(r"this process stood still for \d\.\d s", first)
    assert "the loop is late" not in err


def test_the_environment_sets_what_is_late_and_silences_it(monkeypatch):
    async def watches():
        async with pluribus.connect(new_bus()):
            loop = asyncio.get_running_loop()  # the loop of pluribus.sync has a watch of its own
            return [watch._late_s for watch in lateness._watches.values() if watch._loop is loop]

    for text, found in (("", [LATE_S]), ("0.5", [0.5]), ("0", [])):
        monkeypatch.setenv(lateness.VARIABLE, text)
        assert asyncio.run(watches()) == found
    for text in ("soon", "-1", "nan"):
        monkeypatch.setenv(lateness.VARIABLE, text)
        with pytest.raises(BadInput, match="PLURIBUS_LATE_S"):
            asyncio.run(watches())


NEW = """
import asyncio
import pluribus

async def main():
    async with pluribus.connect("inproc://lazy", store=":memory:") as bus:
        await bus.publish("t", 1)
        await bus.publish("t", 1, durable=True)
        async with bus.subscribe("t", where="x > 1"):
            pass

asyncio.run(main())
"""


def test_a_program_that_does_everything_for_the_first_time_is_told_nothing():
    environment = {**os.environ, lateness.VARIABLE: "0.005"}
    done = subprocess.run(
        [sys.executable, "-c", NEW], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    assert "importlib" not in done.stderr
