"""Real processes under a test's hand: started, stopped, killed, cut off; their histories read while they run, and
checked when they are done."""

import heapq
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pluribus.cli import programs
from pluribus.sim.checkers.delivery import Checker, fifo, integrity
from pluribus.sim.checkers.orders import among, causal
from pluribus.sim.checkers.totals import excluded, reported, safe, total
from pluribus.sim.checkers.views import (
    converged,
    one_primary,
    sent_by_members,
    validity,
    view_agreement,
    view_synchrony,
)
from pluribus.sim.machinery.history import Happening, History
from tests.features import ROOT
from tests.real.member import GROUPS

WITHIN_S = 60.0
"""A condition that has not come true by then is a failure; no test waits so long to pass."""
CHECKERS = {
    "integrity": integrity,
    "fifo": fifo,
    "causal": causal,
    "total": total,
    "safe": safe,
    "reported": reported,
    "excluded": excluded,
    "validity": among(validity, "fifo", "causal"),
    "view_agreement": view_agreement,
    "view_synchrony": view_synchrony,
    "sent_by_members": sent_by_members,
    "one_primary": one_primary,
    "converged": converged,
}
_decode = msgspec.json.Decoder(Happening).decode


class Process:
    """One member. ``happenings`` is its history as far as it is written and was read (``look``)."""

    def __init__(self, url: str, name: str, folder: Path, before: list[str]) -> None:
        self.name = name
        self.path = folder / f"{name}.history"
        self.path.touch()
        self.happenings: list[Happening] = []
        self._read = 0
        self._ended = False
        command = [*before, sys.executable, "-m", "tests.real.member", url, name, str(self.path)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)

    @property
    def me(self) -> int:
        return self.happenings[0].member

    def look(self) -> list[Happening]:
        """What it has written by now; a last line that it was killed in does not count."""
        assert self._ended or self.process.poll() is None, f"{self.name} ended by itself: see its output"
        with self.path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        self.happenings += map(_decode, whole.splitlines())
        return self.happenings

    def views(self) -> list[Happening]:
        return [h for h in self.look() if h.what == "bus"]

    @property
    def view(self) -> tuple[int, ...]:
        views = self.views()
        return views[-1].members if views else ()

    @property
    def primary(self) -> bool:
        return bool(self.views()) and self.views()[-1].chain != (0, 0)

    def count(self, what: str) -> int:
        return sum(h.what == what for h in self.look())

    def delivered(self, group: str) -> set[tuple[int, int]]:
        return {h.id for h in self.look() if h.what == "deliver" and h.group == group}

    def latest(self) -> set[tuple[str, tuple[int, int]]]:
        """What it has delivered in its present view."""
        entered = max(at for at, h in enumerate(self.look()) if h.what == "bus")
        return {(h.group, h.id) for h in self.happenings[entered:] if h.what == "deliver"}

    def say(self, command: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self._ended = True
        self.process.kill()
        self.process.wait()

    def quit(self) -> None:
        self._ended = True
        self.say("quit")
        assert self.process.wait(WITHIN_S) == 0, f"{self.name} did not end well"


class Cluster:
    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.processes: list[Process] = []

    def start(self, names: str, before: list[str] | None = None, url: str | None = None) -> list[Process]:
        started = [Process(url or self.url, name, self.folder, before or []) for name in names.split()]
        self.processes += started
        return started

    def together(self, processes: list[Process]) -> bool:
        """They are in one view with nobody else, and have all joined their groups."""
        if not all(process.count("joined") for process in processes):
            return False
        if not all(process.views() for process in processes):
            return False
        one_view = len({process.views()[-1].id for process in processes}) == 1
        return one_view and sorted(processes[0].view) == sorted(process.me for process in processes)

    def settle(self, survivors: list[Process], more: dict[str, Checker] | None = None) -> dict[str, int]:
        """End the sending, wait until everything is delivered or reported, let all leave, and check what they wrote:
        how often each promise was checked. ``more`` are promises that hold under this test's faults."""
        for process in survivors:
            process.say("hush")
        eventually(lambda: all(p.count("hushed") == len(GROUPS) for p in survivors), "all are silent")
        eventually(lambda: self._quiet(survivors), "everything is delivered or reported")
        settled = Happening(time.monotonic(), 0, "settled", members=tuple(sorted(p.me for p in survivors)))
        histories = [process.look().copy() for process in self.processes]
        for process in survivors:
            process.quit()
        history = History()
        history.happenings = [*heapq.merge(*histories, key=lambda h: h.at), settled]
        checks = {name: check(history) for name, check in {**CHECKERS, **(more or {})}.items()}
        assert all(checks[name] > 0 for name in checks if name != "excluded"), checks
        return checks

    def _quiet(self, survivors: list[Process]) -> bool:
        """Everybody knows what became of its own, and all have delivered the same in the view that they are in."""
        for process in survivors:
            known = {(h.group, h.id) for h in process.look() if h.what in ("deliver", "uncertain")}
            if {(h.group, h.id) for h in process.happenings if h.what == "send"} - known:
                return False
        return len({frozenset(process.latest()) for process in survivors}) == 1


@contextmanager
def cluster(bus: str, folder: Path) -> Iterator[Cluster]:
    """Whatever happens, nobody is left behind."""
    found = Cluster(f"multicast://{bus}", folder)
    try:
        yield found
    finally:
        for process in found.processes:
            if process.process.poll() is None:
                process.signal(signal.SIGCONT)
                process.kill()
            if process.process.stdin is not None:
                process.process.stdin.close()


def eventually(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + WITHIN_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {WITHIN_S:g} s"
        time.sleep(0.02)  # between two looks; nothing is taken for true because time has passed
    return found


# --- two sites and a cable ------------------------------------------------------------------------------------------


class Sites:
    """Two network namespaces on a bridge in a third; ``cut`` takes one off the bridge, ``join`` puts it back."""

    ADDRESSES = ("10.213.78.1", "10.213.78.2")

    def __init__(self, tag: str) -> None:
        self.hub = f"{tag}-hub"
        self.names = [f"{tag}-a", f"{tag}-b"]

    def make(self) -> None:
        for name in (self.hub, *self.names):
            _ip("netns", "add", name)
        _ip("-n", self.hub, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
        _ip("-n", self.hub, "link", "set", "bridge", "up")
        for name, port, address in zip(self.names, ("port-a", "port-b"), self.ADDRESSES, strict=True):
            _ip("-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth", "netns", name)
            _ip("-n", self.hub, "link", "set", port, "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "eth")
            _ip("-n", name, "link", "set", "eth", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for name in (self.hub, *self.names):
            _ip("netns", "delete", name, check=False)

    def cut(self) -> None:
        _ip("-n", self.hub, "link", "set", "port-a", "nomaster")

    def join(self) -> None:
        _ip("-n", self.hub, "link", "set", "port-a", "master", "bridge")

    def before(self, site: int) -> list[str]:
        """What stands before a command that is to run there."""
        return ["ip", "netns", "exec", self.names[site]]


@contextmanager
def sites() -> Iterator[Sites]:
    if not programs.can_make_namespaces():
        pytest.skip(f"This test cuts a network in two. {programs.REMEDIES['namespaces']}")
    made = Sites(f"pluribus-{os.getpid()}")
    try:
        made.make()
        yield made
    finally:
        made.remove()


def _ip(*arguments: str, check: bool = True) -> None:
    subprocess.run(["ip", *arguments], check=check, capture_output=True, text=True)
