"""The trace: a run of a real bus is had again from its records, byte for byte; one that was changed is refused."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pluribus
from pluribus.core.errors import BadInput, Overflow
from pluribus.runtime.loop.tracing import Beginning, replay
from pluribus.stack import trace
from pluribus.stack.trace import DATAGRAMS, DOWN, EVENT, NOW, RANDOM, SENT, SENT_ALL, TIMER, Record, Trace, read_records
from tests.harness import Medium, Member, eventually, on_a_loop

FAST = "transport | presence(period_s=0.05, silence_s=1.0) | window | groups"
FAULTY = "transport | drop(p=0.2) | duplicate | delay | reorder | corrupt | presence(period_s=0.05) | window | groups"


async def traced_run(path: Path, stack: str) -> None:
    """Two members that meet, talk in every way, change groups and leave; the first is traced."""
    url = f"inproc://{path.stem}-{id(path)}"
    async with pluribus.connect(url, stack=stack, trace=path) as a, pluribus.connect(url, stack=stack) as b:
        ga, gb = await a.group("x"), await b.group("x", own=False)
        await ga.wait_for(2)
        await gb.wait_for(2)
        for number in range(200):
            await ga.send(b"%d" % number)
        await ga.send("text")
        await ga.send({"number": 1.5, "list": [None, True]})
        await ga.send(b"direct", to=b.me)
        await gb.send(b"back", to=a.me)
        await gb.send("to all")
        received = [await ga.receive(5) for _ in range(202)]
        assert received[0].body == b"0"
        other = await a.group("other")
        await other.send(b"nobody hears")
        sent = a.stats()["transport"]["datagrams_out"]
        await eventually(lambda: a.stats()["transport"]["datagrams_out"] >= sent + 3, "hellos on their period")
        await other.close()
        await gb.close()
        await eventually(lambda: len(ga.view) == 1, "the other left the group")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "calm.trace"
    asyncio.run(traced_run(path, FAST))
    return path


def kinds(path: Path) -> list[int]:
    return [msgspec.msgpack.decode(record, type=Record).kind for record in list(read_records(path.read_bytes()))[1:]]


def test_a_run_is_had_again_byte_for_byte(recorded: Path):
    found = replay(recorded)
    assert found["same"] is True
    assert found["records"] == len(kinds(recorded))
    assert {NOW, TIMER, DATAGRAMS, RANDOM, DOWN, EVENT, SENT, SENT_ALL} <= set(kinds(recorded))


def test_a_run_with_faults_is_had_again_too(tmp_path: Path):
    path = tmp_path / "faulty.trace"

    async def run() -> None:
        url = f"inproc://faulty-{id(path)}"
        async with pluribus.connect(url, stack=FAULTY, trace=path) as a, pluribus.connect(url, stack=FAULTY) as b:
            ga, gb = await a.group("x"), await b.group("x")
            await ga.wait_for(2)
            await gb.wait_for(2)
            for number in range(200):
                await gb.send(b"%d" % number)
                await asyncio.sleep(0)
            await eventually(lambda: all(a.stats()[fault]["struck"] for fault in ("drop", "duplicate", "reorder")))

    asyncio.run(run())
    assert replay(path)["same"] is True


def rewritten(recorded: Path, target: Path, records: list[bytes]) -> Path:
    first = next(iter(read_records(recorded.read_bytes())))
    target.write_bytes(b"".join(len(record).to_bytes(4, "big") + record for record in [first, *records]))
    return target


def changed_records(recorded: Path, kind: int) -> list[bytes]:
    """All records, the last of the kind with one byte of its content changed."""
    records = list(read_records(recorded.read_bytes()))[1:]
    at = max(number for number, found in enumerate(kinds(recorded)) if found == kind)
    damaged = bytearray(records[at])
    damaged[-1] ^= 1
    records[at] = bytes(damaged)
    return records


@pytest.mark.parametrize("kind", [SENT, SENT_ALL])
def test_a_trace_with_another_effect_is_refused(recorded: Path, tmp_path: Path, kind: int):
    path = rewritten(recorded, tmp_path / "changed.trace", changed_records(recorded, kind))
    with pytest.raises(BadInput, match=r"sent otherwise in the replay|left the trace"):
        replay(path)


def test_a_trace_with_another_message_is_refused(recorded: Path, tmp_path: Path):
    records = list(read_records(recorded.read_bytes()))[1:]
    at = next(number for number, record in enumerate(records) if b"\xc4\x03100" in record)
    records[at] = records[at].replace(b"\xc4\x03100", b"\xc4\x03999")
    with pytest.raises(BadInput, match="sent otherwise in the replay"):
        replay(rewritten(recorded, tmp_path / "changed.trace", records))


@pytest.mark.parametrize("kind", [NOW, TIMER, DATAGRAMS, RANDOM, DOWN, EVENT, SENT, SENT_ALL])
def test_a_trace_that_misses_a_record_is_refused(recorded: Path, tmp_path: Path, kind: int):
    records = list(read_records(recorded.read_bytes()))[1:]
    del records[kinds(recorded).index(kind)]
    with pytest.raises(BadInput, match=r"the replay|was changed"):
        replay(rewritten(recorded, tmp_path / "shorter.trace", records))


def test_a_trace_of_another_stack_is_refused(recorded: Path, tmp_path: Path):
    first, *rest = read_records(recorded.read_bytes())
    beginning = msgspec.msgpack.decode(first, type=Beginning)
    beginning.stack = "transport | presence(period_s=0.05, silence_s=1.0) | groups"
    path = tmp_path / "other.trace"
    records = [msgspec.msgpack.encode(beginning), *rest]
    path.write_bytes(b"".join(len(record).to_bytes(4, "big") + record for record in records))
    with pytest.raises(BadInput):
        replay(path)


def test_a_trace_cut_short_says_so(recorded: Path, tmp_path: Path):
    path = tmp_path / "cut.trace"
    path.write_bytes(recorded.read_bytes()[:-3])
    with pytest.raises(BadInput, match="ends in the middle of a record"):
        replay(path)


@pytest.mark.parametrize("content", [None, b"", b"\x00" * 100, b"\x00\x00\x00\x01\x90"])
def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path: Path, content: bytes | None):
    path = tmp_path / "none.trace"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match="is no trace") as caught:
        replay(path)
    assert "\n" not in str(caught.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_trace_is_refused_or_the_same_and_never_a_crash(recorded: Path, tmp_path: Path, data: st.DataObject):
    content = bytearray(recorded.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "damaged.trace"
    path.write_bytes(content)
    try:
        found = replay(path)
    except BadInput:
        return
    assert found["same"]


def test_a_file_that_cannot_be_written_is_refused_before_the_bus_is_joined(tmp_path: Path):
    async def connect() -> None:
        await pluribus.connect("inproc://never", trace=tmp_path / "no" / "folder")

    with pytest.raises(BadInput, match="cannot be written"):
        asyncio.run(connect())


@on_a_loop
async def test_a_trace_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch):
    medium = Medium()
    monkeypatch.setattr(trace, "TRACE_RECORDS_MAX", 100)
    member = Member(medium, "a", "transport | presence | window | trace | groups").start()
    kept = member.layer(Trace).records
    with pytest.raises(Overflow, match="write it to a file"):
        medium.run(1_000.0)
    assert len(kept) == 100
