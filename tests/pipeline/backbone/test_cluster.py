"""A backbone on a standalone cluster whose workers are in network namespaces of their own. Executors, a keeper and
drivers are killed, a worker is cut off, the disk of the tables is full: the report adds up, and every answer is there
once."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pluribus.bench.ports import free_port
from pluribus.cli import programs
from tests.pipeline import engines
from tests.pipeline.backbone.rooms import COUNTED, numbers, put, verified
from tests.pipeline.test_jobs import descendants
from tests.real.cluster import Sites, _ip, eventually
from tests.real.processes import processes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
DISK_BYTES = 24 << 20
NO_WORKER = "Python worker failed to connect back"
"""On an overloaded machine Spark gives up by itself now and then, as it waits for its own workers for ten seconds only:
which is a kill like any other."""


class Hosts(Sites):
    """Two sites for workers, on a bridge with this machine."""

    ADDRESSES = ("10.213.79.1", "10.213.79.2")
    HOME = "10.213.79.254"

    def make(self) -> None:
        super().make()
        cable = f"plb{os.getpid()}"
        _ip("link", "add", cable, "type", "veth", "peer", "name", "port-home", "netns", self.hub)
        _ip("-n", self.hub, "link", "set", "port-home", "master", "bridge", "up")
        _ip("address", "add", f"{self.HOME}/24", "dev", cable)
        _ip("link", "set", cable, "up")


@contextmanager
def hosts():
    if not programs.can_make_namespaces():
        pytest.skip(f"This test gives workers of Spark networks of their own. {programs.REMEDIES['namespaces']}")
    made = Hosts(f"plspark-{os.getpid()}")
    try:
        made.make()
        yield made
    finally:
        made.remove()


@contextmanager
def small_disk(folder: Path):
    """A file system of its own that can be filled."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip(f"This test fills a disk, and may not mount one: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Driver:
    """A driver of the backbone under the test's hand. ``told`` is what it said on standard error."""

    def __init__(self, path: Path, url: str, master: str, *more: str) -> None:
        settings = {
            "spark.driver.host": Hosts.HOME,
            "spark.sql.shuffle.partitions": "2",
            "spark.executor.memory": "700m",
            "spark.network.timeout": "20s",
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "2s",
            "spark.python.daemon.module": "pluribus.pipeline.daemon",
            "spark.log.level": "ERROR",
        }
        command = [sys.executable, "-m", "pluribus", "pipeline", "backbone", str(path), "--url", url]
        command += ["--master", master, *(f"--conf={name}={value}" for name, value in settings.items()), *more]
        self.process = subprocess.Popen(
            [*command, "--json"],
            env=engines.environment(Hosts.HOME),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.told: list[str] = []
        self.ended = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        self.told.extend(iter(self.process.stderr.readline, ""))
        self.ended.set()

    def more(self, what: str, count: int = 1) -> bool:
        """Wait until it has told more of a query; false if it ended, as Spark does on an overloaded machine."""
        wanted = sum(line.startswith(what) for line in self.told) + count
        while sum(line.startswith(what) for line in self.told) < wanted:
            if self.ended.wait(0.1):
                assert any(NO_WORKER in line for line in self.told), "".join(self.told)[-3000:]
                return False
        return True

    def kill(self) -> None:
        for one in (self.process.pid, *descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        self.process.wait()


@contextmanager
def driver(*arguments: object):
    made = Driver(*arguments)
    try:
        yield made
    finally:
        made.kill()
        made.ended.wait(10)
        made.process.stdout.close()
        made.process.stderr.close()


def executors(address: str) -> list[int]:
    """The processes of executors that work at an address."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = place.read_bytes().split(b"\0")
            if any(b"CoarseGrainedExecutorBackend" in word for word in words) and address.encode() in words:
                found.append(int(place.parent.name))
    return found


class Publisher:
    """A hundred numbers, again and again."""

    def __init__(self, url: str) -> None:
        self.count = 0
        self._url = url
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._publish)

    def _publish(self) -> None:
        while not self._stopping.wait(0.3) and self.count < 20_000:
            put(self._url, "numbers/a", 1, self.count + 1, numbers(self.count, self.count + 100))
            self.count += 100

    def __enter__(self) -> "Publisher":
        put(self._url, "numbers/a", 2, 1, numbers(1, 4))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


def test_executors_keepers_drivers_a_network_and_a_disk_fail_under_a_backbone(java, tmp_path):
    from pluribus.pipeline.backbone.configuration import load

    with hosts() as network, small_disk(tmp_path / "disk") as disk, processes(tmp_path) as kept:
        path = tmp_path / "counted.toml"
        path.write_text(COUNTED.replace('"tables"', f'"{disk}/tables"').replace("rows = 400", "rows = 2000"))
        kept.addresses = {name: f"{network.HOME}:{free_port()}" for name in "abc"}
        for name in "abc":
            kept.keep(name)
        places = [engines.Place(address, tuple(network.before(site))) for site, address in enumerate(network.ADDRESSES)]
        with engines.cluster(tmp_path / "cluster", network.HOME, tuple(places)) as master:
            with Publisher(kept.url) as publisher:
                under_faults(path, kept, master, network, disk)
                with driver(path, kept.url, master) as second:
                    second.more("tiers batch")  # and is killed
            with driver(path, kept.url, master, "--once") as last:
                assert last.process.wait(600) == 0, "".join(last.told)[-3000:]
                found = json.loads(last.process.stdout.read())
            verified(load(path, kept.url), found["total"], range(publisher.count))


def under_faults(path, kept, master, network, disk):
    """One driver, until the disk is full."""
    while True:
        if "a" not in kept.running:  # it was killed in a try that came to nothing
            kept.keep("a")
        with driver(path, kept.url, master) as first:
            if not first.more("intake batch"):
                continue
            (victim,) = eventually(lambda: executors(network.ADDRESSES[0]), "an executor")
            os.kill(victim, signal.SIGKILL)
            kept.kill("a")
            if not first.more("intake batch", 2):
                continue
            kept.keep("a")
            network.cut()
            try:
                alive = first.more("tiers batch", 2)
            finally:
                network.join()
            if not alive:
                continue
            ballast = disk / "ballast"
            fill(ballast)
            first.process.wait(300)
            ballast.unlink()
            first.ended.wait(10)
            said = "".join(first.told)
            assert first.process.returncode == 2, said[-3000:]
            assert "No space left on device" in said.splitlines()[-1], said[-3000:]
            return


def fill(path):
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
