"""Two network namespaces joined by a virtual cable of 1,500 bytes: a network between two hosts, on one machine.

Made with ``ip`` and removed again whatever happens. It needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN; without them
``Unavailable`` says so.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from ..core.errors import Unavailable

MTU_BYTES = 1_500
CLONE_NEWNET = 0x4000_0000
ADDRESSES = ("10.213.77.1", "10.213.77.2")


@contextmanager
def pair() -> Iterator[list[tuple[str, str]]]:
    """Name and address of each of the two, as long as the context lasts."""
    names = [f"pluribus-{os.getpid()}-{side}" for side in "ab"]
    made: list[str] = []
    try:
        for name in names:
            _ip("netns", "add", name)
            made.append(name)
        cable = [f"plb{os.getpid()}{side}" for side in "ab"]
        _ip("link", "add", cable[0], "netns", names[0], "type", "veth", "peer", "name", cable[1], "netns", names[1])
        for name, end, address in zip(names, cable, ADDRESSES, strict=True):
            _ip("-n", name, "address", "add", f"{address}/24", "dev", end)
            _ip("-n", name, "link", "set", end, "mtu", str(MTU_BYTES), "up")
            _ip("-n", name, "link", "set", "lo", "up")
        yield list(zip(names, ADDRESSES, strict=True))
    finally:
        for name in made:
            _ip("netns", "delete", name)


def enter(name: str) -> None:
    """Put this process into a namespace; for a process with one thread that has no sockets yet."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/run/netns/{name}", "rb") as place:
        if libc.setns(place.fileno(), CLONE_NEWNET) != 0:
            raise Unavailable(f"cannot enter the network namespace {name}: {os.strerror(ctypes.get_errno())}")


def _ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise Unavailable("network namespaces need the program ip: install iproute2") from None
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip() or f"ip ended with {error.returncode}"
        raise Unavailable(f"a network namespace cannot be made ({said}): run as root, outside of a container") from None
