"""What the tests of backbones share: events of a dealing room, and what the tables and topics must hold then."""

import shutil
from collections import defaultdict

import msgspec

from pluribus.pubsub.durable.batch import pack
from pluribus.runtime.clients.log_client import LogClient
from pluribus.wire.bodies import DATA
from tests.features import ROOT

NOON_S = 1_789_473_600  # 2026-09-15 12:00 UTC
ENCODE = msgspec.msgpack.encode


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
