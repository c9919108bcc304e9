"""The archive of Java's classes that Spark needs: with it Java starts with half the work.

Java spends most of its first seconds on reading and checking some ten thousand classes. It can write them down, as they
are in memory, when a program ends, and take them from there the next time ("class data sharing"). ``python -m
pluribus.pipeline.class_archive`` makes such a file (some 200 MB) beside this environment's packages, by running a small
backbone; set-up does that. Sessions whose driver is in this process use the file (``session.py``).

The file is good for the very Java and the very jars that it was made with. A *stamp* beside it names these. With others
the file is not used, ``pluribus doctor`` says so, and the next set-up makes it again. Java, too, compares file and
jars when it starts, and does without a file that does not fit.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
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
REHEARSAL_S = 300.0
OPTIONS = "SPARK_SUBMIT_OPTS"
"""A variable of the environment: options for the driver's Java, in front of those that a configuration or a program
gives, which all stay."""


def java() -> Path | None:
    """The Java that Spark starts, if there is one: that of JAVA_HOME, else that of the path."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    return Path(found) if found else None


def archive() -> Path:
    """Where the file is, or would be."""
    return Path(sys.prefix) / "share" / "pluribus" / "spark.jsa"


def _stamp_of(file: Path) -> Path:
    return file.with_suffix(".stamp")


def stamp() -> str:
    """What a file has to be made with: this Java and these jars. Empty without one of them."""
    program, jars = java(), _jars()
    if program is None or jars is None:
        return ""
    real = program.resolve()
    seen = [(jar.name, jar.stat().st_size, jar.stat().st_mtime_ns) for jar in sorted(jars.glob("*.jar"))]
    about = real.stat()
    return f"{real} {about.st_size} {about.st_mtime_ns}\n{jars} {len(seen)} {zlib.crc32(repr(seen).encode())}\n"


def _jars() -> Path | None:
    home = os.environ.get("SPARK_HOME")
    if not home:
        spec = find_spec("pyspark")
        home = next(iter(spec.submodule_search_locations or ()), None) if spec is not None else None
    folder = Path(home, "jars") if home else None
    return folder if folder is not None and folder.is_dir() else None


def fits() -> bool:
    """True if the file is there, and was made with this Java and these jars."""
    file = archive()
    try:
        return file.is_file() and _stamp_of(file).read_text(encoding="utf-8") == stamp() != ""
    except OSError:
        return False


def java_options() -> str:
    """For Java, to use the file; empty if there is none that fits."""
    file = archive()
    if any(letter.isspace() or letter in "\"'\\" for letter in str(file)) or not fits():
        return ""
    # What Java has to say about a file that does not fit goes to standard output, which is the program's.
    return f"-XX:SharedArchiveFile={file} -Xshare:auto -Xlog:disable -Xlog:all=error:stderr"


@contextmanager
def in_use() -> Iterator[None]:
    """A Java that Spark starts meanwhile uses the file."""
    before, options = os.environ.get(OPTIONS), java_options()
    if not options:
        yield
        return
    os.environ[OPTIONS] = f"{options} {before or ''}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[OPTIONS]
        else:
            os.environ[OPTIONS] = before


def make() -> str:
    """Make the file, unless one is there that fits. Returns the reason why that cannot be done, with nothing changed;
    empty if the file is there."""
    if fits():
        return ""
    wanted, file = stamp(), archive()
    if not wanted:
        return "PySpark or Java is missing"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=file.parent) as folder:
            made = Path(folder) / file.name
            if reason := _rehearsed(made):
                return reason
            _stamp_of(file).unlink(missing_ok=True)  # the old file's; without one, no file is used
            os.replace(made, file)
            beside = made.with_suffix(".stamp")
            beside.write_text(wanted, encoding="utf-8")
            os.replace(beside, _stamp_of(file))
    except OSError as error:
        return str(error)
    for old in file.parent.glob("spark-*.jsa"):  # of releases that had the version in the name
        old.unlink(missing_ok=True)
    return ""


def _rehearsed(made: Path) -> str:
    """Run the small backbone in a process of its own; the reason if there is no file afterwards."""
    command = [sys.executable, "-m", "pluribus.pipeline.class_archive", str(made)]
    with tempfile.TemporaryFile() as said:
        # Java writes when it ends, after the program that started it: its standard output is open until then.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, start_new_session=True
        )
        try:
            process.communicate(timeout=REHEARSAL_S)
        except subprocess.TimeoutExpired:
            return f"it was not done after {REHEARSAL_S:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # whatever is left of it
            process.wait()
        if process.returncode or not made.is_file():
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            return lines[-1] if lines else "Java has written nothing"
    return ""


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
        sys.exit(make() or None)
