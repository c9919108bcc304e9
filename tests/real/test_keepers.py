"""Keepers, publishers and subscribers as processes, killed without warning: nothing acknowledged is lost or doubled."""

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from pluribus.runtime.reader import LogReader
from tests.features import ROOT
from tests.real.cluster import eventually
from tests.real.kept import TOPIC

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="Loopback multicast and signals are tested on Linux."),
    pytest.mark.xdist_group("real"),
]


class Processes:
    """Everything that a test starts; what is left is killed at its end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bus = f"kept-{os.getpid()}-{folder.name}"
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}

    def keep(self, *names: str) -> None:
        """Start keepers, or start them again at their addresses."""
        for name in names:
            self._keep(name)
        for name in names:
            out = self.folder / f"{name}.out"
            eventually(lambda: out.read_bytes().count(b"\n") >= 1, f"keeper {name} is there")  # noqa: B023
            self.addresses[name] = json.loads(out.read_text().splitlines()[0])["serves"][0]

    def _keep(self, name: str) -> None:
        out = self.folder / f"{name}.out"
        serve = self.addresses.get(name, "127.0.0.1:0")
        command = [sys.executable, "-m", "pluribus", "keep", "--store", str(self.folder / f"{name}.db")]
        command += ["--url", f"multicast://{self.bus}", "--serve", serve, "--name", name, "--json"]
        with out.open("wb") as file:
            self.running[name] = subprocess.Popen(command, stdout=file, cwd=ROOT)

    def start(self, what: str, name: str, file: str) -> None:
        path = self.folder / file
        path.touch()
        command = [sys.executable, "-m", "tests.real.kept", what, self.url, name, str(path)]
        self.running[name] = subprocess.Popen(command, cwd=ROOT)

    @property
    def url(self) -> str:
        return f"client://{','.join(self.addresses.values())}/{self.bus}"

    def kill(self, *names: str) -> None:
        for name in names:
            self.running[name].kill()
        for name in names:
            self.running.pop(name).wait()

    def lines(self, file: str) -> list[str]:
        """Without a last line that its writer was killed in."""
        text = (self.folder / file).read_text()
        return text[: text.rfind("\n") + 1].splitlines()

    def more(self, file: str, count: int = 200) -> None:
        wanted = len(self.lines(file)) + count
        eventually(lambda: len(self.lines(file)) >= wanted, f"{file} goes on")

    def log(self) -> list[str]:
        with LogReader(self.url) as reader:
            first, end = reader.offsets(TOPIC)
            assert first == 0
            return [body for batch in reader.read(TOPIC, 0, end) for body in batch.decoded()]


@contextmanager
def processes(folder: Path):
    found = Processes(folder)
    try:
        yield found
    finally:
        found.kill(*found.running)


def check_publishers(log: list[str], acknowledged: list[str]) -> None:
    """Everything acknowledged is there; each publisher's numbers are there once, in order, without a gap."""
    numbers: dict[str, list[int]] = {}
    for body in log:
        name, number = body.split()
        numbers.setdefault(name, []).append(int(number))
    for name, found in numbers.items():
        assert found == list(range(len(found))), f"{name} is not in order, or not once"
    assert set(acknowledged) <= set(log)


def check_subscriber(log: list[str], handled: list[str], lives: int) -> None:
    """Every event was handled, in order; after a crash it goes on where it had committed, not further behind."""
    offsets = [int(line.split()[0]) for line in handled]
    assert [line.partition(" ")[2] for line in handled] == [log[offset] for offset in offsets]
    backwards = [(one, other) for one, other in pairwise(offsets) if other != one + 1]
    assert len(backwards) < lives, f"{backwards} are jumps that no crash explains"
    assert all(other <= one for one, other in backwards), f"{backwards} leave something out"
    assert set(offsets) == set(range(max(offsets) + 1))


def test_publisher_and_subscriber_are_killed(tmp_path: Path):
    with processes(tmp_path) as found:
        found.keep("a")
        found.start("subscribe", "reader-0", "handled")
        for life in range(3):
            found.start("publish", f"writer-{life}", "acknowledged")
            found.more("acknowledged")
            found.more("handled")
            found.kill(f"writer-{life}", f"reader-{life}")
            found.start("subscribe", f"reader-{life + 1}", "handled")
        log = found.log()
        eventually(lambda: int(found.lines("handled")[-1].split()[0]) == len(log) - 1, "everything is handled")
        check_publishers(log, found.lines("acknowledged"))
        check_subscriber(log, found.lines("handled"), 4)


def test_keepers_are_killed_one_by_one_and_all_at_once(tmp_path: Path):
    with processes(tmp_path) as found:
        for name in "abc":
            found.keep(name)
        found.start("publish", "writer", "acknowledged")
        found.start("subscribe", "reader", "handled")
        found.more("acknowledged")
        for name in "ab":
            found.kill(name)
            found.more("acknowledged")
            found.keep(name)
        found.more("acknowledged")
        found.kill(*"abc")
        found.keep(*"abc")
        found.more("acknowledged")
        found.more("handled")
        found.kill("writer")
        log = found.log()
        eventually(lambda: int(found.lines("handled")[-1].split()[0]) == len(log) - 1, "everything is handled")
        check_publishers(log, found.lines("acknowledged"))
        check_subscriber(log, found.lines("handled"), 1)
