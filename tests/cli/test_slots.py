"""``pluribus slots`` without a bus: files are checked and drawn, passphrases become verifiers."""

import json
import os
import subprocess
import sys
from xml.etree import ElementTree

from pluribus.cli.app import run
from pluribus.slots.keys import is_verifier, verifier
from tests.slots.plans import FIGURE_2


def test_a_file_is_drawn(tmp_path, capsys):
    file, out = tmp_path / "figure2.bus", tmp_path / "bus.svg"
    file.write_text(FIGURE_2)
    assert run(["slots", "draw", str(file), "--out", str(out)]) == 0
    assert "figure2 is drawn in" in capsys.readouterr().out
    picture = ElementTree.parse(out).getroot()
    assert {group.get("id") for group in picture.iter("{http://www.w3.org/2000/svg}g")} == {
        "slot-producer",
        "slot-consumer1",
        "slot-consumer2",
        "slot-consumer3",
    }


def test_a_mistake_is_one_sentence(tmp_path, capsys):
    file = tmp_path / "wrong.bus"
    file.write_text("bus a\nslot b requierd")
    assert run(["slots", "check", str(file)]) == 2
    assert (
        capsys.readouterr()
        .err.strip()
        .endswith("line 2, column 8: 'requierd' is no kind of slot; did you mean 'required'?")
    )


def test_doubts_are_an_answer_of_no(tmp_path, capsys):
    file = tmp_path / "lonely.bus"
    file.write_text("bus a\nslot b { in x }")
    assert run(["slots", "check", str(file), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["doubts"][0] == "nothing reaches b.x; connect it, or remove it"


def test_a_passphrase_becomes_a_verifier(monkeypatch, capsys):
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("open sesame\n"))
    assert run(["slots", "key"]) == 0
    assert is_verifier(capsys.readouterr().out.strip())


PLAN = """bus town
role mayor "{key}"
reconfigure mayor
slot bell {{ out rings asks time }}
slot ears 0..many {{ in in }}
slot clock invoked {{ program "{python} -c \\"print('noon')\\"" answers now : text -> text }}
slot log invoked {{ program "{log}" in lines }}
slot eye shadow {{ enrol mayor }}
bell.rings -> ears.in ttl 20 s
bell.rings -> log.lines
bell.time -> clock.now
"""


def test_a_bus_from_the_command_line(tmp_path):
    """One terminal holds the bus, others look, enrol, send, ask, change routes and take the router over."""
    script, lines = tmp_path / "log.sh", tmp_path / "lines"
    script.write_text(f"#!/bin/sh\ncat >> {lines}\necho >> {lines}\n")
    script.chmod(0o755)
    key = verifier("sesame", b"s" * 16, 5)
    file = tmp_path / "town.bus"
    file.write_text(PLAN.format(key=key, python=sys.executable, log=script))
    url = f"multicast://slots-cli-{os.getpid()}"
    environment = {**os.environ, "PLURIBUS_URL": url, "PLURIBUS_KEY": "sesame"}

    def start(*words):
        command = [sys.executable, "-m", "pluribus", "slots", *words, "--stack", "best-effort", "--json"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)

    def ask(*words):
        process = start(*words)
        out, err = process.communicate(timeout=40)
        assert process.returncode == 0, (words, out, err)
        return json.loads(out.splitlines()[-1])

    held = start("up", str(file), "--seconds", "100")
    moved = ears = None
    try:
        assert json.loads(held.stdout.readline()) == {"bus": "town", "state": "running"}
        assert [found["bus"] for found in ask("ls")["buses"]] == ["town"]
        ears = start("enroll", "ears", "--count", "2")
        assert ask("send", "bell.rings", '{"floor": 3}')["acknowledged"] == [2]
        assert json.loads(ears.stdout.readline())["body"] == {"floor": 3}
        assert lines.read_text().strip() == '{"floor": 3}', "the log script of the report"
        assert ask("send", "bell.time", "now?", "--ask")["answers"] == ["noon"]
        ask("route", "bell.rings", "log.lines", "--as", "eye", "--delete")
        moved = start("move", "town", "--seconds", "100")
        assert json.loads(moved.stdout.readline())["bus"] == "town"
        held.wait(timeout=20)
        found = ask("show", "town")
        assert [route["target"] for route in found["routes"]] == ["ears.in", "clock.now"]
        assert ask("send", "bell.rings", "again")["acknowledged"] == [1]
    finally:
        for process in (held, moved, ears):
            if process is not None:
                process.kill()
                process.communicate()
