"""Engines of Spark on loopback: a standalone cluster with two workers, a Connect server. Stopped by their processes."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from pluribus.bench.ports import free_port

HOME = Path(pyspark.__file__).parent
LOOPBACK = "127.0.0.1"
START_S = 120.0


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_DAEMON_MEMORY": "512m",
        # A dozen Java machines start and end soon: what compiles well and collects on all cores would not pay.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


@contextmanager
def started(folder: Path, name: str, command: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment(), stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while True:
        assert process.poll() is None, log.read_text()[-3000:]
        with socket.socket() as probe:
            if probe.connect_ex((LOOPBACK, port)) == 0:
                return
        assert time.monotonic() < deadline, f"nothing answers at port {port}: {log.read_text()[-3000:]}"
        time.sleep(0.1)  # between two looks


def wait_for_words(log: Path, words: str) -> None:
    deadline = time.monotonic() + START_S
    while words not in log.read_text():
        assert time.monotonic() < deadline, log.read_text()[-3000:]
        time.sleep(0.1)  # between two looks


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers of one core each."""
    port = free_port()
    url = f"spark://{LOOPBACK}:{port}"
    spark_class = [str(HOME / "bin" / "spark-class")]
    head = [*spark_class, "org.apache.spark.deploy.master.Master", "--host", LOOPBACK, "--port", str(port)]
    work = [*spark_class, "org.apache.spark.deploy.worker.Worker", "--host", LOOPBACK, "-c", "1", "-m", "1g"]
    with started(folder, "master", [*head, "--webui-port", "0"]) as master:
        wait_for(master, port, folder / "master.log")
        one = [*work, "-d", str(folder / "one"), "--webui-port", "0", url]
        other = [*work, "-d", str(folder / "other"), "--webui-port", "0", url]
        with started(folder, "one", one), started(folder, "other", other):
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
    command = [str(HOME / "bin" / "spark-submit")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    with started(folder, "connect", [*command, "spark-internal"]) as server:
        wait_for(server, port, folder / "connect.log")
        yield f"sc://{LOOPBACK}:{port}"
