"""``readStream.format("pluribus")`` over traces: files that appear, that are half written, that grow; each row once."""

import os

import msgspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pluribus.core.errors import BadInput
from pluribus.pipeline import trace_stream, traces
from pluribus.pipeline.source import register
from pluribus.pipeline.trace_stream import TraceStreamReader
from pluribus.pipeline.traces import gather, write_history
from pluribus.sim.machinery.history import Happening

pytestmark = [pytest.mark.timeout(200)]
COLUMNS = ["run", "place", "number"]
ALL = ReadAllAvailable()


def sent(*numbers: int) -> list[Happening]:
    return [Happening(n / 10, 7, "send", "red", (7, n), b"fire") for n in numbers]


def lines(*numbers: int) -> bytes:
    return b"".join(msgspec.json.encode(one) + b"\n" for one in sent(*numbers))


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(traces, "ROWS_A_GROUP", 2)


def rows_between(reader, start, end):
    pieces = reader.partitions(start, end)
    return [
        (row["run"], row["number"]) for piece in pieces for batch in reader.read(piece) for row in batch.to_pylist()
    ]


def everything(reader, limit=ALL):
    """What micro-batches of a stream hold, until there is nothing new."""
    at, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit)) != at:
        batches.append(rows_between(reader, at, end))
        at = end
    return batches


