"""Engines of Spark on loopback: a standalone cluster with two workers, a Connect server. Stopped by their processes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pyspark

from pluribus.bench.ports import free_port
from pluribus.pipeline import class_archive

HOME = Path(pyspark.__file__).parent
DEFAULTS = Path(__file__).with_name("spark-defaults.conf")
LOOPBACK = "127.0.0.1"
START_S = 120.0


def environment(address: str = LOOPBACK) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": address,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "512m",
        # A dozen Java machines start and end soon: what compiles well and collects on all cores would not pay.
        "JDK_JAVA_OPTIONS": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {class_archive.java_options()}",
    }


@contextmanager
def started(folder: Path, name: str, command: list[str], address: str = LOOPBACK) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(address), stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path, address: str = LOOPBACK) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert process.poll() is None, log.read_text()[-3000:]
        with socket.socket() as probe:
            if probe.connect_ex((address, port)) == 0:
                return
        assert time.monotonic() < deadline, f"nothing answers at port {port}: {log.read_text()[-3000:]}"
        time.sleep(0.1)  # between two looks


def wait_for_words(log: Path, words: str) -> None:
    deadline = time.monotonic() + START_S
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)  # between two looks


class Place(NamedTuple):
    """Where a worker runs: its address, and what stands before its command, to bring it there."""

    address: str = LOOPBACK
    before: tuple[str, ...] = ()


@contextmanager
def cluster(folder: Path, head: str = LOOPBACK, places: tuple[Place, Place] = (Place(), Place())) -> Iterator[str]:
    """A master at an address, and two workers of one core each."""
    port = free_port()
    url = f"spark://{head}:{port}"
    spark_class, deploy = str(HOME / "bin" / "spark-class"), "org.apache.spark.deploy"
    leads = [spark_class, f"{deploy}.master.Master", "--host", head, "--port", str(port), "--webui-port", "0"]
    with started(folder, "master", leads, head) as master, ExitStack() as workers:
        wait_for(master, port, folder / "master.log", head)
        for name, place in zip(("one", "other"), places, strict=True):
            work = [*place.before, spark_class, f"{deploy}.worker.Worker", "--host", place.address]
            work += ["-c", "1", "-m", "1g", "-d", str(folder / name), "--webui-port", "0", url]
            workers.enter_context(started(folder, name, work, place.address))
        for name in ("one", "other"):
            wait_for_words(folder / f"{name}.log", "Successfully registered")
        yield url


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "UTC",
        "spark.master": "local[2]",
    }
    command = [str(HOME / "bin" / "spark-submit"), "--properties-file", str(DEFAULTS)]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    with started(folder, "connect", [*command, "spark-internal"]) as server:
        wait_for(server, port, folder / "connect.log")
        yield f"sc://{LOOPBACK}:{port}"
