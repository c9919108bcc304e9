"""``pluribus objects``: listed, written to, asked and watched by a person."""

import json
import threading
import uuid

import pytest

import pluribus
from pluribus.cli.app import run
from tests.runtime.styles.objects.test_sync import Meter


@pytest.fixture
def url():
    found = f"multicast://objects-{uuid.uuid4().hex[:8]}"
    with pluribus.sync.connect(found, name="roof") as bus:
        bus.meter = Meter()
        bus.directory.add(bus.meter, "meter", "roof")
        bus.directory.add(Meter(), "other")
        yield found, bus


def test_ls(url, capsys):
    assert run(["objects", "ls", "--url", url[0], "--json", "--seconds", "10"]) == 0
    listed = json.loads(capsys.readouterr().out)["objects"]
    assert [(row["type"], row["aliases"], row["member"]) for row in listed] == [
        ("Meter", ["meter", "roof"], "roof"),
        ("Meter", ["other"], "roof"),
    ]
    assert run(["objects", "ls", "--url", url[0], "--alias", "roof", "--seconds", "10"]) == 0
    assert "meter roof" in capsys.readouterr().out


def test_send_and_ask(url, capsys):
    given = ["--url", url[0], "--seconds", "10"]
    assert run(["objects", "send", '(tell :receiver meter :content "typed")', *given]) == 0
    assert run(["objects", "send", "(tell :content json)", "--to", "meter", "--json", *given]) == 0
    assert json.loads(capsys.readouterr().out) == {"sent": "(tell :content json)", "to": "meter"}
    assert run(["objects", "ask", "(ask-one :receiver roof :content degrees)", *given]) == 0
    assert "(tell :content 21.5 :in-reply-to" in capsys.readouterr().out
    assert run(["objects", "ask", "(broadcast :receiver meter :content (ask-one))", "--json", *given]) == 0
    assert json.loads(capsys.readouterr().out)["answers"][0]["content"] == "21.5"
    assert run(["objects", "ask", "(ask-one :receiver roof :content wrong)", *given]) == 1
    assert "LookupError: nothing here" in capsys.readouterr().out
    assert set(url[1].meter.heard) >= {"typed", "json"}


def test_what_is_wrong_is_one_sentence(url, capsys):
    for text, sentence in (
        ("(ask-one :receiver roof", "line 1, column 1: this message is not closed"),
        ("(ask-one :content x)", "nobody is named"),
        ("(ask-one :receiver nobody)", "no object on this bus has the alias 'nobody'"),
    ):
        assert run(["objects", "ask", text, "--url", url[0], "--seconds", "0.2"]) == 2
        assert sentence in capsys.readouterr().err


def test_watch(url, capsys):
    found, bus = url

    def talk() -> None:
        bus.directory.find("alarms", timeout=20)
        bus.communicator.send("alarms", "(tell :content fire)")
        bus.communicator.send_object("alarms", {"floor": 3})

    talking = threading.Thread(target=talk)
    talking.start()
    assert run(["objects", "watch", "alarms", "--url", found, "--count", "2", "--seconds", "60", "--json"]) == 0
    talking.join()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[0]["content"] == "fire" and lines[1] == {"object": {"floor": 3}}
    assert run(["objects", "watch", "nothing", "--url", found, "--seconds", "0.1"]) == 1