def test_files_are_given_once_when_they_are_whole(tmp_path, small_groups):
    whole = write_history(tmp_path / "elsewhere", "b", sent(4, 5, 6)).read_bytes()
    write_history(tmp_path, "a", sent(1, 2, 3))
    (tmp_path / "b.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "c.parquet").touch()
    reader = TraceStreamReader(str(tmp_path), COLUMNS)
    first = reader.latestOffset({}, ALL)
    assert first == {"a.parquet": 2}
    assert rows_between(reader, {}, first) == [("a", 1), ("a", 2), ("a", 3)]
    assert reader.latestOffset(first, ALL) == first, "what is half written is left for the next time"
    (tmp_path / "b.parquet").write_bytes(whole)
    second = reader.latestOffset(first, ALL)
    assert second == {"a.parquet": 2, "b.parquet": 2}
    assert rows_between(reader, first, second) == [("b", 4), ("b", 5), ("b", 6)]
    (tmp_path / "a.parquet").unlink()
    assert reader.latestOffset(second, ALL) == second, "a file that is removed was given all the same"


def test_a_file_that_nobody_ends_is_told_of_once(tmp_path, caplog):
    (tmp_path / "dead.parquet").write_bytes(b"PAR1 and no more")
    reader = TraceStreamReader(str(tmp_path), COLUMNS)
    assert everything(reader) == [] and not caplog.records
    os.utime(tmp_path / "dead.parquet", (1, 1))
    assert everything(reader) == everything(reader) == []
    assert ["dead.parquet has no end yet" in record.getMessage() for record in caplog.records] == [True]


def test_lines_of_an_observer_are_given_as_they_are_written(tmp_path):
    path = tmp_path / "x.history"
    path.write_bytes(lines(1, 2) + lines(3)[:9])
    reader = TraceStreamReader(str(path), COLUMNS)
    first = reader.latestOffset({}, ALL)
    assert rows_between(reader, {}, first) == [("real", 1), ("real", 2)]
    path.write_bytes(lines(1, 2, 3))
    second = reader.latestOffset(first, ALL)
    (piece,) = reader.partitions(first, second)
    assert [row for batch in reader.read(piece) for row in batch.to_pylist()] == [
        {"run": "real", "place": 2, "number": 3}
    ]
    assert TraceStreamReader(str(path), COLUMNS).latestOffset({}, ALL) == second, "also for one that begins there"
    gather(tmp_path, "real", [path])
    assert everything(TraceStreamReader(str(tmp_path), COLUMNS)) == [[("real", 1), ("real", 2), ("real", 3)]]
    path.unlink()
    assert TraceStreamReader(str(tmp_path), COLUMNS).latestOffset(second, ALL) == second, "made of what was given"


def test_micro_batches_have_so_many_rows_and_none_waits_for_ever(tmp_path, small_groups):
    write_history(tmp_path, "b", sent(11, 12, 13, 14, 15))
    (tmp_path / "a.history").write_bytes(lines(1, 2, 3, 4))
    reader = TraceStreamReader(str(tmp_path), COLUMNS, rows=3)
    assert reader.getDefaultReadLimit() == ReadMaxRows(3)
    found = everything(reader, ReadMaxRows(3))
    assert [[number for _, number in batch] for batch in found] == [[1, 2, 3], [11, 12], [13, 14, 15], [4]]
    single = everything(reader, ReadMaxRows(1))
    assert sorted(len(batch) for batch in single) == [1, 1, 1, 1, 1, 2, 2], "a group is not split"
    assert {number for batch in single for _, number in batch} == {1, 2, 3, 4, 11, 12, 13, 14, 15}


def test_what_is_there_now_or_only_what_comes(tmp_path):
    write_history(tmp_path, "a", sent(1))
    now = TraceStreamReader(str(tmp_path), COLUMNS)
    now.prepareForTriggerAvailableNow()
    later = TraceStreamReader(str(tmp_path), COLUMNS, start="latest")
    begun = later.initialOffset()
    write_history(tmp_path, "b", sent(2))
    assert everything(now) == [[("a", 1)]]
    assert rows_between(later, begun, later.latestOffset(begun, ALL)) == [("b", 2)]


def test_what_is_no_stream_is_said(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="name a Parquet file, or a folder"):
        TraceStreamReader(str(tmp_path / "none"), COLUMNS).latestOffset({}, ALL)
    with pytest.raises(BadInput, match="use 'earliest' or 'latest'"):
        TraceStreamReader(str(tmp_path), COLUMNS, start="5")
    (tmp_path / "a.trace").touch()
    with pytest.raises(BadInput, match=r"a\.trace must be run again as a whole.*pipeline\.traces\.gather"):
        TraceStreamReader(str(tmp_path), COLUMNS).latestOffset({}, ALL)
    monkeypatch.setattr(trace_stream, "FILES_MAX", 0)
    with pytest.raises(BadInput, match="use several folders"):
        TraceStreamReader(str(tmp_path), COLUMNS).latestOffset({}, ALL)


@pytest.fixture
def played(spark, tmp_path):
    """Play what is new in a folder, into a table; its rows so far, and the micro-batches of this time that had any."""
    register(spark)

    def play(folder, **options):
        stream = spark.readStream.format("pluribus").options(trace=str(folder), columns="run,number", **options).load()
        writer = stream.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        query = writer.option("checkpointLocation", str(tmp_path / "progress")).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = spark.read.parquet(str(tmp_path / "out")).collect()
        batches = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        return sorted((row.run, row.number) for row in rows), batches

    return play


@pytest.mark.slow
def test_a_query_goes_on_where_it_ended(played, tmp_path, small_groups):
    folder = tmp_path / "traces"
    write_history(folder, "a", sent(1, 2, 3))
    whole = write_history(tmp_path / "elsewhere", "b", sent(4, 5)).read_bytes()
    (folder / "b.parquet").write_bytes(whole[:100])
    rows, batches = played(folder, rows="2")
    assert rows == [("a", 1), ("a", 2), ("a", 3)] and batches == [2, 1]
    (folder / "b.parquet").write_bytes(whole)
    (folder / "c.history").write_bytes(lines(6) + b"[0.7")
    rows, batches = played(folder)
    assert rows == [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 5), ("real", 6)] and batches == [3]
    assert played(folder) == (rows, []), "nothing is new"


@pytest.mark.slow
def test_a_standing_query_sees_files_appear(spark, tmp_path):
    register(spark)
    folder = tmp_path / "traces"
    folder.mkdir()
    stream = spark.readStream.format("pluribus").options(trace=str(folder)).load()
    query = stream.writeStream.format("memory").queryName("appearing").start()
    try:
        for number in range(3):
            write_history(folder, f"run-{number}", sent(number))
            query.processAllAvailable()
            assert spark.table("appearing").count() == number + 1
        (folder / "a.trace").touch()
        with pytest.raises(PySparkException, match="must be run again as a whole"):
            query.processAllAvailable()
    finally:
        query.stop()
    limited = spark.readStream.format("pluribus").options(trace=str(folder), bytes="100")
    with pytest.raises(PySparkException, match="limit the micro-batches of a trace with rows"):
        limited.load().writeStream.format("noop").start().awaitTermination()
