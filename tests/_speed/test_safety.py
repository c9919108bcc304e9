"""Nothing that Python can put into a field, or do while C runs, ends the process: each in a process of its own, which
may raise, and must not die by a signal."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests._speed.both_ends import compiled

pytestmark = pytest.mark.skipif(compiled is None, reason="there is nothing compiled")

START = """
import asyncio, faulthandler, logging, re
from collections import UserDict, deque
faulthandler.enable()
logging.disable(logging.CRITICAL)
import pluribus
from pluribus.runtime.group.straight import samples
"""

FIELDS = """
WRONG = [UserDict({1: 1}), 3.5, None, "text", -(1 << 70), [], {1: None}, object()]
GONE = object()
from pluribus.runtime.group import straight as S
KINDS = {"transport": S.Transport, "reliable": S.Reliable, "dispatch": S.Dispatch, "data": S.Data,
         "incoming": S.Incoming, "outgoing": S.Outgoing, "open": S.OpenStream, "peer": S.Peer, "channel": S.Channel}

def owners(one, other):
    for bus in (one, other):
        transport, _, _, _, detector, reliable, *_, dispatch = bus._stack.layers
        yield from (transport, reliable, dispatch, *reliable._in.values(), *reliable._out.values())
        yield from detector._peers.values()
        for channel in dispatch.channels.values():
            yield from (channel, channel.out)

