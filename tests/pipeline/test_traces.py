"""Histories as tables."""

import msgspec
import pyarrow.parquet as parquet
import pytest

from pluribus.core.errors import BadInput
from pluribus.pipeline import traces
from pluribus.pipeline.traces import KeepHistories, gather, read_lines, write_history
from pluribus.sim.campaign import campaign
from pluribus.sim.history import Happening

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
