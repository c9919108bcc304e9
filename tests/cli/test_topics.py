"""``pluribus pub``, ``sub`` and ``topics``: several processes on one bus."""

import asyncio
import io
import json
import math
import os
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime
from itertools import count
from time import monotonic

import pytest

import pluribus
from pluribus.cli import app
from pluribus.cli.pub import _value
from pluribus.cli.sub import _rates, _show
from pluribus.cli.topics import _seen
from pluribus.core.errors import Gap
from pluribus.pubsub.event import Event
from tests.harness import on_a_loop

numbers = count()


def new_url():
    return f"multicast://cli-{os.getpid()}-{next(numbers)}"


@contextmanager
def running(*arguments):
    process = subprocess.Popen(
        [sys.executable, "-m", "pluribus", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def command(*arguments, status=0):
    """In a thread, on a loop and a bus of its own, to its end: what it printed, or complained of. An interpreter for
    each would take longer than most commands; ``running`` is for those in which the process is the point."""
    out, err = io.StringIO(), io.StringIO()

    def run():
        with redirect_stdout(out), redirect_stderr(err):
            return app.run(arguments)

    assert await asyncio.wait_for(asyncio.to_thread(run), 60) == status, err.getvalue()
    return out.getvalue() if status == 0 else err.getvalue()


@on_a_loop
async def test_what_is_published_is_printed_by_who_watches():
    url = new_url()
    async with pluribus.connect(url) as bus, bus.subscribe("a/#") as events:
        answer = json.loads(
            await command("pub", "a/b", '{"price": 7}', "plain text", "--url", url, "--header", "n=1", "--json")
        )
        assert answer == {"topic": "a/b", "published": 2, "members": 1}
        first, second = [await events.receive(10) for _ in range(2)]
        assert (first.body, first.headers, second.body) == ({"price": 7}, {"n": 1}, "plain text")
        watch = ("sub", "a/#", "--url", url, "--where", "price > 5", "--count", "2", "--json")
        with running(*watch) as watching:
            await (await bus.pubsub.base()).group.wait_for(2, 20)
            watched = asyncio.create_task(asyncio.to_thread(watching.communicate, timeout=60))
            while not watched.done():  # its subscription begins a moment after it has joined
                await bus.publish("a/c", {"price": 5})
                await bus.publish("a/c", {"price": 6}, headers={"x": "y"})
                await asyncio.wait([watched], timeout=0.05)
            lines = [json.loads(line) for line in watched.result()[0].splitlines()]
        assert [(line["topic"], line["body"], line["headers"]) for line in lines] == [
            ("a/c", {"price": 6}, {"x": "y"})
        ] * 2


@on_a_loop
async def test_topics_lists_what_is_advertised_retained_and_published():
    url = new_url()
    async with pluribus.connect(url, name="provider") as bus:
        await bus.advertise("stocks/+", dict, about="prices")
        await bus.publish("last/ibm", 1, retain=True)

        async def publish():
            while True:
                await bus.publish("live/x", b"1")
                await asyncio.sleep(0.01)

        publishing = asyncio.create_task(publish())
        found = json.loads(await command("topics", "--url", url, "--json"))
        publishing.cancel()
        rows = {row["topic"]: row for row in found["topics"]}
        assert found["members"] == 1
        assert (rows["stocks/+"]["members"], rows["stocks/+"]["type"]) == (["provider"], "dict")
        assert rows["last/ibm"]["retained"] and rows["live/x"]["events_per_s"] > 1


def test_formats(capsys):
    event = Event({"a": 1}, pluribus.MemberId(7), (7, 1), "t/u", 0.0, {"h": 2})
    for format, part in (("text", 't/u {"a": 1} h=2'), ("body", '{"a": 1}'), ("topic", "t/u"), ("json", '"id": 1')):
        _show(event, format)
        assert part in capsys.readouterr().out
    _show(Event(b"\xff", pluribus.MemberId(7), (7, 1), "t", 0.0, retained=True), "text")
    assert "t (retained) ff" in capsys.readouterr().out


@pytest.mark.parametrize("format", ["json", "body"])
def test_what_json_cannot_say_is_null_or_text(format, capsys):
    headers = {"at": datetime(2026, 1, 2, tzinfo=UTC), "key": b"x", "ratio": math.inf}
    _show(Event({"a": math.nan, "b": [1.5, -math.inf]}, pluribus.MemberId(7), (7, 1), "t/u", 0.0, headers), format)
    found = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (found if format == "body" else found["body"]) == {"a": None, "b": [1.5, None]}
    assert format == "body" or found["headers"] == {"at": "2026-01-02T00:00:00Z", "key": "eA==", "ratio": None}


class Torn:
    """Events of which some are missing, then one, then no more."""

    missed = 3

    def __init__(self):
        self.answers = [Gap("3 events are missing", 3), [Event(b"x", 7, (7, 1), "t/u", 0.0)]]

    async def receive_many(self, timeout=None):
        answer = self.answers.pop(0) if self.answers else None
        if answer is None:
            await asyncio.sleep(60 if timeout is None else timeout)
            raise TimeoutError
        if isinstance(answer, Gap):
            raise answer
        return answer


@on_a_loop
async def test_missing_events_are_counted_and_end_nothing(capsys):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1.5):
            await _rates(Torn(), json=True)
    assert json.loads(capsys.readouterr().out) == {"events_per_s": 1, "bytes_per_s": 1, "missed": 3}
    assert await _seen(Torn(), 0.1, set()) == {"t/u": 1}


def test_a_deep_text_is_published_as_text():
    assert _value("[" * 100_000) == "[" * 100_000


def test_names_in_brackets_are_shown(monkeypatch, capsys):
    row = {"topic": "a/[/b]", "members": ["[red]"], "type": "[x]", "retained": True, "events_per_s": 1.0}
    row |= {"durable": None, "subscribers": {}}

    async def look(url, pattern, seconds):
        return {"members": 1, "topics": [row]}

    monkeypatch.setattr("pluribus.cli.topics._look", look)
    assert app.run(["topics"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("a/[/b]", "[red]", "[x]"))


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["pub", "a/+", "x"], "character 3"),
        (["pub", "a", "x", "--header", "nothing"], "write NAME=VALUE"),
        (["sub", "a/#/b"], "# is followed by another level"),
        (["sub", "a", "--where", "price >"], "filter 'price >'"),
        (["sub", "a", "--format", "xml"], "choose one of them"),
        (["sub", "a", "--start", "earliest", "--rate"], "for live events"),
        (["sub", "a", "--start", "²"], "is none: use"),
        (["topics", "ls", "a//b"], "a level is empty"),
        (["topics", "show", "a/#"], "character 3"),
        (["topics", "retain", "a", "--age", "soon"], "as 5s, 5m, 5h, 5d"),
        (["topics", "retain", "a", "--size", "1X"], "as 5K, 5M, 5G, 5T"),
        (["pub", "a", "x", "--id", "1:2"], "add --durable"),
        (["pub", "a", "x", "--durable", "--id", "one"], "write SESSION:NUMBER"),
        (["pub", "a", "x", "y", "--durable", "--id", "1:1"], "publish one at a time"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments, part, capfd):
    arguments = arguments if arguments[0] == "pub" else [*arguments, "--url", "inproc://wrong"]
    assert app.run(arguments) == 2
    error = capfd.readouterr().err
    assert error.startswith("pluribus: ") and error.count("\n") == 1 and part in error


def test_lines_that_are_no_text_are_one_sentence(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"fine\n\xff\xfe\n"), encoding="utf-8"))
    assert app.run(["pub", "a", "--url", "inproc://lines"]) == 2
    assert capsys.readouterr().err.startswith("pluribus: standard input is no text")


