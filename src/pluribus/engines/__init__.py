"""Engines carry bytes to peers: one file an engine, all behind ``core.ports.Engine``; ``engine_for`` chooses by URL.

Engines own sockets and run on the asyncio loop that opens them. They know nothing of members, groups or frames.
"""

from __future__ import annotations

from ..core.errors import BadUrl
from ..core.ports import Engine
from ..core.url import BusUrl


def engine_for(url: BusUrl) -> Engine:
    """The engine that a URL names, not yet open. Options that the engine does not know are refused."""
    options = dict(url.options)
    engine = _build(url, options)
    if options:
        unknown = ", ".join(sorted(options))
        raise BadUrl(f"{url.text!r} has options that {url.scheme} does not know: {unknown}; see docs/urls.md")
    return engine


def _build(url: BusUrl, options: dict[str, str]) -> Engine:
    """Build an engine. Each builder pops the options that it understands."""
    match url.scheme:
        case "inproc":
            from .inproc import InprocEngine

            return InprocEngine(url.bus)
        case "udp":
            from .udp import UdpEngine

            return UdpEngine.from_url(url, options)
        case "multicast":
            from .multicast import MulticastEngine

            return MulticastEngine.from_url(url, options)
        case "tcp":
            from .tcp import TcpEngine

            return TcpEngine.from_url(url, options)
        case "nats":
            from .nats import NatsEngine

            return NatsEngine.from_url(url, options)
    raise BadUrl(f"no engine for {url.text!r}")
