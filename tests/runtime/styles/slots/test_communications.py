"""Buses that are there, programs that messages start, the synchronous face, and the examples."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pluribus
from pluribus.core.errors import BadInput, NoMembers, Refused, RemoteError
from pluribus.runtime.styles.slots.buses import SILENT_S
from pluribus.slots.check import plan_of
from pluribus.slots.dump import line_of
from pluribus.slots.keys import verifier
from pluribus.slots.plan import Connection, End
from pluribus.slots.words import WORDS, RouteAdded, RouteDeleted, SendData, SlotChanged, report_name
from tests.harness import eventually, new_bus, on_a_loop

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
SMALL = "bus town slot bell required { out rings } slot ears { in in } bell.rings -> ears.in"


@pytest.mark.parametrize("by", ["router", "replica"])
@on_a_loop
async def test_buses_are_listed_shown_and_forgotten(by):
    url = new_bus()
    async with pluribus.connect(url, name="one") as one, pluribus.connect(url, name="two") as two:
        manager = await two.communications()
        assert await manager.buses(listen_s=0.1) == []
        host = await one.slots(plan_of(SMALL), by=by)
        (advert,) = await manager.buses()
        assert (advert.bus, advert.by, advert.waiting, advert.slots) == ("town", by, True, 2)
        bell = await two.enroll("bell", name="the old one")
        shown = await manager.show("town")
        assert [seat.name for seat in shown.occupants("bell")] == ["the old one"] and shown.running
        assert shown.router == ("one" if by == "router" else "")
        with pytest.raises(NoMembers, match="did not answer"):
            await manager.show("village", timeout=0.3)
        with pytest.raises(BadInput, match="has no program"):
            await manager.start("town", "bell")
        await bell.move()
        if by == "router":
            await host.close(cancel=True)
            await eventually(lambda: not manager._directory.here(), "it was cancelled")


@pytest.mark.parametrize("by", ["router", "replica"])
@on_a_loop
async def test_who_is_in_a_shadow_slot_watches_the_bus(by):
    url = new_bus()
    plan = SMALL.replace("slot ears", "slot eye shadow {} slot ears")
    async with pluribus.connect(url, name="one") as one, pluribus.connect(url, name="two") as two:
        await one.slots(plan_of(plan), by=by)
        eye = await two.enroll("eye")
        seen = []

        async def watch():
            async for change in eye.changes():
                seen.append(change)

        watching = asyncio.create_task(watch())
        ears = await one.enroll("ears")
        await eye.del_route("bell.rings", "ears.in")
        await eye.add_route("bell.rings", "ears.in")
        await eventually(lambda: len(seen) >= 3)
        assert [type(change) for change in seen if getattr(change, "slot", "") != "eye"] == [
            SlotChanged,
            RouteDeleted,
            RouteAdded,
        ]
        assert next(change.live for change in seen if getattr(change, "slot", "") == "ears") == (ears.ticket,)
        await eye.drop_out()
        await asyncio.wait_for(watching, 10)


@on_a_loop
async def test_a_silent_bus_is_forgotten(monkeypatch):
    url = new_bus()
    async with pluribus.connect(url, name="one") as one, pluribus.connect(url, name="two") as two:
        manager = await two.communications()
        await one.slots(plan_of(SMALL))
        assert await manager.buses()
        one.abandon()
        await eventually(lambda: not manager._directory.here(), "it was silent", SILENT_S + 5)


@on_a_loop
async def test_who_may_see_and_take_over():
    plan = SMALL.replace("bus town", f'bus town role mayor "{verifier("open", b"s" * 16, 5)}" see mayor')
    url = new_bus()
    async with pluribus.connect(url, name="one") as one, pluribus.connect(url, name="two") as two:
        host = await one.slots(plan_of(plan + "\nreconfigure mayor"))
        manager = await two.communications()
        for key in (None, "wrong"):
            with pytest.raises(Refused, match="is shown to mayor"):
                await manager.show("town", key=key)
        assert (await manager.show("town", key="open")).plan.slot("bell")
        state = await manager.take_over("town", key="open")
        assert host.state == "fenced"
        again = await two.slots(state)
        assert again.state == "waiting" and again.map.epoch > host.map.epoch


@on_a_loop
async def test_a_message_starts_a_program(tmp_path):
    add = f"{sys.executable} -c 'import json, sys; print(sum(json.load(sys.stdin)))'"
    plan = f"""bus tools
    slot user {{ asks add asks fail asks gone out line }}
    slot adder invoked {{ program "{add}" answers sum : data -> data }}
    slot failing invoked {{ program "{sys.executable} -c 'raise SystemExit(3)'" answers sum }}
    slot gone invoked {{ program "{tmp_path}/nothing" answers sum }}
    slot log invoked {{ program "tee -a {tmp_path}/log" in lines : text }}
    user.add -> adder.sum  user.fail -> failing.sum  user.gone -> gone.sum  user.line -> log.lines"""
    async with pluribus.connect(new_bus(), name="one") as bus:
        await bus.slots(plan_of(plan))
        user = await bus.enroll("user")
        assert await user.ask("add", [1, 2, 3], timeout=30) == 6
        with pytest.raises(RemoteError, match="ended with 3"):
            await user.ask("fail", 1, timeout=30)
        with pytest.raises(RemoteError, match="does not start"):
            await user.ask("gone", 1, timeout=30)
        for line in ("one\n", "two\n"):
            await user.send("line", line, wait="all", timeout=30)
        assert sorted((tmp_path / "log").read_text().split()) == ["one", "two"]


@on_a_loop
async def test_the_tool_of_a_slot_is_started(tmp_path):
    script = tmp_path / "tool.py"
    script.write_text(
        "import asyncio, os, pluribus\n"
        "async def main():\n"
        "    async with pluribus.connect(stack='best-effort') as bus:\n"
        "        slot = await bus.enroll(os.environ['PLURIBUS_SLOT'], on=os.environ['PLURIBUS_SLOTS'])\n"
        "        await slot.send('rings', 'from the tool', wait='all')\n"
        "asyncio.run(main())\n"
    )
    plan = SMALL.replace("out rings", f'out rings program "{sys.executable} {script}"')
    url = f"multicast://slots-tool-{os.getpid()}"
    async with pluribus.connect(url, name="one", stack="best-effort") as bus:
        await bus.slots(plan_of(plan))
        ears = await bus.enroll("ears")
        process = await (await bus.communications()).start("town", "bell")
        message = await ears.port("in").receive(timeout=30)
        assert message.body == "from the tool"
        message.acknowledge()
        assert await asyncio.wait_for(process.wait(), 30) == 0


def test_without_await():
    with pluribus.sync.connect(new_bus(), name="one") as bus:
        bus.slots(plan_of("bus s slot a { out o asks q } slot b { in in answers q } a.o -> b.in a.q -> b.q"))
        one, two = bus.enroll("a"), bus.enroll("b")
        one.send("o", {"n": 1})
        message = two.port("in").receive(timeout=5)
        assert message.body == {"n": 1}
        message.withhold()
        for again in two.port("in"):
            assert again.body == {"n": 1}
            again.acknowledge()
            break
        assert [advert.bus for advert in bus.communications().buses()] == ["s"]
        one.drop_out(), two.drop_out()
        assert one.state == "out"


def test_a_dump_has_the_names_of_the_report():
    names = {report_name(word) for word in WORDS}
    assert {
        *("ENROLL", "DROPOUT", "KEEP_ALIVE", "SEND_DATA", "REQ_ROUTE", "ADD_ROUTE", "DEL_ROUTE"),
        *("ALIVE", "TICKET", "DROPPED", "COUNT_TTL", "ACK_DATA", "ANS_ROUTE", "ACK_ROUTE", "NEG_ACK"),
        *("ROUTE_ADDED", "ROUTE_DELETED", "ADVERTISE", "CANCEL", "ACK_INFO"),
    } <= names
    line = line_of(5, 0, SendData((1, 2), 3, End("a", "o"), (1, b"\xa2hi")))
    assert "-> all SEND_DATA" in line and "source=a.o" in line and "body='hi'" in line
    assert "connection=a.o -> b.in" in line_of(5, 0, RouteAdded((1, 1), Connection(End("a", "o"), End("b", "in"))))


@pytest.mark.slow
def test_the_alarm_example():
    command = [sys.executable, EXAMPLES / "alarm_slots.py"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()
    assert said[0] == "siren: fire on floor 3" and said.count("pump: flood on floor 0") == 2


@pytest.mark.slow
def test_the_spreadsheet_example():
    command = [sys.executable, EXAMPLES / "spreadsheet_slots.py"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout.splitlines()
    assert said == ["the bus is waiting: database is not there", "{'beam': 250.0, 'strut': 400.0}"]


@pytest.mark.slow
def test_figure_2_as_processes_that_move():
    command = [sys.executable, EXAMPLES / "producer_consumers" / "run.py", "150"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["consumer1"] == 150 and found["whole"] and 30 <= found["before_the_move"] < 150
