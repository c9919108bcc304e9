"""The bench of the chat's page measures what it says."""

import pytest

from pluribus.bench import bench, chat
from tests.console.town import browser

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
pytest.importorskip("nicegui", reason="NiceGUI is not installed: make setup")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser() is None, reason="no Chromium on this machine: apt-get install chromium"),
]


def test_it_reports_how_a_room_opens_and_a_message_comes(monkeypatch):
    monkeypatch.setattr(chat, "MESSAGES", 600)
    found = bench("chat")(quick=True)
    assert [(row["unit"], row["runs"]) for row in found["results"]] == [("s", 2), ("ms", 5)]
    assert all(row["value"] > 0 for row in found["results"]) and len(found["goals"]) == 2
