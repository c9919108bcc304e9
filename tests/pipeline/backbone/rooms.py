"""What the tests of backbones share: events of a dealing room, and what the tables and topics must hold then."""

import shutil
from collections import defaultdict
from pathlib import Path

import msgspec

from pluribus.pubsub.durable.batch import pack
from pluribus.runtime.clients.log_client import LogClient
from pluribus.wire.bodies import DATA
from tests.features import ROOT

NOON_S = 1_789_473_600  # 2026-09-15 12:00 UTC
ENCODE = msgspec.msgpack.encode


COUNTED = """
    name = "counted"
    state = "state"
    tables = "tables"
    rows = 400

    [tiers]
    every = "1 second"

    [[silver]]
    name = "numbers"
    topics = "numbers/#"
    fields = "n bigint"
    late = "30 seconds"
    unique = ["n"]

    [[silver.rules]]
    name = "not 5"
    where = "n <> 5"
    otherwise = "drop"

    [[silver.rules]]
    name = "no sevens"
    where = "n < 700 OR n >= 707"

    [[gold]]
    name = "hundreds"
    of = "numbers"
    kind = "where"
    where = "FLOOR(n / 100) * 100 = n"
    topic = "hundreds"

    [[gold]]
    name = "sums"
    of = "numbers"
    kind = "windows"
    width = "10 seconds"
    topic = "sums"
    values = { sum = "sum(n)", count = "count(*)" }
"""
"""A backbone of numbers: one of them is dropped, seven are dead."""


def numbers(start, stop):
    """Ten a second."""
    return [(n / 10, {"n": n}) for n in range(start, stop)]


def bodies_of(url, topic):
    """What a topic holds."""
    with LogClient(url) as keepers:
        return [body for batch in keepers.read(topic, *keepers.offsets(topic)) for body in batch.plain()]


def rows_in(where, column):
    """A column of a table of a backbone, in order, without Spark."""
    import pyarrow.parquet as parquet

    from pluribus.pipeline.landing import Landing

    files = [parquet.ParquetFile(Path(where) / path) for path in Landing(where).snapshot()]
    return sorted(value for file in files for value in file.read([column])[column].to_pylist())


def verified(configuration, found, wanted):
    """Everything that must hold of ``COUNTED`` in the end. ``wanted`` are the numbers that were published, three of
    them twice; ``found`` is the report of all runs."""
    good = [n for n in wanted if n != 5 and not 700 <= n < 707]
    dead = [n for n in wanted if 700 <= n < 707]
    assert found == {
        "read": len(wanted) + 3, "good": len(good), "dead": len(dead), "dropped": 1, "late": 0, "duplicate": 3,
        "lost": 0, "adds_up": True,
    }  # fmt: skip
    url, tables = configuration.url, configuration.tables
    hundreds = [n for n in good if n % 100 == 0]
    assert sorted(body["n"] for body in bodies_of(url, "counted/silver/numbers/a")) == good
    assert sorted(body["n"] for body in bodies_of(url, "counted/dead/numbers/a")) == dead
    assert sorted(body["n"] for body in bodies_of(url, "hundreds")) == hundreds
    sums = [(body["sum"], body["count"]) for body in bodies_of(url, "sums")]
    oracle = [[n for n in good if at <= n < at + 100] for at in range(0, max(wanted), 100)]
    assert set(sums) <= {(sum(some), len(some)) for some in oracle}
    assert len(sums) == len(set(sums)) >= len(oracle) - 5
    assert len(rows_in(f"{tables}/bronze", "offset")) == len(wanted) + 3
    assert rows_in(f"{tables}/silver/numbers", "n") == good
    assert rows_in(f"{tables}/gold/hundreds", "n") == hundreds
    left = [path for path in Path(tables).rglob("_staging/*/*") if path.is_file()]
    assert not left, "what was staged has landed, or is gone"


def example(folder, name, **changed):
    """A copy of an example with its tables beside it; ``changed`` replaces texts."""
    for path in (ROOT / "examples").glob(f"{name}_*"):
        if path.suffix in (".toml", ".csv"):
            shutil.copy(path, folder / path.name)
    path = folder / f"{name}_backbone.toml"
    text = path.read_text()
    for old, new in changed.values():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


def put(url, topic, session, first, events, ids=()):
    """Publish events (second, body) with times of their own."""
    with LogClient(url) as keepers:
        times = [round((NOON_S + second) * 1e6) for second, _ in events]
        keepers.put([pack(topic, session, first, 0, DATA, times, [ENCODE(body) for _, body in events], ids=ids)])


def price(symbol, second):
    """Of ``calm`` they climb; of ``wild`` they fall four times, and then rise."""
    if symbol == "calm":
        return 100.0 + second / 8
    return 105.0 + abs(second % 10 - 5) + 20 * (second == 33)


def ticks(seconds):
    return {
        symbol: [(second, {"symbol": symbol, "price": price(symbol, second)}) for second in seconds]
        for symbol in ("calm", "wild")
    }


def sector(symbol, second):
    return "food" if symbol == "calm" else "tech" if second < 20 else "space"


def averages(events, width_s=10, every_s=5):
    """The oracle: by window, symbol and sector, how many and their mean."""
    found = defaultdict(list)
    for second, body in events:
        start = second // every_s * every_s
        while start > second - width_s:
            found[(NOON_S + start, body["symbol"], sector(body["symbol"], second))].append(body["price"])
            start -= every_s
    return {key: (len(prices), round(sum(prices) / len(prices), 9)) for key, prices in found.items()}
