"""The address at which an engine listens: one rule for UDP and TCP.

Every process of a bus may use the same URL. The first one takes an address of the URL that is of this machine and free;
the others listen on a port that the kernel picks and find the first at the URL's addresses. An address given with
``bind=`` is used or refused, never replaced by another.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable
from functools import lru_cache

from ..core.errors import AddressTaken, BadUrl, NoInterface, Unavailable
from ..core.limits import PATH_BYTES_ETHERNET, PATH_BYTES_ETHERNET_SIX, PATH_BYTES_LOOPBACK, PEERS_MAX
from ..core.ports import Address
from ..core.url import BusUrl, parse_address, whole_number

INTERFACE_CHARS_MAX = 15
"""The longest name of an interface, which an IPv6 address may have behind it (IFNAMSIZ)."""


def bind_by_url(kind: socket.SocketKind, url: BusUrl, bind: Address | None) -> socket.socket:
    """A bound, non-blocking socket of this kind; the error is one sentence that says why not."""
    if bind is not None:
        return bound_socket(kind, bind)
    first = next((host for host in url.hosts if is_local(host)), None)
    if first is None:
        where = ", ".join(f"{host}:{port}" for host, port in url.hosts)
        raise NoInterface(f"none of {where} is of this machine: add ?bind=ADDRESS:0 with the address to listen on")
    for host in url.hosts:
        if is_local(host):
            try:
                return bound_socket(kind, host)
            except AddressTaken:
                continue
    return bound_socket(kind, (first[0], 0))


def bound_socket(kind: socket.SocketKind, address: Address) -> socket.socket:
    host, port = address
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        sock = socket.socket(family, kind)
    except OSError:  # a machine without IPv6
        raise _no_interface(host) from None
    sock.setblocking(False)
    if kind == socket.SOCK_STREAM:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressTaken(
                f"{host}:{port} is taken by another program: choose another port, or 0 for any free one"
            ) from None
        if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
            raise _no_interface(host) from None
        raise Unavailable(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
    return sock


def _no_interface(host: str) -> NoInterface:
    return NoInterface(f"{host} is not an address of this machine: `ip address` lists those that are")


def is_local(address: Address) -> bool:
    """True if this machine can listen there; the kernel is asked, on a port that cannot be taken."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address[0], 0))
    except OSError:
        return False
    return True


def check_dialable(addresses: Iterable[Address]) -> None:
    """Refuse addresses that others cannot dial: a member tells others where it listens, and "everywhere" is no
    target."""
    for host, port in addresses:
        if is_number(host) and ipaddress.ip_address(host).is_unspecified:
            raise BadUrl(f"{host}:{port} is no address that others can dial: name one that `ip address` lists")


@lru_cache(maxsize=PEERS_MAX)
def is_number(host: str) -> bool:
    """True if a host is a numeric address. A peer must give its own address in numbers: for a name the kernel's call
    would wait for a name server, and block the loop. After a ``%`` there may be anything, so that must look like an
    interface: the kernel's call raises ``TypeError`` for what it cannot encode."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    scope = host.partition("%")[2]
    return scope.isascii() and scope.isprintable() and len(scope) <= INTERFACE_CHARS_MAX


@lru_cache(maxsize=PEERS_MAX)
def is_within_reach(to: Address, own: Address) -> bool:
    """True if the socket of ``own`` can send there. Some drivers of sockets do not treat another family, or a missing
    port, as an error of the network: some raise, one closes the socket."""
    (host, port), six = to, ":" in own[0]
    return 0 < port <= 65_535 and is_number(host) and (":" in host) == six


def bind_option(options: dict[str, str], url: BusUrl) -> Address | None:
    text = options.pop("bind", None)
    return parse_address(text, url.text) if text is not None else None


def packet_option(options: dict[str, str], url: BusUrl, host: str) -> int:
    """``packet=`` in bytes: the largest packet of the network. An unknown network is taken for an Ethernet; the
    loopback interface carries whole datagrams."""
    default = PATH_BYTES_ETHERNET_SIX if ":" in host else PATH_BYTES_ETHERNET
    return _size_option("packet", options, url) or (PATH_BYTES_LOOPBACK if is_loopback(host) else default)


def path_option(options: dict[str, str], url: BusUrl) -> int | None:
    """``path=`` in bytes: the longest datagram. If it is not given, the engine decides."""
    return _size_option("path", options, url)


def _size_option(name: str, options: dict[str, str], url: BusUrl) -> int | None:
    text = options.pop(name, None)
    if text is None:
        return None
    number = whole_number(text)
    if number is None or not 576 <= number <= PATH_BYTES_LOOPBACK:
        raise BadUrl(f"{url.text!r}: {name}={text} is not a datagram size; use 576 to {PATH_BYTES_LOOPBACK} bytes")
    return number


DATAGRAM_HEARD_S = 1.5
"""Seconds in which a living member is received, even if several datagrams in a row are lost: members beat three times a
second."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