def test_nobody_there_is_an_answer_of_no(capsys):
    assert app.run(["pub", "a", "x", "--url", "inproc://nobody", "--wait", "0.01", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["members"] == 0
    assert app.run(["sub", "a", "--url", "inproc://nobody", "--seconds", "0.05"]) == 1


def test_what_keepers_keep_is_printed_from_where_one_says(tmp_path, capsys):
    with pluribus.sync.connect("inproc://kept-for-sub", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        bus.publish_many([("alerts/x", {"n": n}) for n in range(5)], durable=True)
        host, port = bus._real.doors[0].address
        url = f"client://{host}:{port}/kept-for-sub"
        assert app.run(["sub", "alerts/#", "--url", url, "--start", "3", "--count", "2", "--format", "body"]) == 0
        assert [json.loads(line)["n"] for line in capsys.readouterr().out.splitlines()] == [3, 4]


@pytest.mark.parametrize("way", ["member", "client"])
def test_durable_topics_are_listed_shown_bounded_and_emptied(way, tmp_path, capsys):
    name = f"cli-kept-{way}"
    with pluribus.sync.connect(f"inproc://{name}", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        bus.publish_many([("stocks/ibm", {"n": n}) for n in range(5)], durable=True)
        with bus.subscribe("stocks/#", durable="desk", start="earliest", commit="manual") as events:
            for event in events:
                if event.offset == 1:
                    events.commit(event)
                    break
        host, port = bus._real.doors[0].address
        url = f"client://{host}:{port}/{name}" if way == "client" else f"inproc://{name}"

        def told(*arguments):
            assert app.run(["topics", *arguments, "--url", url, "--json"]) == 0
            return json.loads(capsys.readouterr().out)

        for listed in (told("ls", "stocks/#", "--seconds", "0.1"), told("--seconds", "0.1")):
            (row,) = [row for row in listed["topics"] if row["topic"] == "stocks/ibm"]
            assert (row["durable"]["first"], row["durable"]["end"]) == (0, 5) and row["durable"]["bytes"] > 0
            assert row["subscribers"] == {"desk": 3}
        assert app.run(["topics", "show", "stocks/ibm", "--url", url]) == 0
        shown = capsys.readouterr().out
        assert "5 events, offsets 0 up to 5" in shown and "desk is 3 events behind" in shown
        assert "keeps everything" in shown
        assert told("retain", "stocks/ibm", "--age", "7d", "--size", "10M") == {
            "topic": "stocks/ibm",
            "age_s": 604_800,
            "size_bytes": 10 << 20,
            "keys": None,
        }
        row = told("show", "stocks/ibm")["topic"]
        assert (row["durable"]["age_s"], row["durable"]["size_bytes"]) == (604_800, 10 << 20)
        assert told("retain", "stocks/ibm", "--keys", "last")["keys"] == "last"
        assert app.run(["topics", "show", "stocks/ibm", "--url", url]) == 0
        assert "keeps the last event of each key" in capsys.readouterr().out
        assert told("delete", "stocks/ibm", "--yes") == {"topic": "stocks/ibm", "removed": 5}
        row = told("show", "stocks/ibm")["topic"]
        assert (row["durable"]["first"], row["durable"]["end"], row["subscribers"]) == (5, 5, {"desk": 0})
        assert app.run(["topics", "show", "nothing", "--url", url]) == 1
        assert "nobody advertises" in capsys.readouterr().out
        for _ in range(2):
            assert app.run(["pub", "orders", "1", "--durable", "--id", "4711:1", "--url", url, "--wait", "0"]) == 0
        capsys.readouterr()
        assert told("show", "orders")["topic"]["durable"]["end"] == 1, "published twice, it is there once"


@on_a_loop
async def test_a_client_publishes_and_lists_topics_too():
    url = new_url()
    async with pluribus.connect(url, name="server", serve="127.0.0.1:0") as bus, bus.subscribe("a/#") as events:
        host, port = bus.doors[0].address
        client = f"client://{host}:{port}/{bus.url.bus}"
        answer = json.loads(await command("pub", "a/b", '{"price": 7}', "--retain", "--url", client, "--json"))
        assert answer == {"topic": "a/b", "published": 1, "members": None}
        assert (await events.receive(10)).body == {"price": 7}
        assert "1 published under a/c\n" in await command("pub", "a/c", "x", "--url", client)

        async def publish():
            while True:
                await bus.publish("live/x", b"1")
                await asyncio.sleep(0.01)

        publishing = asyncio.create_task(publish())
        found = json.loads(await command("topics", "--url", client, "--json"))
        publishing.cancel()
        rows = {row["topic"]: row for row in found["topics"]}
        assert found["members"] is None and rows["a/b"]["retained"] and rows["live/x"]["events_per_s"] > 1


@on_a_loop
async def test_watching_what_is_kept_ends_in_time_and_says_that_nobody_keeps_it():
    with running("sub", "t", "--url", new_url(), "--start", "earliest", "--seconds", "2") as process:
        began = monotonic()
        _, err = await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode in (1, 2) and monotonic() - began < 10
        assert process.returncode == 1 or "no keeper is on this bus: start `pluribus keep --store PATH`" in err
    with running("sub", "t", "--url", new_url(), "--durable", "d") as process:
        _, err = await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode == 2 and "no keeper is on this bus: start `pluribus keep --store PATH`" in err
    with running("pub", "t", "1", "--url", new_url(), "--durable", "--wait", "0") as process:
        began = monotonic()
        _, err = await asyncio.to_thread(process.communicate, timeout=60)
        assert process.returncode == 2 and monotonic() - began < 10
        assert err.startswith("pluribus: no keeper is on this bus: start `pluribus keep --store PATH`")


@pytest.mark.parametrize("way", ["member", "client"])
def test_consumer_groups_are_listed(way, capsys):
    name = f"cli-groups-{way}"
    with pluribus.sync.connect(f"inproc://{name}", store=":memory:", serve="127.0.0.1:0") as bus:
        host, port = bus._real.doors[0].address
        url = f"client://{host}:{port}/{name}" if way == "client" else f"inproc://{name}"
        bus.publish_many([("jobs", n) for n in range(3)], durable=True)
        options = {"start": "earliest", "commit": "manual", "tries": 1, "ahead": 1}
        with bus.subscribe("jobs", durable="workers", shared=True, **options) as events:
            events.give_back(events.receive(60.0), "broken")
            events.commit(events.receive(60.0))
            events.receive(60.0)
            assert app.run(["topics", "groups", "--url", url, "--json"]) == 0
            (group,) = json.loads(capsys.readouterr().out)["groups"]
            assert (group["name"], group["patterns"], group["members"]) == ("workers", ["jobs"], 1)
            assert (group["held"], group["behind"]) == (1, 1)
            assert group["dead"] == [{"topic": "jobs", "offset": 0, "tries": 1, "reason": "broken"}]
            assert app.run(["topics", "groups", "--url", url]) == 0
            shown = capsys.readouterr().out
            assert shown == "workers  jobs  1 members, 1 held, 1 behind, 1 dead letters\n"
            assert app.run(["topics", "groups", "--url", url, "--remove", "workers"]) != 0
            assert "close them first" in capsys.readouterr().err
        assert app.run(["topics", "groups", "--url", url, "--redrive", "workers", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"group": "workers", "redriven": 1}
        (group,) = bus.durable.groups()
        assert not group.dead and group.behind == 2
        assert app.run(["topics", "groups", "--url", url, "--redrive", "nobody"]) != 0
        assert "there is no consumer group 'nobody'" in capsys.readouterr().err
        assert app.run(["topics", "groups", "--url", url, "--remove", "workers"]) == 0
        assert "workers was removed" in capsys.readouterr().out
        assert bus.durable.groups() == []
