"""``pluribus top`` on a live bus: what it prints is what its members did."""

import json
import subprocess
import sys

import pytest

from pluribus.bench.ports import free_port
from pluribus.cli import top
from pluribus.cli.app import EXIT_BAD_INPUT, run
from pluribus.cli.top import _table, members, summary
from pluribus.core.ids import MemberId
from pluribus.runtime.group.survey import SurveyAnswer

TALKER = """
import asyncio, sys, pluribus

async def main() -> None:
    url = sys.argv[1]
    async with pluribus.connect(url, name="ann", stack="views") as ann:
        async with pluribus.connect(url, name="bob", stack="views") as bob:
            group, other = await ann.group("talk"), await bob.group("talk", own=False)
            await group.wait_for(2)
            print("ready", flush=True)
            async def read(group: pluribus.Group) -> None:
                async for message in group:
                    pass
            reading = [asyncio.create_task(read(each)) for each in (group, other)]
            while True:
                await group.send(b"hello")
                await asyncio.sleep(0.005)

pluribus.run(main())
"""


@pytest.fixture
def talking():
    url = f"multicast://top-{free_port()}"
    command = [sys.executable, "-c", TALKER, url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield url
        finally:
            process.kill()


def test_one_object_tells_of_every_member(talking: str, capsys: pytest.CaptureFixture[str]):
    assert run(["top", talking, "--every", "0.2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["url"] == talking
    ann, bob = found["members"]
    assert (ann["name"], bob["name"]) == ("ann", "bob")
    for member in (ann, bob):
        assert (member["members"], member["primary"], member["suspicions"], member["drops"]) == (2, True, 0, 0)
        assert member["views"] >= 1 and member["view"] >= 1
        assert member["flush_ms"]["last"] <= member["flush_ms"]["max"]
        assert member["messages_in_s"] > 0
        assert member["layers"].keys() >= {"transport", "detector", "reliable", "membership", "total", "groups"}
        assert member["rates"]["transport"]["datagrams_in"] > 0
    assert ann["messages_out_s"] > 0 and ann["credit_bytes"] > 0
    assert bob["messages_out_s"] == 0


def test_a_table_for_people(talking: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert run(["top", talking, "--every", "0.2", "--times", "1"]) == 0
    printed = capsys.readouterr().out
    assert "ann" in printed and "bob" in printed and "flush ms" in printed


KEEPER = """
import asyncio, sys, pluribus
from pluribus.runtime.machines.machines import Machines
from pluribus.sim.machinery.jobs import Jobs

async def main() -> None:
    async with pluribus.connect(sys.argv[1], name="kay", store=sys.argv[2]) as kay:
        await kay.publish("a/b", b"kept", durable=True)
        await kay._style(Machines).open("work", Jobs, tuple, durable=False)
        orders = await kay.queue("orders")
        await orders.send_many([1, 2, 3])
        held = await orders.receive(timeout=60)
        async with kay.subscribe("a/#", durable="desk", shared=True, start="earliest", commit="manual") as events:
            await events.receive(60)
            print("ready", flush=True)
            await asyncio.sleep(600)

pluribus.run(main())
"""


def test_keepers_and_machines_are_shown(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    url = f"multicast://top-{free_port()}"
    command = [sys.executable, "-c", KEEPER, url, str(tmp_path / "kept.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            assert run(["top", url, "--every", "0.2", "--json"]) == 0
            (kay,) = json.loads(capsys.readouterr().out)["members"]
            assert kay["keeper"]["role"] == "leader" and kay["keeper"]["live_bytes"] > 0
            assert kay["keeper"]["dead_bytes"] >= 0 and kay["keeper"]["snapshot_s"] == -1
            told = {(one["machine"], one["where"]): one for one in kay["machines"]}
            assert told["topics", "machines"]["version"] == 1 and told["topics", "machines"]["turn_bytes"] > 0
            orders, desk = told["queue.orders", "machines"], told["consumers/desk", "machines"]
            assert (orders["depth"], orders["held"], orders["dead"], orders["sent"]) == (3, 1, 0, 3)
            assert orders["sent_s"] == orders["settled_s"] == 0
            assert (desk["behind"], desk["held"], desk["consumers"]) == (1, 1, 1)
            assert (told["work", "memory"]["kind"], told["work", "memory"]["group"]) == ("jobs", "work")
            assert run(["top", url, "--every", "0.2", "--times", "1"]) == 0
            printed = capsys.readouterr().out
            assert "leader" in printed and "written in its turns" in printed and "memory" in printed
            assert "settled/s" in printed and "consumer group" in printed and "desk" in printed
        finally:
            process.kill()


def test_a_name_in_brackets_is_shown(capsys: pytest.CaptureFixture[str]):
    from rich.console import Console

    told = members([SurveyAnswer(MemberId(1), "[/red]", 1.0, {})], [])
    Console(width=200).print(_table("inproc://[x]", told, 200))
    Console(width=80).print(_table("inproc://[x]", told, 80))
    printed = capsys.readouterr().out
    assert "[/red]" in printed and "inproc://[x]" in printed


def test_nobody_is_said_in_one_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLURIBUS_URL", f"multicast://nobody-{free_port()}")
    assert run(["top"]) == EXIT_BAD_INPUT
    assert "nobody answers on multicast://nobody-" in capsys.readouterr().err


def test_a_best_effort_member_has_no_view():
    layers = {"transport": {"dropped": 2}, "window": {"lost": 3, "over": 1, "room_bytes": 0, "streams_out": 0}}
    told = summary(SurveyAnswer(MemberId(1), "ann", 1.0, layers), {"window": {"messages_in": 5.0}})
    assert (told["view"], told["flush_ms"], told["credit_bytes"]) == (None, {}, None)
    assert (told["drops"], told["messages_in_s"], told["messages_out_s"]) == (6, 5.0, 0.0)


def test_every_table_has_one_line_a_row_in_80_columns(capsys: pytest.CaptureFixture[str]):
    from rich.console import Console

    machine = {"kind": "consumers", "version": 1, "where": "machines", "commands": 1_234_567, "turn_bytes": 123_456_789}
    counts = {"held": 12_345, "dead": 1_234, "consumers": 123}
    queue = {"machine": "queue.orders", "depth": 1_234_567, "sent_s": 12_345.0, "settled_s": 12_345.0}
    rows = [
        {
            "member": "<member 1>",
            "name": "exchange-vienna",
            "view": 123,
            "members": 12,
            "primary": True,
            "messages_in_s": 123_456.0,
            "messages_out_s": 12_345.0,
            "bytes_in_s": 12_345_678.0,
            "bytes_out_s": 12_345_678.0,
            "stalls": 123,
            "suspicions": 12,
            "drops": 123,
            "keeper": {
                "role": "follower",
                "rows": 123_456_789,
                "applied": 123_456_789,
                "live_bytes": 1_234_567_890,
                "dead_bytes": 123_456_789,
                "snapshot_s": 1_234.0,
                "elections": 12,
            },
            "machines": [
                {**machine, **counts, **queue},
                {**machine, **counts, "machine": "consumers/desk", "behind": 1_234_567},
            ],
        }
    ]
    tables = [_table("inproc://x", rows, 80), top._keepers(rows, 80), top._machines(rows, 80)]
    for table, lines in zip([*tables, top._queues(rows), top._groups(rows)], (4, 3, 4, 3, 3), strict=True):
        Console(width=80).print(table)
        printed = capsys.readouterr().out.splitlines()
        assert len(printed) == lines and "…" not in "".join(printed), printed
