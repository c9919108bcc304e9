"""``pluribus demo``: the dealing room loses nothing and delivers nothing that nobody asked for."""

import json
import os
import subprocess
import sys

import pytest

from pluribus.cli import app, dealing
from pluribus.pubsub.table import Table

SUMMARY = {
    *("providers", "dealers", "published", "delivered", "lost", "unasked", "alerts", "rate", "seconds"),
    *("late_us_p50", "late_us_p99"),
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
    assert summary["delivered"] > summary["published"] > 100


def test_people_see_the_dealers(capsys):
    assert app.run(["demo", "inproc://seen", "--seconds", "0.2"]) == 0
    printed = capsys.readouterr().out
    assert "dealer-20" in printed and "0 lost" in printed


def test_a_lost_event_is_found_out(monkeypatch, capsys):
    whole = Table.spread
    batches = iter(range(1_000_000))

    def lossy(self, arrived, hold=None):
        prices = arrived.batch.topics[0].startswith("stocks")
        if not (prices and len(self) > dealing.DEALERS_PER_DESK and 7 <= next(batches) < 40):
            whole(self, arrived, hold)

    monkeypatch.setattr(Table, "spread", lossy)
    assert app.run(["demo", "inproc://lossy-room", "--seconds", "0.3", "--rate", "5000", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["lost"] > 0
