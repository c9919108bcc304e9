"""Every engine, on every loop: the parameters of the conformance tests."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

import pytest
import uvloop

from pluribus.bench.ports import free_port
from tests.engines.certificates import Authority
from tests.engines.ends import run_on

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Kind(NamedTuple):
    """One engine with its options, on a bus that no other test uses."""

    name: str
    bus: str
    url: str
    reliable: bool
    """Complete and in order while both ends live."""

    @property
    def scheme(self) -> str:
        return self.url.partition("://")[0]

    def with_option(self, option: str) -> str:
        return f"{self.url}{'&' if '?' in self.url else '?'}{option}"


DATAGRAM_OPTIONS = {
    "": "",
    "-plain": "?driver=plain",
    "-short": "?path=1472",
    "-trains": "?packet=1472",
    "-trains-plain": "?packet=1472&driver=plain",
    "-trains-tiny": "?packet=576",
}
KINDS = [
    "inproc",
    *(f"udp{variant}" for variant in DATAGRAM_OPTIONS),
    *(f"multicast{variant}" for variant in DATAGRAM_OPTIONS),
    "tcp",
    "tcp-tls",
    pytest.param("nats", marks=pytest.mark.xdist_group("servers")),
]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def tls_options(authority: Authority) -> str:
    return authority.options()


@pytest.fixture
def nats_host(nats_server: str) -> str:
    """HOST:PORT of the NATS server."""
    return nats_server.removeprefix("nats://")


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    name: str = request.param
    bus = f"test-{uuid.uuid4().hex[:12]}"
    scheme, _, variant = name.partition("-")
    here = f"127.0.0.1:{free_port()}/{bus}"
    match scheme:
        case "inproc":
            url = f"inproc://{bus}"
        case "udp":
            url = f"udp://{here}{DATAGRAM_OPTIONS[variant and f'-{variant}']}"
        case "multicast":
            url = f"multicast://{bus}{DATAGRAM_OPTIONS[variant and f'-{variant}']}"
        case "tcp":
            url = f"tcp://{here}" + (f"?{request.getfixturevalue('tls_options')}" if variant else "")
        case _:
            url = f"nats://{request.getfixturevalue('nats_host')}/{bus}"
    return Kind(name, bus, url, reliable=scheme in ("inproc", "tcp", "nats"))


@pytest.fixture(params=list(LOOPS))
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Runs a coroutine on a loop of each sort; fails if anything was raised into the loop."""
    return lambda work: run_on(LOOPS[request.param], work)
