"""Networks between hosts on one machine: namespaces joined by virtual cables of 1,500 bytes.

``pair`` is two hosts and a cable. ``bridged`` is many hosts on a switch, each of its lines shaped to a rate.

Namespaces are made with ``ip`` and ``tc``, and removed again whatever happens, also when the process is told to end.
Namespaces of a killed process are removed by the next one. It needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN; without
them ``Unavailable`` says so.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from ..core.errors import Unavailable

MARK = "pluribus-"
PLACES = Path("/run/netns")
MTU_BYTES = 1_500
CLONE_NEWNET = 0x4000_0000
ADDRESSES = ("10.213.77.1", "10.213.77.2")
NETWORK = "10.213.78"
BURST_BYTES = 4_000
"""Bytes that a shaped line lets through at once after a pause: two packets. More would favour senders of few bytes."""
BURST_OF_SWITCH_BYTES = 32_000
"""Packets that leave the switch were shaped on their way in; this bounds only packets from several hosts to one."""
QUEUE_BYTES = 64 << 20
"""The queue of a line, so long that no packet is dropped: a sender waits at its own socket."""


@contextmanager
def pair() -> Iterator[list[tuple[str, str]]]:
    """Names and addresses of the two hosts, as long as the context lasts."""
    names = [f"{MARK}{os.getpid()}-{side}" for side in "ab"]
    with _made(names):
        cable = [f"plb{os.getpid()}{side}" for side in "ab"]
        _ip("link", "add", cable[0], "netns", names[0], "type", "veth", "peer", "name", cable[1], "netns", names[1])
        for name, end, address in zip(names, cable, ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            _ip("-n", name, "link", "set", end, "mtu", str(MTU_BYTES), "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield list(zip(names, ADDRESSES, strict=True))


@contextmanager
def bridged(hosts: int, mbit_s: int) -> Iterator[list[tuple[str, str]]]:
    """Names and addresses of the hosts. Each line to the switch carries so many megabits a second in either
    direction."""
    switch = f"{MARK}{os.getpid()}-switch"
    names = [f"{MARK}{os.getpid()}-{host}" for host in range(hosts)]
    with _made([switch, *names]):
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "mtu", str(MTU_BYTES), "up")
        for host, name in enumerate(names):
            port = f"port{host}"
            _ip("link", "add", "line", "netns", name, "type", "veth", "peer", "name", port, "netns", switch)
            _ip("-n", switch, "link", "set", port, "mtu", str(MTU_BYTES), "master", "bridge", "up")
            _ip("-n", name, "address", "add", f"{NETWORK}.{host + 1}/24", "dev", "line")
            _ip("-n", name, "link", "set", "line", "mtu", str(MTU_BYTES), "up")
            _ip("-n", name, "link", "set", "lo", "up")
            _shape(name, "line", mbit_s, BURST_BYTES)
            _shape(switch, port, mbit_s, BURST_OF_SWITCH_BYTES)
        yield [(name, f"{NETWORK}.{host + 1}") for host, name in enumerate(names)]


@contextmanager
def _made(names: list[str]) -> Iterator[None]:
    """Namespaces of these names, as long as the context lasts and the process is not killed outright."""
    _sweep()
    made: list[str] = []
    with _ending_is_an_exception():
        try:
            for name in names:
                made.append(name)
                _ip("netns", "add", name)
            yield
        finally:
            for name in made:
                if (PLACES / name).exists():
                    _ip("netns", "delete", name)


@contextmanager
def _ending_is_an_exception() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that the process removes its namespaces before it ends. This works in the main
    thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _sweep() -> None:
    """Remove namespaces of processes that are no more."""
    for place in PLACES.glob(f"{MARK}[0-9]*-*") if PLACES.is_dir() else ():
        number = place.name.removeprefix(MARK).partition("-")[0]
        if not Path(f"/proc/{number}").exists():
            with suppress(Unavailable):  # somebody else was quicker
                _ip("netns", "delete", place.name)


def _shape(namespace: str, device: str, mbit_s: int, burst_bytes: int) -> None:
    shape = ["tbf", "rate", f"{mbit_s}mbit", "burst", str(burst_bytes), "limit", str(QUEUE_BYTES)]
    _run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", *shape)


def enter(name: str) -> None:
    """Move this thread to a namespace. Its present sockets stay where they are; sockets that it makes from now on are
    in the namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}", "rb") as place:
        if libc.setns(place.fileno(), CLONE_NEWNET) != 0:
            raise Unavailable(f"cannot enter the network namespace {name}: {os.strerror(ctypes.get_errno())}")


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise Unavailable(f"network namespaces need the program {command[0]}: install iproute2") from None
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip() or f"{command[0]} ended with {error.returncode}"
        raise Unavailable(f"a network namespace cannot be made ({said}): run as root, outside of a container") from None
