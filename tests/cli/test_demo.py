"""``pluribus demo --two``: two members talk on every kind of bus, and what is wrong is said in one sentence."""

import json
import os
import socket
import subprocess
import sys

import pytest

from pluribus.bench.ports import free_port
from pluribus.cli import app, talking
from pluribus.layers import CATALOGUE
from pluribus.stack.layer import Layer
from pluribus.wire.bodies import BYTES

SUMMARY = {"published", "delivered", "lost", "round_trip_us", "rate", "seconds"}
UNKNOWN_ADDRESS = "192.0.2.7"  # of the range that is kept for documentation: no machine has it


def demo(*arguments: str, seconds: float = 0.2) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pluribus", "demo", "--two", *arguments, "--seconds", str(seconds)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    "url",
    ["inproc://demo-{pid}", "multicast://demo-{pid}", "udp://127.0.0.1:{port}/demo", "tcp://127.0.0.1:{port}/demo"],
)
def test_two_members_talk_and_lose_nothing(url):
    answer = demo(url.format(pid=os.getpid(), port=free_port()), "--json")
    assert (answer.returncode, answer.stderr) == (0, "")
    summary = json.loads(answer.stdout)
    assert set(summary) == SUMMARY
    assert summary["lost"] == 0
    assert summary["published"] == summary["delivered"] > 1_000


def test_people_are_told_what_happens():
    answer = demo(f"udp://127.0.0.1:{free_port()}/demo")
    assert answer.returncode == 0
    for part in ("I am <member", "groups", "transport", "in the group 'questions': answerer", "0 lost", "a round trip"):
        assert part in answer.stdout


def test_the_bus_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("PLURIBUS_URL", f"inproc://from-the-environment-{os.getpid()}")
    assert "alone on inproc://from-the-environment" in demo().stdout


def test_a_stack_that_loses_is_found_out(monkeypatch, capsys):
    monkeypatch.setattr(talking, "ANSWER_S", 0.2)
    stack = "transport | presence | window | losing | groups"
    monkeypatch.setitem(CATALOGUE, "losing", Losing)
    assert app.run(["demo", "inproc://lossy", "--seconds", "0.2", "--stack", stack, "--json"]) == 1
    summary = json.loads(capsys.readouterr().out)
    assert summary["lost"] == summary["published"] - summary["delivered"] > 0


class Losing(Layer):
    """Loses the third frame of every stream of bytes; questions and answers come through."""

    name = "losing"

    def __init__(self) -> None:
        self.count = 0

    def up(self, frame):
        self.count += frame.kind == BYTES
        if frame.kind != BYTES or self.count != 3:
            self.pass_up(frame)


def complaint_of(arguments: list[str], capfd) -> str:
    """What the command says when it ends with 2: one sentence and nothing else."""
    assert app.run(arguments) == 2
    captured = capfd.readouterr()
    assert captured.err.startswith("pluribus: ")
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err + captured.out
    return captured.err


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("demo", "is not a bus URL"),
        ("http://demo", "names the engine 'http'"),
        ("udp://demo", "is not an address"),
        ("udp://127.0.0.1:70000/demo", "port from 0 to 65535"),
        ("multicast://", "does not name a bus"),
        ("multicast://demo?colour=red", "options that multicast does not know: colour"),
        ("udp://127.0.0.1:7001/demo?path=9", "use 576 to 60000"),
        (f"multicast://demo?interface={UNKNOWN_ADDRESS}", f"{UNKNOWN_ADDRESS} is not an address of this machine"),
        (f"udp://{UNKNOWN_ADDRESS}:7001/demo", "is of this machine: add ?bind="),
        (f"tcp://127.0.0.1:7001/demo?bind={UNKNOWN_ADDRESS}:0", "not an address of this machine"),
    ],
)
def test_a_wrong_url_is_one_sentence_with_the_remedy(url, part, capfd):
    assert part in complaint_of(["demo", url], capfd)


@pytest.mark.parametrize("engine", ["udp", "tcp"])
def test_a_taken_port_is_one_sentence_with_the_remedy(engine, capfd):
    kind = socket.SOCK_DGRAM if engine == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        if engine == "tcp":
            taken.listen()
        port = taken.getsockname()[1]
        url = f"{engine}://127.0.0.1:{port}/demo?bind=127.0.0.1:{port}"
        assert f"127.0.0.1:{port} is taken by another program: choose another port" in complaint_of(
            ["demo", url], capfd
        )


def test_a_port_that_only_one_member_can_have_is_told_by_the_second(capfd):
    port = free_port()
    complaint = complaint_of(["demo", "--two", f"udp://127.0.0.1:{port}/demo?bind=127.0.0.1:{port}", "--json"], capfd)
    assert "the second member could not join" in complaint and f"127.0.0.1:{port} is taken" in complaint


@pytest.mark.parametrize(
    ("stack", "part"),
    [
        ("window | transport", "starts with transport"),
        ("transport | window | groups", "window needs members from a layer below it"),
        ("transport | presence | presence | groups", "both provide"),
        ("transport | magic | groups", "there is no layer 'magic': use"),
        ("transport | drop(p=2) | presence | groups", "no probability"),
        ("transport | drop(p=", "no layer"),
        ("transport || groups", "empty place"),
        ("transport | presence", "needs exactly one layer 'groups'"),
    ],
)
def test_a_stack_that_does_not_fit_is_one_sentence_with_the_remedy(stack, part, capfd):
    assert part in complaint_of(["demo", "inproc://demo", "--stack", stack], capfd)
