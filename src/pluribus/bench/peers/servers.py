"""Servers of peers, each started for one measurement and ended with it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, sleep

from ...core.errors import Unavailable
from ..ports import free_port

START_S = 10.0
LOOK_S = 0.01
FOLDERS = "/usr/sbin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin"


@contextmanager
def server(program: str, arguments: Callable[[int, Path], list[str]]) -> Iterator[str]:
    """Start a server; yields its ``host:port``. ``arguments`` gets the port and a folder for the server."""
    found = shutil.which(program) or shutil.which(program, path=FOLDERS)
    if found is None:
        raise Unavailable(f"{program} is not installed: get it from your distribution")
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = [found, *arguments(port, Path(folder))]
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait(program, process, port)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _wait(program: str, process: subprocess.Popen[bytes], port: int) -> None:
    until = perf_counter() + START_S
    while perf_counter() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        sleep(LOOK_S)
    raise Unavailable(f"{program} does not start here: try it by hand")