def changed(owner, name, value):
    try:
        delattr(owner, name) if value is GONE else setattr(owner, name, value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        pass

async def main(kind, name):
    url = "inproc://safety"
    async with pluribus.connect(url) as one, pluribus.connect(url) as other:
        sends, reads = await one.group("g", own=False), await other.group("g", own=False)
        await sends.wait_for(2)
        await reads.wait_for(2)
        asyncio.get_running_loop().set_exception_handler(lambda loop, said: None)
        await sends.send(b"usual")
        await reads.receive(5)
        ways = [bus._stack.layers[-1].send_alone.__self__ for bus in (one, other)]
        assert any(way.sent or way.received for way in ways)
        for value in [*WRONG, GONE]:
            for owner in [owner for owner in owners(one, other) if type(owner) is KINDS[kind] and hasattr(owner, name)]:
                before = getattr(owner, name)
                changed(owner, name, value)
                for send in (lambda: sends.send(b"x"), lambda: one._stack.layers[-1].send_alone(sends._channel, b"y")):
                    try:
                        made = send()
                        if asyncio.iscoroutine(made) or hasattr(made, "__await__"):
                            await asyncio.wait_for(made, 0.005)
                    except Exception:
                        pass
                for _ in range(3):
                    await asyncio.sleep(0)
                try:
                    while reads._channel.inbox:
                        list(reads._channel.take())
                except Exception:
                    pass
                changed(owner, name, before)
    print("alive")

import os
try:
    asyncio.run(asyncio.wait_for(main(*{argument!r}), 30))
except BaseException as error:
    print("alive, after", type(error).__name__)
os._exit(0)
"""

REENTRANT = {
    "bodies that are shortened while they are read": """
from pluribus._speed._quick import Reading
from pluribus.core.frame import Frame
bodies = [b"%d" % n for n in range(1000)]
reads = Reading()
reads.inbox, reads.state = deque([Frame(sender=7, count=1000, size=1, headers=[], bodies=bodies)]), None
reads._taken, reads._people, reads._plain = {}, {7: 7}, 0
taken = reads.take_plain()
next(taken)
bodies.clear()
assert list(taken) == []
""",
    "a key that takes away what is looked up": """
from pluribus._speed._quick import Reading
from pluribus.core.frame import Frame
class Key:
    def __hash__(self):
        return hash(7)
    def __eq__(self, other):
        reads._people, reads._taken, reads.inbox = None, None, None
        del frame.bodies, frame.headers, frame.group
        return False
frame = Frame(sender=7, count=1, size=1, headers=[], bodies=[b"x"])
reads = Reading()
reads.inbox, reads.state = deque([frame]), None
reads._taken, reads._people, reads._plain = {}, {Key(): 7}, 0
try:
    reads.take_lone()
except (TypeError, AttributeError):
    pass
""",
    "fields of a frame that were deleted": """
from pluribus._speed._quick import Reading, way
from pluribus.core.frame import Frame
for name in ("sender", "to", "group", "first", "count", "size", "kind", "headers", "bodies"):
    for value in (UserDict(), None, -1, 1 << 80, "x", ...):
        frame = Frame(sender=7, count=1, size=1, headers=[], bodies=[b"x"])
        reads = Reading()
        reads.inbox, reads.state = deque([frame]), None
        reads._taken, reads._people, reads._plain = {}, {7: 7}, 0
        delattr(frame, name) if value is ... else setattr(frame, name, value)
        for use in (reads.take_lone, reads.take_plain, lambda: way({}, [], print)(frame)):
            try:
                list(use() or ())
            except Exception:
                pass
""",
    "what a reader has that is of another type": """
from pluribus._speed._quick import Reading
from pluribus.core.frame import Frame
for name in ("inbox", "state", "_taken", "_people"):
    for value in (UserDict(), None, 5, [], {7: None}, {(7, 0, 0): 5}, {(7, 0, 0): ("a", "b")}, ...):
        frame = Frame(sender=7, count=1, size=1, headers=[], bodies=[b"x"])
        reads = Reading()
        reads.inbox, reads.state = deque([frame]), None
        reads._taken, reads._people, reads._plain = {}, {7: 7}, 0
        delattr(reads, name) if value is ... else setattr(reads, name, value)
        for use in (reads.take_lone, reads.take_plain, lambda: reads.must_report and ()):
            try:
                list(use() or ())
            except Exception:
                pass
""",
    "a stimulus that changes who waits and who settles": """
from pluribus._speed._quick import Runner
class Runs(Runner):
    pass
for name in ("_waiting", "_settling"):
    for value in (None, 5, UserDict(), (), ...):
        runs = Runs()
        def change():
            delattr(runs, name) if value is ... else setattr(runs, name, value)
            runs.run(print)
        class Layer:
            unsettled = True
            def settle(self):
                change()
        for stimulus in (change, lambda: runs.run(change), lambda: None):
            runs._running, runs._waiting, runs._settling, runs._inside = True, [], [Layer(), Layer()], False
            try:
                runs.run(stimulus)
            except (TypeError, AttributeError):
                pass
""",
    "a list of waiters that others write to": """
from pluribus._speed._quick import Arrivals, Line
async def main():
    line = Line()
    arrivals = Arrivals(line)
    for wrong in (None, 5, object()):
        for use in (arrivals.wake, line.run, lambda: arrivals._look(asyncio.get_running_loop())):
            arrivals._waiters.append(wrong)
            line.waiters.append(wrong)
            try:
                use()
            except TypeError:
                pass
asyncio.run(main())
""",
    "pairs that change while they are packed": """
import gc
from pluribus._speed._quick import of_one_topic
class Shrinks:
    def __init__(self):
        self.me = self
    def __del__(self):
        pairs.clear()
gc.set_threshold(1, 1, 1)
for _ in range(300):
    pairs = [("t" + "x" * 50, b"%d" % n) for n in range(200)]
    Shrinks()
    of_one_topic(pairs)
""",
    "samples and parts of other types": """
from pluribus._speed._quick import Straight
from pluribus.runtime.group import straight
class Catch(Exception):
    pass
parts = {}
straight.Straight = lambda **given: parts.update(given) or (_ for _ in ()).throw(TypeError("caught"))
async def main():
    async with pluribus.connect("inproc://parts"):
        pass
asyncio.run(main())
assert Straight(**parts)
for name in parts:
    for value in (None, 5, UserDict(), (), {}, "text", b"", 1.5, object, [1], (1,)):
        try:
            Straight(**{**parts, name: value})
        except (TypeError, AttributeError):
            pass
""",
}


def program(body: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", START + body], capture_output=True, text=True, timeout=110)


@pytest.mark.parametrize("what", REENTRANT)
def test_whatever_runs_meanwhile_takes_nothing_away(what: str):
    done = program(REENTRANT[what])
    assert done.returncode == 0, done.stderr[-2_000:]


def fields() -> list[tuple[str, str]]:
    """Every field that the straight way reads as a structure: the class that has it, and its name."""
    return (
        sorted((kind, name) for kind, names in compiled.FIELDS.items() for name in names)
        if compiled is not None
        else []
    )


def test_a_field_of_another_type_ends_no_process():
    assert len(fields()) > 40
    groups: dict[str, list[str]] = {}
    for kind, name in fields():
        groups.setdefault(kind, []).append(name)

    def tried(kind: str) -> tuple[str, subprocess.CompletedProcess[str]]:
        return kind, program(
            FIELDS.replace("main(*{argument!r})", f"every({kind!r}, {groups[kind]!r})").replace(
                "import os\n",
                "import os\nasync def every(kind, names):\n    for name in names:\n        await main(kind, name)\n",
            )
        )

    with ThreadPoolExecutor(2) as pool:
        for kind, done in pool.map(tried, groups):
            assert done.returncode == 0 and "alive" in done.stdout, (kind, done.stdout, done.stderr[-3_000:])
