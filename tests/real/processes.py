"""Keepers, publishers and subscribers as processes under a test's hand."""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from pluribus.runtime.clients.log_client import LogClient
from tests.features import ROOT
from tests.real.cluster import WITHIN_S, eventually
from tests.real.kept import TOPIC


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
            self.begin(name)
        self.wait(*names)

    def wait(self, *names: str) -> None:
        """Until these keepers say that they are there."""
        for name in names:
            out = self.folder / f"{name}.out"
            eventually(lambda: out.read_bytes().count(b"\n") >= 1, f"keeper {name} is there")  # noqa: B023
            self.addresses[name] = json.loads(out.read_text().splitlines()[0])["serves"][0]

    def begin(self, name: str, *options: str) -> None:
        out = self.folder / f"{name}.out"
        serve = self.addresses.get(name, "127.0.0.1:0")
        command = [sys.executable, "-m", "pluribus", "keep", "--store", str(self.folder / f"{name}.db")]
        command += ["--url", f"multicast://{self.bus}", "--serve", serve, "--name", name, "--json", *options]
        with out.open("wb") as file:
            self.running[name] = subprocess.Popen(command, stdout=file, cwd=ROOT)

    def stop(self, *names: str) -> dict[str, tuple[int, int]]:
        """End keepers as Ctrl-C does: how many voters each knew, and words of keepers of another log."""
        for name in names:
            self.running[name].send_signal(signal.SIGINT)
        for name in names:
            assert self.running.pop(name).wait(WITHIN_S) == 0
        ends = {name: json.loads((self.folder / f"{name}.out").read_text().splitlines()[-1]) for name in names}
        return {name: (len(end["voters"]), end["strangers"]) for name, end in ends.items()}

    def start(self, what: str, name: str, file: str) -> None:
        """A client that publishes or subscribes."""
        self._start("tests.real.kept", what, self.url, name, file)

    def start_live(self, what: str, name: str, file: str) -> None:
        """The same, as a member and without keepers."""
        self._start("tests.real.live", what, f"multicast://{self.bus}", name, file)

    def _start(self, program: str, what: str, url: str, name: str, file: str) -> None:
        path = self.folder / file
        path.touch()
        command = [sys.executable, "-m", program, what, url, name, str(path)]
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
        with LogClient(self.url) as reader:
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
