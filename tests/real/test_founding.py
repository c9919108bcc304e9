"""Real processes that start while those of the primary cannot be heard: there is no second primary, and nothing that
was acknowledged is lost."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.features import ROOT
from tests.real.cluster import WITHIN_S, eventually

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Loopback multicast and signals are tested on Linux."),
    pytest.mark.xdist_group("real"),
]

GAP_S = 2.5
"""So long the address of the URL is nobody's: those who dial it have long gone over to their longest pauses."""
PAUSED_S = 2.0
"""So long a starter hears nobody; one that takes itself for alone has founded by then, and called the replica."""


class Process:
    def __init__(self, url: str, name: str, folder: Path) -> None:
        self.name = name
        self.path = folder / f"{name}.lines"
        self.path.touch()
        command = [sys.executable, "-m", "tests.real.tally", url, name, str(self.path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)

    def lines(self, what: str) -> list[dict]:
        text = self.path.read_text()
        found = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
        return [line for line in found if what in line]

    @property
    def acknowledged(self) -> list[str]:
        return [line["acknowledged"] for line in self.lines("acknowledged")]

    def in_primary_of(self, members: int) -> bool:
        views = self.lines("members")
        return bool(views) and views[-1] == {"members": members, "primary": True}

    def more(self, count: int = 20) -> None:
        wanted = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= wanted, f"{self.name} goes on")

    def end(self) -> set[str]:
        """What the replica holds."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(WITHIN_S) == 0
        return set(self.lines("end")[0]["end"])

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@contextmanager
def processes(url: str, folder: Path) -> Iterator[dict[str, Process]]:
    class Started(dict[str, Process]):
        def __missing__(self, name: str) -> Process:
            self[name] = Process(url, name, folder)
            return self[name]

    found = Started()
    try:
        yield found
    finally:
        for process in found.values():
            process.kill()


def together(*people: Process) -> None:
    for process in people:
        eventually(lambda process=process: process.in_primary_of(len(people)), f"{process.name} is in one primary")


def a_while(seconds: float) -> None:
    """The time itself is what the test is about."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > until, f"{seconds} s have passed")


def nothing_is_lost(*people: Process) -> None:
    """Whatever was acknowledged to anybody is held by everybody."""
    acknowledged = {token for process in people for token in process.acknowledged}
    held = people[0].end()
    assert sorted(acknowledged - held) == []
    assert not any(process.lines("lost") for process in people)


def test_a_process_takes_over_the_address_of_the_url_and_meets_the_others_before_it_answers(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with processes(f"tcp://127.0.0.1:{port}/taken-{os.getpid()}", tmp_path) as found:
        first = found["first"]
        eventually(lambda: first.lines("me"), "the first has the address")
        assert first.lines("me")[0]["address"][1] == port
        others = [found["b"], found["c"]]
        together(first, *others)
        others[0].more()
        first.kill()
        together(*others)
        a_while(GAP_S)
        again = found["again"]
        eventually(lambda: again.lines("me"), "somebody has the address again")
        assert again.lines("me")[0]["address"][1] == port
        together(again, *others)
        again.more()
        others[0].more()
        assert {"members": 1, "primary": True} not in again.lines("members"), "it was a primary by itself"
        nothing_is_lost(*others, again)


def test_a_third_starts_while_two_members_are_stopped(tmp_path: Path):
    with processes(f"multicast://stopped-{os.getpid()}", tmp_path) as found:
        pair = [found["a"], found["b"]]
        together(*pair)
        pair[0].more()
        for process in pair:
            process.process.send_signal(signal.SIGSTOP)
        third = found["third"]
        eventually(lambda: third.lines("me"), "a third is on the bus")
        a_while(PAUSED_S)
        assert third.acknowledged == [] and not any(view["primary"] for view in third.lines("members"))
        for process in pair:
            process.process.send_signal(signal.SIGCONT)
        together(*pair, third)
        third.more()
        nothing_is_lost(*pair, third)


def test_whoever_waits_founds_as_soon_as_the_stopped_are_killed(tmp_path: Path):
    with processes(f"multicast://killed-{os.getpid()}", tmp_path) as found:
        first = found["first"]
        together(first)
        first.process.send_signal(signal.SIGSTOP)
        second = found["second"]
        eventually(lambda: second.lines("me"), "a second is on the bus")
        a_while(PAUSED_S)
        assert second.acknowledged == []
        first.kill()
        together(second)
        second.more()
