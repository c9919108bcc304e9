"""Archives: written by a standing query, each event once, and played back as it was."""

import datetime
import json
import shutil

import pyarrow.parquet as parquet
import pytest

import pluribus
from pluribus.cli.app import run
from pluribus.core.errors import BadInput
from pluribus.pipeline.archive import KEYS, archive, compact, replay
from pluribus.pipeline.landing import Landing
from pluribus.pipeline.retention import Retention
from pluribus.pubsub.durable.batch import pack
from pluribus.runtime.clients.log_client import LogClient
from tests.pipeline.prices import Price
from tests.pipeline.test_source import url_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]
NOON_US = 1_789_473_600_000_000  # 2026-09-15 12:00 UTC
DAY_US = 86_400_000_000


@pytest.fixture(scope="module")
def bus(tmp_path_factory):
    store = tmp_path_factory.mktemp("keeper") / "keeper.db"
    with pluribus.sync.connect("inproc://pipeline-archive", store=store, serve="127.0.0.1:0") as bus:
        yield bus


@pytest.fixture(scope="module")
def archived(spark, bus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("archive") / "events"
    with LogClient(url_of(bus)) as keepers:
        times = [NOON_US, NOON_US + 1_000_000, NOON_US + DAY_US]
        keepers.put([pack("rooms/7", 1, 1, 5, 0, times, [b"a", b"b", b"c"], [{"k": "v"}, None, None])])
    bus.durable.publish_many([("desk/x", Price("ibm", 1.5)), ("desk/x", "text"), ("desk/x", {"n": 1})])
    command = ["pipeline", "archive", url_of(bus), "#", str(folder), "--once", "--json"]
    assert run(command) == 0
    bus.durable.publish_many([("desk/x", "later")])
    assert run(command) == 0
    return folder


def test_events_lie_by_topic_and_day_each_once(archived, capsys):
    folders = sorted(path.relative_to(archived).parent.as_posix() for path in archived.glob("topic=*/day=*/*.parquet"))
    assert folders[-2:] == ["topic=rooms%2F7/day=2026-09-15", "topic=rooms%2F7/day=2026-09-16"]
    files = list(archived.glob("topic=desk%2Fx/*/*.parquet"))
    offsets = sorted(row for path in files for row in parquet.ParquetFile(path).read(["offset"])["offset"].to_pylist())
    assert offsets == [0, 1, 2, 3]


def test_what_is_played_is_what_was_published(archived, bus, capsys):
    command = ["pipeline", "replay", str(archived), url_of(bus), "--speed", "0", "--prefix", "again/", "--json"]
    assert run(command) == 0
    assert json.loads(capsys.readouterr().out)["events"] == 7
    events = bus.log("again/desk/x").read().events()
    assert [event.body for event in events] == [Price("ibm", 1.5), "text", {"n": 1}, "later"]
    rooms = bus.log("again/rooms/7").read().events()
    assert [(event.body, dict(event.headers)) for event in rooms] == [(b"a", {"k": "v"}), (b"b", {}), (b"c", {})]
    assert bus.log("again/rooms/7").offset_at((NOON_US + 1) / 1e6) == 1


def test_what_a_killed_driver_left_behind_is_not_played(archived, bus, tmp_path):
    """Its micro-batch is done again: what was staged for it, and not committed, is nobody's."""
    copy = tmp_path / "moved"
    shutil.copytree(archived, copy)
    for path in list(copy.glob("topic=*/day=*/*.parquet")):
        staged = copy / "_staging" / "archive-9-0123" / path.relative_to(copy)
        staged.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, staged)
    assert replay(copy, url_of(bus), speed=0, prefix="killed/").events == 7
    # What other programs put there counts, unless a manifest of Spark's file sink says otherwise.
    for path in list(copy.glob("topic=*/day=*/*.parquet")):
        shutil.copy(path, path.with_name(f"other-{path.name}"))
    assert replay(copy.as_uri(), url_of(bus), speed=0, prefix="whole/").events == 14
    (copy / "_spark_metadata").mkdir()
    assert replay(copy, url_of(bus), speed=0, prefix="none/").events == 0


def test_a_manifest_is_read_from_its_last_summary_on(tmp_path):
    def entry(name, action="add"):
        return json.dumps({"path": f"file:///old/archive/topic=a%252Fb/day=2026-01-01/{name}", "action": action})

    def files():
        return sorted(path.rpartition("/")[2] for path in Landing(str(tmp_path), keys=KEYS).snapshot())

    folder, metadata = tmp_path / "topic=a%2Fb" / "day=2026-01-01", tmp_path / "_spark_metadata"
    folder.mkdir(parents=True)
    metadata.mkdir()
    for name in ("0", "1", "2", "3", "left"):
        (folder / f"{name}.parquet").touch()
    (metadata / "8").write_text("v1\n" + entry("gone.parquet"))
    (metadata / "9.compact").write_text("\n".join(["v1", entry("0.parquet"), entry("1.parquet")]))
    (metadata / ".9.compact.crc").touch()
    (metadata / "10").write_text("v1\n" + entry("2.parquet"))
    (metadata / "11").write_text("\n".join(["v1", entry("3.parquet"), entry("1.parquet", "delete")]))
    assert files() == ["0.parquet", "2.parquet", "3.parquet"]
    (folder / "2.parquet").unlink()
    with pytest.raises(BadInput, match=r"lacks topic=a%2Fb/day=2026-01-01/2.parquet, which its manifest names"):
        files()
    (metadata / "10").unlink()
    with pytest.raises(BadInput, match="lacks its part 10"):
        files()
    for text, said in (("v2\n", "of version 'v2'"), ("v1\n{", "is no manifest of Spark"), ("", "of version ''")):
        (metadata / "10").write_text(text)
        with pytest.raises(BadInput, match=said):
            files()


