"""Histories as tables."""

import asyncio

import msgspec
import pyarrow.parquet as parquet
import pytest

import pluribus
from pluribus.core.errors import BadInput
from pluribus.pipeline import traces
from pluribus.pipeline.traces import (
    KeepHistories,
    _until_somebody_left,
    gather,
    history_in,
    read_lines,
    write_history,
    written_by_members,
)
from pluribus.sim.checkers.delivery import fifo, integrity
from pluribus.sim.machinery.campaign import campaign
from pluribus.sim.machinery.history import Happening, History
from pluribus.sim.scenarios import scenario

SENT = Happening(0.5, 7, "send", "red", (7, 0), b"fire", parent=(8, 3))
SEEN = Happening(0.6, 8, "deliver", "red", (7, 0), b"fire", orphan=True)
VIEW = Happening(0.1, 8, "view", "red", (4, 7), members=(7, 8), promises="total safe")


def test_a_happening_becomes_a_row(tmp_path):
    path = write_history(tmp_path, "first run/1", [VIEW, SENT, SEEN], ["integrity", "fifo"])
    assert path.name == "first-run-1.parquet"
    checks, view, sent, seen = parquet.read_table(path).to_pylist()
    assert (checks["what"], checks["place"], checks["promises"]) == ("checks", -1, "integrity fifo")
    assert (view["place"], view["members"], view["promises"]) == (0, [7, 8], "total safe")
    assert (sent["parent_sender"], sent["parent_number"], sent["orphan"]) == (8, 3, False)
    assert (seen["parent_sender"], seen["orphan"], seen["run"]) == (None, True, "first run/1")
    assert sent["digest"] == seen["digest"] != view["digest"]


def test_places_go_on_over_groups_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "ROWS_A_GROUP", 2)
    path = write_history(tmp_path, "long", [SENT] * 5, ["fifo"])
    assert parquet.read_table(path)["place"].to_pylist() == [-1, 0, 1, 2, 3, 4]


def test_what_processes_wrote_is_one_run_by_the_clock(tmp_path):
    for name, happenings in {"a": [VIEW, SEEN], "b": [SENT]}.items():
        lines = b"".join(msgspec.json.encode(h) + b"\n" for h in happenings)
        (tmp_path / f"{name}.history").write_bytes(lines + b'[0.7, 8, "del')  # killed while it wrote
    path = gather(tmp_path, "real", sorted(tmp_path.glob("*.history")))
    assert parquet.read_table(path)["what"].to_pylist() == ["view", "send", "deliver"]


def test_what_is_no_history_is_said(tmp_path):
    (tmp_path / "x.history").write_text("once upon a time\n")
    with pytest.raises(BadInput, match="is no history"):
        read_lines(tmp_path / "x.history")
    with pytest.raises(BadInput, match="name a writable folder"):
        write_history(tmp_path / "x.history", "run", [SENT])


def test_a_campaign_keeps_the_history_of_every_seed(tmp_path):
    found = campaign("flood", range(2), keep=KeepHistories(tmp_path))
    tables = {path.name: parquet.read_table(path) for path in sorted(tmp_path.iterdir())}
    assert list(tables) == ["flood-0.parquet", "flood-1.parquet"]
    delivered = sum(table["what"].to_pylist().count("deliver") for table in tables.values())
    assert delivered == found["checkers"]["integrity"] > 0


async def traced(folder) -> list:
    """Two members of three groups, each with a trace; what they delivered."""
    got = []
    async with (
        pluribus.connect("inproc://traced", name="a", trace=folder / "a.trace") as a,
        pluribus.connect("inproc://traced", name="b", trace=folder / "b.trace") as b,
    ):
        for name, promise in {"red": {"order": "total"}, "blue": {"order": "fifo"}, "green": {"safe": True}}.items():
            groups = [await bus.group(name, **promise) for bus in (a, b)]
            for group in groups:
                await group.wait_for(2)
            for number in range(10):
                await groups[0].send({"n": number})
                await groups[1].send(b"x" * (30_000 if number == 5 else 3))
            got += [await group.receive(timeout=10) for group in groups for _ in range(20)]
    return got


def test_a_trace_of_a_member_is_a_history(tmp_path):
    got = asyncio.run(traced(tmp_path))
    histories = {path.stem: history_in(path) for path in written_by_members(tmp_path)}
    assert list(histories) == ["a", "b"]
    assert all(history[-1].what == "left" for history in histories.values())
    history = History()
    together = sorted((h for one in _until_somebody_left(list(histories.values())) for h in one), key=lambda h: h.at)
    history.happenings = together
    assert sum(h.what == "send" for h in together) == 60
    assert sorted(h.id for h in history.of("deliver")) == sorted(message.id for message in got)
    history.sends_first()
    for check in scenario("groups").checkers.values():
        check(history)
    assert integrity(history) == fifo(history) == len(got)


def test_a_trace_is_a_table_whoever_wrote_it(tmp_path):
    pytest.importorskip("pyspark.sql")
    from pluribus.pipeline.options import Settings
    from pluribus.pipeline.trace_source import TraceReader

    write_history(tmp_path, "made", [VIEW, SENT, SEEN], ["fifo"])
    (tmp_path / "x.history").write_bytes(msgspec.json.encode(SENT) + b"\n")
    gather(tmp_path, "real", [tmp_path / "x.history"])  # made of the other one, and not to be read twice
    columns = Settings({"trace": str(tmp_path), "columns": "run,what,sender"}).schema().names
    reader = TraceReader(str(tmp_path), columns)
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [(row["run"], row["what"]) for row in rows] == [
        ("made", "checks"),
        ("made", "view"),
        ("made", "send"),
        ("made", "deliver"),
        ("real", "send"),
    ]
    with pytest.raises(BadInput, match="holds no trace"):
        TraceReader(str(tmp_path / "none"), columns).partitions()
