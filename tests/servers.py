"""Real servers for tests: started on free loopback ports in temporary folders, stopped by their own process id."""

import ctypes
import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pluribus.bench.ports import free_port

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
START_ATTEMPTS = 3
PR_SET_PDEATHSIG = 1  # linux/prctl.h

T = TypeVar("T")


class ServerFailed(RuntimeError):
    """The server ended or stayed silent; the message carries what it wrote."""


def _die_with_parent() -> None:
    """A test run that is killed takes its servers along."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait_for(condition: Callable[[], T | None], process: subprocess.Popen[bytes], log: Path) -> T:
    """Poll until the condition gives a value; fail as soon as the process has ended."""
    give_up_at = time.monotonic() + START_TIMEOUT_S
    while (value := condition()) is None:
        if process.poll() is not None or time.monotonic() > give_up_at:
            words = log.read_text(errors="replace")[-2000:]
            raise ServerFailed(f"{process.args} did not start (exit code {process.returncode}): {words}")
        time.sleep(POLL_S)
    return value


@contextmanager
def _running(command: list[str | Path], log: Path, user: str | None = None) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            user=user,
            cwd=log.parent,
            preexec_fn=_die_with_parent,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)  # for PostgreSQL a fast shutdown, for NATS an orderly one
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _folder(user: str | None) -> Iterator[Path]:
    """A folder that the server's user may enter, which a folder of pytest's own would not be."""
    folder = Path(tempfile.mkdtemp(prefix="pluribus-server-"))
    if user is not None:
        shutil.chown(folder, user)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_nats(program: Path) -> Iterator[str]:
    """A NATS server; yields its URL. It picks the port itself and tells it in a file, so no race is possible."""
    with _folder(None) as folder:
        log = folder / "log"
        command: list[str | Path] = [program, "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", folder]
        with _running(command, log) as process:

            def url() -> str | None:
                for ports in folder.glob("*.ports"):
                    if text := ports.read_text():
                        return str(json.loads(text)["nats"][0])
                return None

            yield _wait_for(url, process, log)


def _unprivileged_user() -> str | None:
    """The user to run PostgreSQL as, which refuses to run as root; None is this very user."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


@contextmanager
def running_postgres(programs: Path) -> Iterator[str]:
    """A PostgreSQL server with an empty database; yields its connection string."""
    user = _unprivileged_user()
    with _folder(user) as folder:
        data, log = folder / "data", folder / "log"
        subprocess.run(
            [programs / "initdb", "-D", data, "-U", "pluribus", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            user=user,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        for attempt in range(START_ATTEMPTS):
            port = free_port()
            dsn = f"postgresql://pluribus@127.0.0.1:{port}/postgres"
            # Tests kill processes, not machines, so nothing must reach the disk. Two-phase commit is off by default.
            settings = {"fsync": "off", "max_prepared_transactions": "16", "unix_socket_directories": ""}
            options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
            command = [programs / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), *options]
            with _running(command, log, user) as process:
                try:
                    _wait_for(lambda dsn=dsn: _answers(dsn), process, log)
                except ServerFailed:
                    if attempt + 1 == START_ATTEMPTS:
                        raise
                    continue
                yield dsn
                return


def _answers(dsn: str) -> bool | None:
    import psycopg

    try:
        with psycopg.connect(dsn, connect_timeout=2):
            return True
    except psycopg.OperationalError:
        return None
