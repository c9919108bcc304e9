"""Names of a URL become numeric addresses once, at opening: peers know each other by number, and no send asks a name
server."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Sequence

from ..core.errors import Unreachable
from ..core.ports import Address

log = logging.getLogger(__name__)


async def numeric(hosts: Sequence[Address]) -> tuple[Address, ...]:
    """The hosts with numeric addresses, without repetition; a host that has none is left out, unless none is left."""
    found: dict[Address, None] = {}
    nameless: list[str] = []
    for host, port in hosts:
        try:
            found[(await _number_of(host), port)] = None
        except OSError:
            nameless.append(host)
    if not found:
        raise Unreachable(f"nobody knows the address of {', '.join(nameless)}: check the name, or write the number")
    for host in nameless:
        log.warning("nobody knows the address of %s: going on with the other hosts of the URL", host)
    return tuple(found)


async def _number_of(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    # IPv4 as in ``binding``: a name that means both families would otherwise be bound in one and dialled in the other.
    answers = await asyncio.get_running_loop().getaddrinfo(host, None, family=socket.AF_INET, type=socket.SOCK_STREAM)
    return str(answers[0][4][0])
