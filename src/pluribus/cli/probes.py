"""What ``pluribus doctor`` asks of this machine. Each probe tries the thing itself and reports a ``Finding``.

Probes stay on this host: datagrams go to the loopback interface only, with a time to live of zero where they are
multicast. This module imports nothing but the standard library, because a broken installation is what it must diagnose.
"""

import importlib.metadata
import importlib.util
import os
import platform
import secrets
import socket
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass

from pluribus.cli import programs

PYTHON_VERSION_MIN = (3, 11)
LOOPBACK = "127.0.0.1"
MULTICAST_GROUP = "239.255.80.76"  # organisation-local; no engine of ours uses it
REPLY_TIMEOUT_S = 1.0
SOCKET_BUFFER_WANTED_BYTES = 4 << 20
SOCKET_BUFFER_ENOUGH_BYTES = 1 << 20
UDP_SEGMENT = 103  # linux/udp.h; the socket module has no name for it
SEGMENT_BYTES = 512
SEGMENT_COUNT = 3
EXTRAS = {
    # extra: the module whose presence shows that it is installed
    "spark": "pyspark",
    "console": "nicegui",
    "postgres": "psycopg",
    "nats": "nats",
}


@dataclass(frozen=True)
class Finding:
    name: str
    ok: bool
    detail: str
    remedy: str = ""
    """What to do about it; empty when all is well."""
    essential: bool = False
    """True if nothing of Pluribus works without it."""


def _udp_socket() -> socket.socket:
    endpoint = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    endpoint.settimeout(REPLY_TIMEOUT_S)
    return endpoint


def probe_python() -> Finding:
    version = platform.python_version()
    if sys.version_info >= PYTHON_VERSION_MIN:
        return Finding("Python", True, f"{version} at {sys.executable}", essential=True)
    return Finding("Python", False, f"{version} is too old", "Install Python 3.11 or newer.", essential=True)


def probe_msgspec() -> Finding:
    try:
        import msgspec
    except ImportError as error:
        return Finding("msgspec", False, str(error), "Install it: pip install pluribus.", essential=True)
    return Finding("msgspec", True, str(msgspec.__version__), essential=True)


def probe_loopback() -> Finding:
    """A datagram to ourselves on the loopback interface."""
    token = secrets.token_bytes(16)
    try:
        with _udp_socket() as receiver, _udp_socket() as sender:
            receiver.bind((LOOPBACK, 0))
            sender.sendto(token, receiver.getsockname())
            arrived = receiver.recv(64) == token
    except OSError as error:
        arrived, detail = False, str(error)
    else:
        detail = f"a datagram came back on {LOOPBACK}" if arrived else "another datagram arrived than was sent"
    remedy = "" if arrived else "Bring the loopback interface up, e.g. 'ip link set lo up' as root."
    return Finding("loopback UDP", arrived, detail, remedy, essential=True)


def probe_multicast() -> Finding:
    """A datagram to a group that we joined on the loopback interface."""
    token = secrets.token_bytes(16)
    try:
        with _udp_socket() as receiver, _udp_socket() as sender:
            receiver.bind(("", 0))  # a socket bound to a unicast address would not see the group's datagrams
            membership = socket.inet_aton(MULTICAST_GROUP) + socket.inet_aton(LOOPBACK)
            receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(LOOPBACK))
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)
            sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 0)
            sender.sendto(token, (MULTICAST_GROUP, receiver.getsockname()[1]))
            arrived = receiver.recv(64) == token
    except OSError as error:
        arrived, detail = False, str(error)
    else:
        detail = f"a datagram to {MULTICAST_GROUP} came back" if arrived else "another datagram arrived than was sent"
    remedy = "" if arrived else "Use udp:// or tcp:// with named peers, or allow multicast on the loopback interface."
    return Finding("loopback multicast", arrived, detail, remedy)


def probe_segmentation() -> Finding:
    """One send that the kernel cuts into datagrams."""
    name = "UDP segmentation"
    remedy = "None is needed: datagrams are then sent one by one, more slowly. Linux 4.18 and newer have it."
    payload = bytes(SEGMENT_BYTES * SEGMENT_COUNT)
    try:
        with _udp_socket() as receiver, _udp_socket() as sender:
            receiver.bind((LOOPBACK, 0))
            sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("i", SEGMENT_BYTES))
            sender.sendto(payload, receiver.getsockname())
            sizes = [len(receiver.recv(2 * len(payload))) for _ in range(SEGMENT_COUNT)]
    except OSError as error:
        return Finding(name, False, str(error), remedy)
    if sizes != [SEGMENT_BYTES] * SEGMENT_COUNT:
        return Finding(name, False, f"the kernel cut {len(payload)} bytes into {sizes}", remedy)
    return Finding(name, True, f"one send of {len(payload)} bytes arrived as {SEGMENT_COUNT} datagrams")


