"""Spark in the dealing room: a process that runs a backbone (``backbone.toml``) until the room closes.

It is a process of its own because a Java machine takes seconds to start and must not hold up the room. It reports every
micro-batch on the bus, as a client, and ends when its standard input ends.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pluribus.cli import programs
from pluribus.core.errors import PluribusError

LEAST_S = 10.0
"""Seconds that a room must be open for Spark to take part: a shorter one has closed before Spark has started."""
END_S = 20.0
FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
SETTINGS = {
    "spark.sql.shuffle.partitions": 2,
    "spark.driver.memory": "1g",
    # Short queries on a machine that has other things to do: what compiles and replans them costs more than it saves.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
    # The usual one runs the programs readlink and chmod several times for each file of a checkpoint.
    "spark.sql.streaming.checkpointFileManagerClass": FILES,
    "spark.log.level": "ERROR",
}


def why_not(seconds: float) -> str:
    """The sentence that says why Spark cannot take part; empty if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "Spark takes no part, because it is not installed: pip install 'pluribus[spark]'"
    if 0 < seconds < LEAST_S:
        return f"Spark takes no part in a room of {seconds:g} s, which is over before Spark has started: give it 20"
    if programs.find_java() is None:
        return f"Spark takes no part, because Java is missing: {programs.REMEDIES['java'].rstrip('.')}"
    return ""


CONFIGURATION = Path(__file__).with_name("backbone.toml")
NOWHERE = "client://127.0.0.1:1/none"
REPORT = ("read", "good", "dead", "dropped", "late", "duplicate", "lost", "adds_up")
BEGINS = "Spark starts"
STARTS, PLANS, RUNS = "Java starts", "the backbone is planned", "the first prices are read"
"""The phases of Spark before its first answer, in this order."""


def work(folder: str) -> None:
    """Run the job, in the process of its own, on the bus that the first line of standard input names, until standard
    input ends. Each step prints a line on standard output."""
    _tell(STARTS)
    from pluribus import sync
    from pluribus.pipeline.backbone.configuration import load
    from pluribus.pipeline.backbone.groups import groups
    from pluribus.pipeline.backbone.running import Backbone
    from pluribus.pipeline.session import session

    places = {"spark.local.dir": folder}
    try:
        with session("local[2]", "dealing room", **SETTINGS, **places) as spark:
            _tell(PLANS)
            url = sys.stdin.readline().strip()
            configuration = load(CONFIGURATION, url or NOWHERE)
            configuration.state, configuration.tables = f"{folder}/state", f"{folder}/tables"
            running = Backbone(spark, configuration)
            threading.Thread(target=_stop_with_the_room, args=(running,), daemon=True).start()
            if url:
                _tell(RUNS)
                # Every gold of a query reads for itself, and Spark adds that up.
                golds = {group.name: len(group.golds) for group in groups(configuration)}
                with sync.connect(url, name="spark") as bus:

                    def progress(told: dict[str, Any]) -> None:
                        rows = told["rows"] // golds.get(told["query"], 1)
                        bus.publish("room/spark", {**told, "rows": rows, "answers": told["query"] in golds})

                    found = running.run(progress=progress)
                _tell(json.dumps({name: found[name] for name in REPORT}))
    except PluribusError as error:
        sys.exit(str(error))


def _tell(step: str) -> None:
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


def _stop_with_the_room(running: Any) -> None:
    sys.stdin.read()
    running.stop()


class Crew:
    """The room's side of the process. Spark keeps its files in ``folder``, which the caller removes."""

    def __init__(self, folder: str) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by end()
        code = f"from pluribus.cli.dealing.spark import work; work({folder!r})"
        # Ctrl-C is for the room, which then ends this one: a Java machine that hears of it first dies with its queries.
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
        )
        self.step = STARTS
        self.batches = self.rows = self.answered = 0
        """Micro-batches of all queries; prices that were read, and prices in which turns were looked for."""
        self.began_s: float | None = None
        self.report: dict[str, Any] | None = None
        """What became of the prices, once it has ended."""
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = line.decode(errors="replace").strip()
            if told.startswith("{"):
                self.report = json.loads(told)
            else:
                self.step = told

    def begin(self, url: str) -> None:
        """Tell the process the URL of the bus."""
        assert self._process.stdin is not None
        with suppress(OSError):  # it is gone: complaint() tells why
            self._process.stdin.write(f"{url}\n".encode())
            self._process.stdin.flush()

    def heard(self, told: dict[str, Any], now_s: float) -> None:
        """Handle the report of one micro-batch."""
        self.began_s = now_s if self.began_s is None else self.began_s
        self.batches += 1
        self.rows += told["rows"] if told["query"] == "intake" else 0
        self.answered += told["rows"] if told["answers"] else 0

    def complaint(self) -> str:
        """The reason why the process ended; empty if it runs."""
        if self._errors.closed or not self._process.poll():
            return ""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"Spark ended too early: {lines[-1] if lines else 'without a word'}"

    def end(self, seconds: float) -> None:
        """Let the process finish its micro-batch and end; after so many seconds it is killed, with its Java machine.
        Calling it again is harmless."""
        if self._errors.closed:
            return
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._listener.join(seconds)
        self._errors.close()
