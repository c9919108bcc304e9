"""What a topic has forgotten, found in an archive by its time. Without Spark."""

from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark.sql")

import pyarrow as pa
from pyarrow import parquet

import pluribus
from pluribus.pipeline.archived import Archived
from pluribus.pipeline.source import TopicReader
from pluribus.pubsub.durable.batch import pack
from pluribus.pubsub.durable.commands import Forget
from pluribus.runtime.clients.log_client import LogClient
from tests.pipeline.test_many_topics import reader, rows_of, url_of

NOON_S = 1_789_473_600  # 2026-09-15 12:00 UTC
HOUR_S = 3_600
PAIR = pa.struct([("session", pa.int64()), ("number", pa.int64())])
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("id", PAIR),
        ("sender", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("parent", PAIR),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("kind", pa.string()),
        ("body", pa.binary()),
    ]
)
HOURS = [0, 1, 2, 30, 4, 31, 32, 33]
"""When event 0, 1, … happened, in hours after noon; one of them stands behind a younger one."""


def moment(hour):
    return datetime.fromtimestamp(NOON_S + hour * HOUR_S, UTC)


def archived(folder, offsets):
    """Events of these offsets, a file for each day."""
    days = {}
    for offset in offsets:
        row = {"offset": offset, "time": moment(HOURS[offset]), "id": {"session": 1, "number": offset + 1}}
        row |= {"sender": 0, "kind": "bytes", "body": b"%d" % offset}
        days.setdefault(f"{row['time']:%Y-%m-%d}", []).append(row)
    for day, rows in days.items():
        place = folder / "topic=desk%2Fx" / f"day={day}"
        place.mkdir(parents=True)
        parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), place / "0.parquet")


def test_a_time_is_looked_for_in_the_archive_too(tmp_path):
    archived(tmp_path / "events", range(6))
    where = Archived(str(tmp_path / "events"))
    wanted = {-5: 0, 0: 0, 1.5: 2, 2.5: 3, 29: 3, 30.5: 5, 40: None}
    for hour, offset in wanted.items():
        assert where.offset_at("desk/x", NOON_S + hour * HOUR_S, 6) == offset, hour
    assert where.offset_at("desk/x", NOON_S + 2.5 * HOUR_S, 3) is None, "what stands behind is not asked for"
    assert where.offset_at("desk/y", NOON_S, 6) is None
    with pluribus.sync.connect("inproc://archived-times", store=":memory:", serve="127.0.0.1:0") as bus:
        url = url_of(bus)
        with LogClient(url) as keepers:
            times = [int((NOON_S + hour * HOUR_S) * 1e6) for hour in HOURS]
            keepers.put([pack("desk/x", 1, 1, 0, 0, times, [b"%d" % offset for offset in range(len(HOURS))])])
            keepers.do(Forget("desk/x", 4))

        def offsets(start, stop=None):
            options = {"topic": "desk/x", "archive": str(tmp_path / "events"), "columns": "offset"}
            options |= {"start": f"{moment(start):%Y-%m-%dT%H:%M:%S}"}
            options |= {} if stop is None else {"stop": f"{moment(stop):%Y-%m-%dT%H:%M:%S}"}
            found = reader(TopicReader, url, **options)
            return sorted(row["offset"] for row in rows_of(found, found.partitions()))

        assert offsets(-1) == list(range(8)), "history and live events are one table, by time as well"
        assert offsets(1.5) == [2, 3, 4, 5, 6, 7] and offsets(31.5) == [6, 7]
        assert offsets(0.5, 1.5) == [1], "the first event that is not older than that ends it"
