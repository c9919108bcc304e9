"""``pluribus demo``: the dealing room loses nothing and delivers nothing that nobody asked for."""

import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter, deque

import pytest
from rich.console import Console

import pluribus
from pluribus.cli import app, programs
from pluribus.cli.dealing import players as dealing
from pluribus.cli.dealing import spark as dealing_spark
from pluribus.cli.dealing.scene import Keeper, Scene
from pluribus.cli.dealing.screen import picture
from pluribus.pubsub.event import Event
from pluribus.pubsub.table import Table
from tests.harness import on_a_loop

SUMMARY = {
    *("providers", "dealers", "keepers", "published", "delivered", "lost", "unasked", "rate", "seconds"),
    *(
        "moves",
        "alerts",
        "turns",
        "averages",
        "spark",
        "spark_batches",
        "spark_rows",
        "spark_began_s",
        "report",
        "first_alert_s",
    ),
    *("late_us_p50", "late_us_p99", "alert_s_p50", "uncounted", "killed"),
}


def test_twenty_dealers_have_interests_of_their_own():
    dealers = dealing.dealers()
    assert len({(dealer.pattern, dealer.where) for dealer in dealers}) == len(dealers) == 20
    assert all(dealer.filter() for dealer in dealers)


@pytest.mark.slow
@pytest.mark.parametrize("url", ["inproc://dealing-{pid}", "multicast://dealing-{pid}"])
def test_the_dealing_room_loses_nothing(url):
    command = [sys.executable, "-m", "pluribus", "demo", url.format(pid=os.getpid()), "--seconds", "0.5", "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    summary = json.loads(answer.stdout)
    assert set(summary) == SUMMARY
    assert (summary["providers"], summary["dealers"], summary["lost"], summary["unasked"]) == (4, 20, 0, 0)
    assert summary["delivered"] > summary["published"] > 0
    assert summary["keepers"] == (1 if url.startswith("inproc") else 3)
    assert "Spark takes no part in a room of 0.5 s" in summary["spark"] and summary["alerts"] == 0


def demo(*arguments: str, **environment: str) -> dict:
    command = [sys.executable, "-m", "pluribus", "demo", *arguments, "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=280, env={**os.environ, **environment})
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return json.loads(answer.stdout)


def test_without_java_the_room_opens_all_the_same(monkeypatch, capsys):
    monkeypatch.setattr(programs, "find_java", lambda: None)
    monkeypatch.setattr(dealing_spark, "LEAST_S", 0.1)
    assert app.run(["demo", "inproc://no-java", "--seconds", "0.3", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["spark"].startswith("Spark takes no part, because Java is missing: Install Java 17")
    assert summary["published"] > 0 == summary["lost"]


@pytest.mark.slow
def test_an_interrupt_closes_the_room_with_a_summary():
    url = f"multicast://interrupted-{os.getpid()}"
    command = [sys.executable, "-m", "pluribus", "demo", url, "--seconds", "0", "--no-spark", "--json"]
    with pluribus.sync.connect(url, name="visitor") as bus, bus.subscribe("room/status/+") as told:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            while not told.receive(timeout=60).body["got"]:
                pass  # the room is not open yet
            process.send_signal(signal.SIGINT)
            printed, _ = process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    summary = json.loads(printed)
    assert summary["lost"] == 0 and summary["spark"] == "Spark takes no part"


def test_the_summary_is_cut_between_words(capsys):
    from pluribus.cli.demo import _told

    assert app.run(["demo", "inproc://told", "--seconds", "0.4", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    whole, narrow = _told(summary), _told(summary, 80)
    assert max(map(len, narrow.splitlines())) <= 80 < max(map(len, whole.splitlines()))
    assert narrow.split() == whole.split()


def test_without_a_terminal_there_are_plain_lines_and_the_summary(capsys):
    assert app.run(["demo", "inproc://seen", "--seconds", "0.6"]) == 0
    printed = capsys.readouterr().out
    assert "the room is open" in printed and "20 dealers got" in printed and "0 lost" in printed
    assert "\x1b" not in printed


def test_a_provider_that_comes_back_draws_the_same_prices_again():
    first, again = dealing.Prices("nyse"), dealing.Prices("nyse")
    drawn = [first.next() for _ in range(2_000)]
    kept = Counter(topic for topic, _ in drawn)
    tail = again.resume(dict(kept), 3)
    assert again.report() == first.report() and again.turns > 0
    assert len(tail) == 15 and all(pair in drawn for pair in tail)
    assert {tick.number for topic, tick in tail if topic == "stocks/nyse/IBM"} == {
        kept["stocks/nyse/IBM"] - back for back in (1, 2, 3)
    }


@on_a_loop
async def test_a_dealer_drops_what_is_announced_again_and_sees_a_gap():
    desk = dealing.Desk(0)
    every = desk.dealers[0]
    assert every.where == dealing.EVERY_PRICE

    async def events():
        for number in (0, 1, 1, 0, 2, 5):
            tick = dealing.Tick("IBM", 100.0, 0.1, 1, number)
            yield Event(tick, 7, (7, number), "stocks/nyse/IBM", 0.0)

    await desk.deal(events(), every, lambda: 0.0)
    assert (desk.got[every.name], desk.gaps) == (4, 2)


SIZES = [(80, 24), (80, 60), (100, 30), (160, 50), (250, 70), (40, 10)]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("phase", ["starts", "open", "closes"])
def test_the_picture_fits_every_terminal(width, height, phase):
    scene = Scene(phase=phase, killing=phase == "open", spark="Spark is live: " + "x" * 300, spark_live=True)
    for number in range(40):
        scene.alerts.append((number, "nasdaq", "AAPL fell from 1,000.00 to 999.00, rose to 1,001.00"))
        scene.happens(f"keeper-{number} was killed: " + "y" * 200)
    for number in range(dealing.DESKS):
        names = [dealer.name for dealer in dealing.Desk(number).dealers]
        got = dict.fromkeys(names, 1_234_567)
        scene.desks[f"desk-{number}"] = {"got": got, "last": dict.fromkeys(names, "AAPL 1000.00 -10.00"), "gaps": 0}
    for exchange, symbols in dealing.EXCHANGES.items():
        scene.prices[exchange] = dict.fromkeys(symbols, (1_000.0, -10.0))
        scene.history |= {symbol: deque([1.0, 2.0, 3.0]) for symbol in symbols}
    scene.away["nyse"], scene.away["keeper-1"] = "KILLED", "KILLED"
    scene.keepers = [Keeper(f"keeper-{number}", "leader", 123_456, True) for number in (1, 2, 3)]
    console = Console(width=width, height=height, file=io.StringIO(), record=True)
    lines = console.render_lines(picture(scene, width, height), console.options.update(width=width), pad=False)
    text = ["".join(segment.text for segment in line) for line in lines]
    assert len(text) <= height and max(map(len, text)) <= width
    if height >= 24:
        shown = "\n".join(text)
        for part in ("dealing room", "Ctrl-C", "AAPL", "RIO", "ALERT", "was killed", "KILLED", "on disk", "lost"):
            assert part in shown, part
        assert shown.count("1,234,567") == 20, "every dealer is seen"


def test_a_lost_event_is_found_out(monkeypatch, capsys):
    whole = Table.spread
    batches = iter(range(1_000_000))

    def lossy(self, arrived, hold=None):
        prices = all(topic.startswith("stocks") for topic in arrived.batch.topics)
        if not (prices and len(self) > dealing.DEALERS_PER_DESK and 2 <= next(batches) < 40):
            whole(self, arrived, hold)

    monkeypatch.setattr(Table, "spread", lossy)
    assert app.run(["demo", "inproc://lossy-room", "--seconds", "0.3", "--rate", "5000", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["lost"] > 0
