"""``pluribus demo``: the dealing room loses nothing and delivers nothing that nobody asked for."""

import json
import os
import signal
import subprocess
import sys

import pytest

import pluribus
from pluribus.cli import app, programs
from pluribus.cli.dealing import players as dealing
from pluribus.cli.dealing import spark as dealing_spark
from pluribus.pubsub.table import Table

SUMMARY = {
    *("providers", "dealers", "keepers", "published", "delivered", "lost", "unasked", "rate", "seconds"),
    *("moves", "alerts", "turns", "averages", "spark", "spark_batches", "spark_rows", "spark_began_s"),
    *("late_us_p50", "late_us_p99", "alert_s_p50"),
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


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_spark_alerts_the_dealers_of_every_turn(java):
    summary = demo("--seconds", "10", "--rate", "300", "--patience", "200")
    assert summary["spark"] == "Spark found every turn"
    assert summary["alerts"] == summary["turns"] > 0
    assert summary["lost"] == summary["unasked"] == 0
    assert summary["spark_rows"] >= summary["published"] > 1_000


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


def test_people_see_the_dealers(capsys):
    assert app.run(["demo", "inproc://seen", "--seconds", "0.2"]) == 0
    printed = capsys.readouterr().out
    assert "dealer-20" in printed and "0 lost" in printed


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
