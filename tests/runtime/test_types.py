"""The faces as an editor and ``mypy --strict`` see them: right programs pass, and each typo is found."""

import subprocess
import sys
import textwrap

import pytest

RIGHT = """
import asyncio

import msgspec

import pluribus
import pluribus.sync
from pluribus import DurableSubscription, Event, Subscription


class Tick(msgspec.Struct):
    price: float


async def main() -> None:
    async with pluribus.connect("inproc://types") as bus:
        mid = await bus.publish("stocks/ibm", Tick(1.0), headers={"desk": 7}, retain=True)
        print(mid[0], mid[1])
        bus.publish_soon("stocks/ibm", Tick(2.0), durable=True)
        await bus.publish_many([("stocks/ibm", Tick(3.0))], timeout=3.0)
        async with bus.subscribe("stocks/+", where="price > 1", type=Tick) as ticks:
            live: Subscription[Tick] = ticks
            async for event in live:
                told: Event[Tick] = event
                price: float = told.body.price
                print(price)
        async with bus.subscribe("stocks/+", type=Tick, durable="desk", start="earliest") as kept:
            durable: DurableSubscription[Tick] = kept
            print((await durable.receive(1.0)).body.price + 1.0)
        answers = await bus.ask("alarms", "fire?", replies="majority", timeout=2.0)
        print(answers[0].body)


def scripts() -> None:
    with pluribus.sync.connect("inproc://types") as bus:
        bus.publish("stocks/ibm", Tick(1.0), durable=True, timeout=3.0)
        with bus.subscribe("stocks/+", type=Tick) as ticks:
            for event in ticks:
                print(event.body.price + 1.0)
        with bus.subscribe("stocks/+", type=Tick, durable="desk", start="earliest") as kept:
            print(kept.receive(1.0).body.price + 1.0)
            kept.commit()
        with bus.mailbox("ann") as box:
            box.acknowledge(box.receive(1.0))
        group = bus.group("alarms", order="total")
        for answer in group.ask("fire?", replies="majority", timeout=2.0):
            print(answer.body)
        print(bus.cache("prices").get("ibm"), bus.sql("select 1").rows, bus.relay("alarms").pending)
        bus.notifications("news", object()).notify("rain", timeout=1.0)


asyncio.run(main())
"""

WRONG = {
    "await bus.publish('t', 1, tiemout=3)": "tiemout",
    "bus.publish_soon('t', 1, tiemout=3)": "tiemout",
    "await bus.publish_many([('t', 1)], retian=True)": "retian",
    "bus.subscribe('t', wher='a > 1')": "subscribe",
    "(await bus.subscribe('t', type=Tick).receive()).body.prize": "prize",
    "(await bus.subscribe('t', type=Tick, durable='d').receive()).body.prize": "prize",
    "bus.on('t', backlgo=1)": "backlgo",
    "await bus.ask('alarms', 'fire', replys=1)": "replys",
    "await bus.group('alarms', oder='total')": "oder",
    "pluribus.sync.connect('inproc://x').publish('t', 1, tiemout=3)": "tiemout",
    "pluribus.sync.connect('inproc://x').subscribe('t', type=Tick).receive().body.prize": "prize",
    "pluribus.sync.connect('inproc://x').subscribe('t', type=Tick, durable='d').comit()": "comit",
    "pluribus.sync.connect('inproc://x', stroe='a.db')": "stroe",
    "pluribus.sync.connect('inproc://x').publsh('t', 1)": "publsh",
    "pluribus.sync.connect('inproc://x').group('g').send('x', timout=1)": "timout",
    "pluribus.sync.connect('inproc://x').group('g').sned('x')": "sned",
    "pluribus.sync.connect('inproc://x').conversation('c', storre='a.db')": "storre",
    "await bus.objects('o', oder='total')": "oder",
    "await bus.notifications('n', object(), oder='total')": "oder",
    "await (await bus.notifications('n', object())).notify('x', timout=1)": "timout",
}

FRAME = """
import msgspec

import pluribus
import pluribus.sync


class Tick(msgspec.Struct):
    price: float


async def wrong(bus: pluribus.Bus) -> None:
{lines}
"""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """What mypy says of the right program, and of one with every typo, by line: one run, because loading it costs."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(FRAME.format(lines=textwrap.indent("\n".join(WRONG), "    ")))
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "right.py", "wrong.py"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert not found.stderr, found.stderr
    return found.stdout.splitlines()


@pytest.mark.timeout(600)
def test_right_programs_have_the_types_that_they_say(complaints):
    assert not [line for line in complaints if line.startswith("right.py")]


@pytest.mark.timeout(600)
def test_every_typo_is_found(complaints):
    first = FRAME.splitlines().index("{lines}") + 1
    for place, (line, word) in enumerate(WRONG.items()):
        told = [one for one in complaints if one.startswith(f"wrong.py:{first + place}:")]
        assert any(word in one for one in told), f"{line}: {told}"
