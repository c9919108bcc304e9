"""Queued calls on a bus: on disk until the object is there, answered when the caller is, done once."""

import asyncio
import subprocess
import sys
import uuid

import pytest

import pluribus
from pluribus.core.errors import AnswersLate, BadInput, Closed, RemoteError, Uncertain
from pluribus.runtime.styles.objects import queue as queue_of
from tests.harness import eventually, new_bus, on_a_loop
from tests.runtime.styles.objects.things import buses


class Printer:
    def __init__(self) -> None:
        self.printed: list[str] = []
        self.gate: asyncio.Event | None = None

    @pluribus.exposed
    async def print(self, text: str) -> int:
        self.printed.append(text)
        if self.gate is not None:
            await self.gate.wait()
        if text == "jam":
            raise LookupError("paper jam")
        return len(self.printed)


@on_a_loop
async def test_a_call_waits_until_its_object_is_there(tmp_path):
    async with buses() as (a, b):
        with pytest.raises(BadInput, match=r"bus\.queued_calls\.open"):
            await a.directory.shadow("printer").call("print", "x", queued=True)
        await a.queued_calls.open(tmp_path / "calls.db")
        shadow = a.directory.shadow("printer")
        calling = asyncio.ensure_future(shadow.call("print", "hello", queued=True))
        with pytest.raises(AnswersLate, match="stays in the queue as 'mine'"):
            await shadow.call("print", "second", queued=True, key="mine", timeout=0.05)
        assert [call.state for call in a.queued_calls.pending()] == ["waiting", "waiting"]
        printer = Printer()
        await b.directory.add(printer, "printer")
        assert await calling in (1, 2)
        assert await shadow.call("print", "ignored, it is queued already", queued=True, key="mine") in (1, 2)
        assert sorted(printer.printed) == ["hello", "second"] and a.queued_calls.pending() == []
        with pytest.raises(RemoteError, match="LookupError: paper jam"):
            await shadow.call("print", "jam", queued=True)
        mine = Printer()
        await a.directory.add(mine, "my printer")
        assert await a.directory.shadow("my printer").call("print", "here", queued=True) == 1
        with pytest.raises(BadInput, match="one file"):
            await a.queued_calls.open(tmp_path / "calls.db")


@on_a_loop
async def test_a_caller_that_was_away_gets_its_answer_and_nothing_is_done_twice(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, name="site") as site:
        printer = Printer()
        printer.gate = asyncio.Event()
        await site.directory.add(printer, "printer")
        async with pluribus.connect(url, name="caller") as caller:
            await caller.queued_calls.open(tmp_path / "calls.db")
            shadow = caller.directory.shadow("printer")
            calling = asyncio.ensure_future(shadow.call("print", "invoice 17", queued=True, key="invoice-17"))
            await eventually(lambda: printer.printed)
        with pytest.raises(Closed, match="stays in the queue"):
            await calling
        printer.gate.set()
        async with pluribus.connect(url, name="caller again") as caller:
            await caller.queued_calls.open(tmp_path / "calls.db")
            (call,) = caller.queued_calls.pending()
            assert call.key == "invoice-17"
            assert await caller.queued_calls.answer("invoice-17", timeout=10) == 1
            assert printer.printed == ["invoice 17"] and caller.queued_calls.pending() == []
            with pytest.raises(BadInput, match="its answer was taken"):
                await caller.queued_calls.answer(call.number)
            await eventually(lambda: not site._post.queue._inbox._answers, "the site keeps no answer any more")
        async with pluribus.connect(url, name="caller once more") as caller:  # it crashed before it used the answer
            await caller.queued_calls.open(tmp_path / "calls.db")
            shadow = caller.directory.shadow("printer")
            assert await shadow.call("print", "invoice 17", queued=True, key="invoice-17") == 1
            assert await caller.queued_calls.answer("invoice-17") == 1
            assert printer.printed == ["invoice 17"] and caller.queued_calls.pending() == []


@on_a_loop
async def test_a_site_with_a_queue_keeps_answers_over_its_own_restart(tmp_path):
    url = new_bus()
    async with pluribus.connect(url, name="caller") as caller:
        await caller.queued_calls.open(tmp_path / "caller.db")
        shadow = caller.directory.shadow("printer")
        printer = Printer()
        printer.gate = asyncio.Event()
        async with pluribus.connect(url, name="site") as site:
            await site.queued_calls.open(tmp_path / "site.db")
            await site.directory.add(printer, "printer")
            calling = asyncio.ensure_future(shadow.call("print", "once", queued=True))
            await eventually(lambda: printer.printed)
        again = Printer()
        async with pluribus.connect(url, name="site again") as site:
            await site.queued_calls.open(tmp_path / "site.db")
            await site.directory.add(again, "printer")
            with pytest.raises(Uncertain, match="ended while it did this call"):
                await calling
            assert again.printed == [], "it may have been done, so it is not done again"
            assert await shadow.call("print", "twice", queued=True) == 1


@on_a_loop
async def test_a_process_without_a_queue_that_is_gone_makes_its_calls_uncertain(tmp_path, monkeypatch):
    monkeypatch.setattr(queue_of, "GONE_S", 0.1)
    monkeypatch.setattr(queue_of, "AGAIN_S", 0.05)
    url = new_bus()
    async with pluribus.connect(url, name="caller") as caller:
        await caller.queued_calls.open(tmp_path / "caller.db")
        printer = Printer()
        printer.gate = asyncio.Event()
        async with pluribus.connect(url, name="site") as site:
            await site.directory.add(printer, "printer")
            calling = asyncio.ensure_future(caller.directory.shadow("printer").call("print", "x", queued=True))
            await eventually(lambda: printer.printed)
        other = Printer()
        async with pluribus.connect(url, name="another") as another:
            await another.directory.add(other, "printer")
            with pytest.raises(Uncertain, match="may have done it"):
                await calling
            assert other.printed == []


CALLER = """
import asyncio, sys
import pluribus

async def main(url, path):
    async with pluribus.connect(url, name="caller") as bus:
        await bus.queued_calls.open(path)
        calling = asyncio.ensure_future(bus.directory.shadow("printer").call("print", "x", queued=True, key="k"))
        while not bus.queued_calls.pending():
            await asyncio.sleep(0.01)
        print("queued", flush=True)
        print(await calling, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


@on_a_loop
async def test_a_caller_that_is_killed_finds_its_call_on_disk(tmp_path):
    url = f"multicast://queued-{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-c", CALLER, url, str(tmp_path / "calls.db")]
    first = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert await first.stdout.readline() == b"queued\n"
    first.kill()
    await first.wait()
    printer = Printer()
    async with pluribus.connect(url, name="site") as site:
        await site.directory.add(printer, "printer")
        second = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert (await second.communicate())[0] == b"queued\n1\n"
    assert printer.printed == ["x"]
