"""The archive of Java's classes that Spark needs: with it Java starts with half the work.

Java spends most of its first seconds on reading and checking some ten thousand classes. It can write them down, as they
are in memory, when a program ends, and take them from there the next time ("class data sharing"). ``python -m
pluribus.pipeline.class_archive`` makes such a file beside this environment's packages, by running a small backbone;
set-up does that once. Every session whose driver is in this process uses the file (``session.py``). Java compares it
with its own version and the jars, and where these have changed does without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

BACKBONE = """
name = "rehearsal"
state = "state"
tables = "tables"
queries = "few"

[[silver]]
name = "ticks"
topics = "ticks/#"
fields = "symbol string, price double"
levels = { exchange = 2 }

[[silver.rules]]
name = "a price"
where = "price > 0"

[[gold]]
name = "turns"
of = "ticks"
kind = "pattern"
time = "at"
topic = "turns/{exchange}"
pattern = \"\"\"
    PARTITION BY exchange, symbol ORDER BY time, offset MEASURES FIRST(price) AS top, LAST(time) AS at
    PATTERN (TOP DOWN) DEFINE DOWN AS price < PREV(price)
\"\"\"

[[gold]]
name = "averages"
of = "ticks"
kind = "windows"
width = "10 seconds"
every = "5 seconds"
by = ["symbol"]
where = "symbol <> 'none'"
topic = "averages"
values = { mean = "avg(price)", ticks = "count(*)" }
"""
TICKS = 200
REHEARSAL_S = 600.0


def archive() -> Path | None:
    """Where the file is, or would be; None without Spark."""
    try:
        return Path(sys.prefix) / "share" / "pluribus" / f"spark-{version('pyspark')}.jsa"
    except PackageNotFoundError:
        return None


def java_options() -> str:
    """For Java, to use the file; empty if there is none."""
    file = archive()
    if file is None or not file.is_file() or any(letter.isspace() for letter in str(file)):
        return ""
    # What Java has to say about a file that does not fit goes to standard output, which is the program's.
    return f"-XX:SharedArchiveFile={file} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


def make() -> bool:
    """Make the file, unless it is there. False, with nothing changed, if Spark cannot run here."""
    file = archive()
    if file is None:
        return False
    if file.is_file():
        return True
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            made = Path(folder) / file.name
            # Java writes when it ends, after this program; it has the same standard output, which is open until then.
            command = [sys.executable, "-m", "pluribus.pipeline.class_archive", str(made)]
            subprocess.run(command, capture_output=True, timeout=REHEARSAL_S, check=True)
            os.replace(made, file)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def rehearse(file: str) -> None:
    """Run a small backbone on a bus of its own; its Java writes the file when it ends."""
    from .. import sync
    from .backbone.configuration import load
    from .backbone.running import Backbone
    from .session import session

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "backbone.toml"
        path.write_text(BACKBONE, encoding="utf-8")
        settings = {
            "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={file} -Xlog:disable -XX:TieredStopAtLevel=1",
            "spark.driver.memory": "1g",
            "spark.local.dir": folder,
            "spark.sql.shuffle.partitions": 2,
            "spark.log.level": "ERROR",
        }
        with sync.connect("inproc://rehearsal", store=Path(folder) / "keeper.db", serve="127.0.0.1:0") as bus:
            for number in range(TICKS):
                bus.publish("ticks/here/IBM", {"symbol": "IBM", "price": 100.0 + number % 7}, durable=True)
            host, port = bus.doors[0].address
            with session("local[2]", "rehearsal", **settings) as spark:
                Backbone(spark, load(path, f"client://{host}:{port}/{bus.url.bus}")).run(once=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rehearse(sys.argv[1])
    else:
        sys.exit(0 if make() else 1)