def probe_socket_buffer() -> Finding:
    name = "socket buffer"
    try:
        with _udp_socket() as endpoint:
            endpoint.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_WANTED_BYTES)
            granted = endpoint.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    except OSError as error:
        return Finding(name, False, str(error), "Raise the limit of this system on socket buffers.")
    if sys.platform == "linux":
        granted //= 2  # Linux reports twice what it granted, to account for its own structures
    detail = f"{granted >> 10} KiB granted of {SOCKET_BUFFER_WANTED_BYTES >> 10} KiB asked for"
    if granted >= SOCKET_BUFFER_ENOUGH_BYTES:
        return Finding(name, True, detail)
    remedy = f"Raise the limit, e.g. 'sysctl -w net.core.rmem_max={SOCKET_BUFFER_WANTED_BYTES}' as root."
    return Finding(name, False, detail, remedy)


def probe_uvloop() -> Finding:
    try:
        version = importlib.metadata.version("uvloop")
    except importlib.metadata.PackageNotFoundError:
        remedy = "Install it: pip install uvloop. Without it, or on Windows, the loop of asyncio is used."
        return Finding("uvloop", False, "not installed", remedy)
    return Finding("uvloop", True, version)


def probe_compiled() -> Finding:
    """The parts in C: sending, reading, publishing."""
    remedy = "None is needed: Python does the same, more slowly. With a C compiler and Python's headers, install again."
    try:
        from pluribus._speed import quick
    except ImportError as error:
        return Finding("compiled parts", False, str(error), remedy)
    if quick.COMPILED:
        return Finding("compiled parts", True, "in use")
    return Finding("compiled parts", False, f"{quick.REASON}: Python is used in their place", remedy)


def probe_extras() -> Finding:
    present = [extra for extra, module in EXTRAS.items() if importlib.util.find_spec(module)]
    missing = [extra for extra in EXTRAS if extra not in present]
    if not missing:
        return Finding("extras", True, ", ".join(present))
    return Finding("extras", False, f"not installed: {', '.join(missing)}", "pip install 'pluribus[all]'")


def probe_java() -> Finding:
    if found := programs.find_java():
        java, version = found
        return Finding("Java", True, f"{version} at {java}")
    return Finding("Java", False, "no Java 17 or newer", programs.REMEDIES["java"])


def probe_class_archive() -> Finding:
    """What lets Spark's Java start in half the time."""
    name = "Spark's classes"
    remedy = "None is needed: Java starts more slowly. 'python -m pluribus.pipeline.class_archive' prepares them."
    try:
        from pluribus.pipeline import class_archive

        if class_archive.fits():
            return Finding(name, True, f"prepared in {class_archive.archive()}")
    except ImportError as error:
        return Finding(name, False, str(error), remedy)
    detail = "prepared for another Java or PySpark" if class_archive.archive().exists() else "not prepared"
    return Finding(name, False, detail, remedy)


def probe_browser() -> Finding:
    if path := programs.find_browser():
        return Finding("browser", True, str(path))
    return Finding("browser", False, "no Chromium or Chrome", programs.REMEDIES["browser"])


def probe_postgres() -> Finding:
    folder = programs.find_postgres_folder()
    if folder is None:
        return Finding("PostgreSQL", False, "no initdb and postgres", programs.REMEDIES["postgres"])
    version = programs.first_line(folder / "postgres", "--version")
    return Finding("PostgreSQL", True, f"{version} in {folder}")


def probe_nats() -> Finding:
    path = programs.find_nats_server()
    version = programs.first_line(path, "--version") if path else None
    if version is None:
        return Finding("NATS", False, "no nats-server that runs", programs.REMEDIES["nats"])
    return Finding("NATS", True, f"{version} at {path}")


def probe_namespaces() -> Finding:
    if programs.can_make_namespaces():
        return Finding("network namespaces", True, f"allowed, with {programs.find_program('ip')}")
    if programs.find_program("ip") is None:
        detail = "no command 'ip'"
    else:
        detail = "the system said no" if getattr(os, "geteuid", lambda: 1)() == 0 else "only root may make them"
    return Finding("network namespaces", False, detail, programs.REMEDIES["namespaces"])


PROBES: tuple[Callable[[], Finding], ...] = (
    probe_python,
    probe_msgspec,
    probe_loopback,
    probe_multicast,
    probe_segmentation,
    probe_socket_buffer,
    probe_uvloop,
    probe_compiled,
    probe_extras,
    probe_java,
    probe_class_archive,
    probe_postgres,
    probe_nats,
    probe_browser,
    probe_namespaces,
)


def examine() -> list[Finding]:
    """Run every probe. Takes a second or two; starts Java, PostgreSQL and NATS only to ask their versions."""
    return [probe() for probe in PROBES]