def test_at_a_chosen_speed_and_from_here_to_there(archived, bus):
    waits: list[float] = []
    day = datetime.datetime(2026, 9, 16, tzinfo=datetime.UTC)
    played = replay(archived, url_of(bus), speed=2, topic="rooms/+", stop=day, prefix="slow/", wait=waits.append)
    assert played.events == 2 and played.topics == 1
    assert len(waits) == 1 and 0.4 < waits[0] <= 0.5
    played = replay(archived, url_of(bus), speed=0, topic="rooms/+", start=day, prefix="late/", now=True)
    assert played.events == 1
    (event,) = bus.log("late/rooms/7").read().events()
    assert event.body == b"c"


def test_what_is_no_archive_is_said(tmp_path, bus):
    with pytest.raises(BadInput, match="is no archive"):
        replay(tmp_path, url_of(bus))
    with pytest.raises(BadInput, match="a speed of -1 is none"):
        replay(tmp_path, url_of(bus), speed=-1)


def test_history_and_live_events_are_one_table(spark, tmp_path):
    """What a topic has forgotten is read from its archive, by offset: in batches and as a stream, filtered or not."""
    from pluribus.pipeline.decoding import decode
    from pluribus.pipeline.jobs import Job

    folder = (tmp_path / "events").as_uri()
    with pluribus.sync.connect("inproc://pipeline-tier", store=tmp_path / "k.db", serve="127.0.0.1:0") as bus:
        url = url_of(bus)

        def archive_all(checkpoint):
            writer = {"archive": archive(spark, url, "desk/#", folder, retain_s=0.0)}
            Job(spark, "archive", tmp_path / checkpoint, {}, lambda *_: writer).run(once=True)

        def put(numbers):
            bus.durable.publish_many([("desk/x", Price(f"s{n % 3}", float(n))) for n in numbers])

        for start in (0, 10, 20):
            put(range(start, start + 10))
            archive_all("new" if start == 20 else "checkpoint")  # which counts its batches from 0 again
        (known,) = bus.durable.topics("desk/x")
        assert 0 < known.first == known.end == 30, "the archive has it, so the topic forgot it"
        put(range(30, 40))
        fields = {"url": url, "topic": "desk/#", "archive": folder, "fields": "symbol string, price double"}

        def read(**more):
            return spark.read.format("pluribus").options(**fields, **more).load()

        assert sorted(row["price"] for row in read().collect()) == [float(n) for n in range(40)]
        some = read(where="price >= 25 AND symbol = 's1'", columns="offset,price").collect()
        assert sorted((row["offset"], row["price"]) for row in some) == [(n, float(n)) for n in (25, 28, 31, 34, 37)]
        stream = spark.readStream.format("pluribus").options(**fields, start="earliest", rows="7").load()
        queried = stream.writeStream.format("memory").queryName("tier").trigger(availableNow=True).start()
        queried.awaitTermination()
        assert spark.table("tier").selectExpr("count(*)", "sum(price)").collect()[0][:] == (40, sum(range(40)))

        # The archive as a table, its bodies as columns; the same after its files were put together.
        table = spark.read.parquet(folder)
        decoded = decode(table, fields="symbol string, price double").groupBy("symbol").sum("price")
        wanted = {f"s{rest}": float(sum(n for n in range(30) if n % 3 == rest)) for rest in range(3)}
        assert {row[0]: row[1] for row in decoded.collect()} == wanted
        assert compact(spark, folder, 2) == 2
        whole = decode(spark.read.parquet(folder), type="tests.pipeline.prices:Price")
        assert sorted(row["price"] for row in whole.collect()) == [float(n) for n in range(30)]
        assert read().count() == 40
        with pytest.raises(BadInput, match="give fields="):
            decode(table)
        bad = decode(spark.read.parquet(folder), fields="symbol bigint", poison="aside").where("reason IS NOT NULL")
        assert bad.count() == 30 and bad.first()["body"]

        # Nothing is removed that the archive lacks; a gap in it is told, or skipped.
        assert Retention(url, ["desk/#"], 0.0).let_go({"desk/x": 33}) == 3
        with pytest.raises(Exception, match="lacks offset 30 of 'desk/x', which the topic has forgotten"):
            read().count()
        assert read(gaps="skip").count() == 37
