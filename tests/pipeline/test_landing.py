"""Tables that are files: each batch once, compaction, replacement, fences, on local paths and on URIs."""

import json
import shutil

import pytest

from pluribus.core.errors import BadInput
from pluribus.pipeline.files import HadoopFiles, LocalFiles, files_of, is_local, local_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
DAY_S = 86_400
NOON_S = 1_789_473_600
SCHEMA = "topic string, offset long, time timestamp, day string"


def rows(spark, offsets, topic="a/b"):
    from pyspark.sql import functions as F

    table = spark.createDataFrame(
        [(topic, offset, NOON_S + offset * DAY_S // 4) for offset in offsets], "topic string, offset long, s long"
    )
    timed = table.withColumn("time", F.timestamp_seconds("s")).drop("s")
    return timed.withColumn("day", F.date_format("time", "yyyy-MM-dd")).coalesce(1)


def offsets(spark, table):
    return sorted(row["offset"] for row in table.read(spark, SCHEMA).collect())


@pytest.fixture(params=["path", "uri"])
def table(request, spark, tmp_path):
    from pluribus.pipeline.landing import Landing

    where = str(tmp_path / "a table") if request.param == "path" else (tmp_path / "t").as_uri()
    found = Landing(where, spark, keys=("topic", "day"))
    assert isinstance(found.files, LocalFiles if request.param == "path" else HadoopFiles)
    return found


def test_a_batch_lands_once_and_small_files_become_one(spark, table):
    assert table.land("w", 0, rows(spark, range(5)), place={"a/b": 5})
    assert not table.land("w", 0, rows(spark, range(5)))
    assert table.land("w", 1, rows(spark, range(5, 8))) and table.land("w", 2, None)
    assert (table.last("w"), table.last("other")) == (2, -1)
    assert table.land("other", 0, rows(spark, [3], "c"))
    assert offsets(spark, table) == [0, 1, 2, 3, 3, 4, 5, 6, 7]
    before = table.snapshot()
    assert len(before) == 5 and before[0].startswith("topic=a%2Fb/day=2026-09-15/w-")
    assert len(spark.read.parquet(table.files.root).collect()) == 9, "as any program reads it"
    assert table.compact(spark, 2, 1 << 20) == 1
    assert len(table.snapshot()) == 4 and offsets(spark, table) == [0, 1, 2, 3, 3, 4, 5, 6, 7]
    assert not [found for found in table.files.list() if found.path.startswith("_staging")]


def test_a_new_checkpoint_lands_what_is_new_and_nothing_twice(spark, table):
    """It counts its batches from 0 again, and reads everything again."""
    from pluribus.pipeline.landing import without

    def land(query, number, some):
        known = table.known("w", query, {"a/b": some[0]})
        place = {"a/b": some[-1] + 1}
        return table.land("w", number, without(rows(spark, some), known), place=place, query=query)

    assert land("one", 0, range(3)) and land("one", 1, range(3, 5)) and not land("one", 1, range(3, 5))
    for number, some in enumerate((range(2), range(2, 7), range(7, 9))):
        assert land("two", number, some) and not land("two", number, some)
        assert table.place("w") == {"a/b": max(some[-1] + 1, 5)}, "nothing that landed is taken back"
    assert offsets(spark, table) == list(range(9))


def test_rows_that_executors_wrote_to_disks_of_their_own_do_not_count(spark, table):
    with pytest.raises(BadInput, match=r"2 of 3 rows that executors wrote to .* are here: they have other disks"):
        table.land("w", 0, rows(spark, [0, 1]), count=3)
    assert table.last("w") == -1 and not table.snapshot()
    assert table.land("w", 0, rows(spark, [0, 1, 5]), count=3) and offsets(spark, table) == [0, 1, 5]


def test_a_file_takes_the_place_of_another(table):
    for data in (b"one", b"two"):
        table.files.write("folder/file", data)
    assert table.files.read("folder/file") == b"two"
    table.files.write("folder/other", b"three")
    table.files.move("folder/other", "folder/file")
    assert table.files.read("folder/file") == b"three"
    assert [found.path for found in table.files.list() if found.changed_ms > 0] == ["folder/file"]


def test_what_is_replaced_stays_replaced_behind_a_fence(spark, table):
    table.land("w", 0, rows(spark, range(8)))
    old = [path for path in table.snapshot() if "day=2026-09-16" in path]
    fence = (int((NOON_S + DAY_S // 2) * 1e6), int((NOON_S + DAY_S // 2 * 3) * 1e6))
    assert table.land("backfill", 0, rows(spark, [2, 4]), removes=old, fence=fence, days=["2026-09-16"])
    assert offsets(spark, table) == [0, 1, 2, 4, 6, 7]
    table.land("w", 1, rows(spark, [3, 5, 9]))
    assert offsets(spark, table) == [0, 1, 2, 4, 6, 7, 9], "3 and 5 are of the range that was computed again"
    # Somebody was quicker: what was to be replaced is gone, or more is there by now.
    assert not table.land("backfill", 1, rows(spark, [2]), removes=old, fence=fence)
    some = [path for path in table.snapshot() if "day=2026-09-15" in path]
    table.land("w", 2, rows(spark, [1]))
    assert not table.land("backfill", 1, rows(spark, [0]), removes=some, fence=(0, 1), days=["2026-09-15"])
    assert table.last("backfill") == 0


def test_a_commit_that_was_cut_short_counts_and_is_finished(spark, tmp_path, monkeypatch):
    from pluribus.pipeline.landing import Landing

    table = Landing(str(tmp_path / "t"), spark, keys=("topic", "day"))
    table.land("w", 0, rows(spark, [0]))
    moved = []

    def move(self, name, to):
        moved.append(to)
        if len(moved) == 2:
            raise OSError("the disk went away")
        shutil.move(tmp_path / "t" / name, tmp_path / "t" / to)

    with monkeypatch.context() as patch:
        (tmp_path / "t" / "topic=a%2Fb" / "day=2026-09-16").mkdir(parents=True)
        patch.setattr(LocalFiles, "move", move)
        patch.setattr(LocalFiles, "write", lambda self, name, data: (tmp_path / "t" / name).write_bytes(data))
        with pytest.raises(OSError, match="went away"):
            table.land("w", 1, rows(spark, [2, 3, 8]))
    again = Landing(str(tmp_path / "t"), spark, keys=("topic", "day"))
    assert len(again.snapshot()) == 3 and again.last("w") == 1
    assert any(path.startswith("_staging/") for path in again.snapshot())
    assert offsets(spark, again) == [0, 2, 3, 8]
    assert not any(path.startswith("_staging/") for path in again.snapshot())


def test_a_folder_of_sparks_file_sink_is_taken_over(spark, tmp_path):
    from pluribus.pipeline.landing import Landing

    folder = tmp_path / "old" / "topic=a%2Fb" / "day=2026-09-15"
    rows(spark, [0, 1]).drop("topic", "day").write.parquet(str(folder))
    (file,) = folder.glob("*.parquet")
    shutil.copy(file, folder / "left-behind.parquet")
    metadata = tmp_path / "old" / "_spark_metadata"
    metadata.mkdir()
    line = {"path": f"file:///elsewhere/topic=a%252Fb/day=2026-09-15/{file.name}", "action": "add"}
    (metadata / "7").write_text("v1\n")
    (metadata / "6.compact").write_text("v1\n" + json.dumps(line))
    table = Landing(str(tmp_path / "old"), spark, keys=("topic", "day"))
    assert offsets(spark, table) == [0, 1]
    assert not table.land("archive", 7, rows(spark, [1])), "the file sink has done that one"
    assert table.land("archive", 8, rows(spark, [2]))
    assert offsets(spark, table) == [0, 1, 2] and not metadata.exists()


def test_days_are_those_of_utc_in_every_session(spark):
    from pluribus.pipeline.landing import day_of

    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        moments = [NOON_S + 11 * 3_600, NOON_S + 12 * 3_600, -1]
        table = spark.createDataFrame([(one,) for one in moments], "s long").selectExpr("timestamp_seconds(s) AS time")
        assert [row[0] for row in table.select(day_of("time")).collect()] == ["2026-09-15", "2026-09-16", "1969-12-31"]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_what_is_local_and_what_is_not(tmp_path):
    assert is_local("/a/b") and is_local("c:b/c") and not is_local("s3a://bucket/x")
    assert str(local_path("file:///a%20b")) == "/a b" and local_path("hdfs://host/x") is None
    assert isinstance(files_of(tmp_path.as_uri()), LocalFiles)
    with pytest.raises(BadInput, match="reached by Spark's Hadoop client"):
        files_of("s3a://bucket/x")
