"""What cannot be had is refused in one sentence that says what to do, by the right exception, before anything
starts."""

import asyncio
import errno
import socket
import sys
import time
import uuid
from pathlib import Path

import pytest

import pluribus
from pluribus.bench.ports import free_port
from pluribus.core.errors import (
    AddressTaken,
    BadUrl,
    MissingExtra,
    NoInterface,
    Unavailable,
    Unreachable,
)
from pluribus.core.url import parse_url
from pluribus.engines import engine_for
from tests.engines.certificates import Authority
from tests.engines.ends import Run, checked_sentence, ends, opened, refused, until

ABSENT = "192.0.2.77"
"""Of a block for documentation (RFC 5737): on no machine."""

WITH_PORTS = pytest.mark.parametrize("scheme", ["udp", "tcp"])


def bad_url(url: str) -> str:
    with pytest.raises(BadUrl) as refusal:
        engine_for(parse_url(url))
    return checked_sentence(refusal.value)


@WITH_PORTS
def test_a_taken_port_is_refused_where_it_was_asked_for(scheme: str, run: Run[None]) -> None:
    async def work() -> None:
        port = free_port()
        holder = await opened(f"{scheme}://127.0.0.1:{port}/demo")
        sentence = await refused(opened(f"{scheme}://127.0.0.1:{port}/demo?bind=127.0.0.1:{port}"), AddressTaken)
        assert f"127.0.0.1:{port}" in sentence
        assert "another port" in sentence
        await holder.engine.close()

    run(work())


@pytest.mark.parametrize(
    "url",
    [
        f"udp://127.0.0.1:7001/demo?bind={ABSENT}:0",
        f"tcp://127.0.0.1:7001/demo?bind={ABSENT}:0",
        f"udp://{ABSENT}:7001/demo",
        f"tcp://{ABSENT}:7001/demo",
        f"multicast://demo?interface={ABSENT}",
    ],
)
def test_an_address_of_another_machine_is_refused(url: str, run: Run[None]) -> None:
    async def work() -> None:
        assert ABSENT in await refused(opened(url), NoInterface)

    run(work())


@pytest.mark.parametrize("name", ["tcp", "udp"])
def test_a_name_that_nobody_knows_is_refused(name: str, run: Run[None]) -> None:
    async def work() -> None:
        sentence = await refused(opened(f"{name}://no-such-host.invalid:7001/demo"), Unavailable)
        assert "no-such-host.invalid" in sentence

    run(work())


@pytest.mark.parametrize("scheme", ["udp", "multicast", "tcp", "nats", "inproc"])
def test_an_unknown_option_is_refused(scheme: str) -> None:
    where = "demo" if scheme in ("multicast", "inproc") else "127.0.0.1:7001/demo"
    assert "colour" in bad_url(f"{scheme}://{where}?colour=red")


@WITH_PORTS
def test_an_address_that_nobody_can_dial_is_refused(scheme: str) -> None:
    assert "0.0.0.0:7001" in bad_url(f"{scheme}://0.0.0.0:7001/demo")
    assert "0.0.0.0:0" in bad_url(f"{scheme}://127.0.0.1:7001/demo?bind=0.0.0.0:0")
    assert "::0:7001" in bad_url(f"{scheme}://[::0]:7001/demo")


def test_an_interface_that_is_none_in_particular_is_refused() -> None:
    assert "0.0.0.0" in bad_url("multicast://demo?interface=0.0.0.0")


@pytest.mark.parametrize("url", ["udp://[::1]:0/demo", "tcp://[::1]:0/demo", "udp://[::1]:0/demo?bind=[::1]:0"])
def test_a_machine_without_ipv6_refuses_its_addresses(
    url: str, run: Run[None], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = socket.socket

    def without_six(family: int = socket.AF_INET, *others: int, **named: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return made(family, *others, **named)

    async def work() -> None:
        monkeypatch.setattr("pluribus.engines.binding.socket.socket", without_six)
        try:
            assert "::1" in await refused(opened(url), NoInterface)
        finally:
            monkeypatch.undo()

    run(work())


def test_tls_without_an_authority_is_refused(authority: Authority) -> None:
    cert, key = authority.issue("alone")
    for given, missing in (
        (f"cert={cert}&key={key}", "ca="),
        (f"cert={cert}&ca={authority.ca}", "key="),
        (f"ca={authority.ca}", "cert= and key="),
    ):
        assert bad_url(f"tcp://127.0.0.1:7001/demo?{given}").endswith(f"add {missing}")


def test_unreadable_certificates_are_refused(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("one")
    other_cert, _ = authority.issue("two")
    secret_cert, secret_key = authority.issue("secret", password=b"hunter2")
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("no certificate")
    base = "tcp://127.0.0.1:7001/demo"
    absent = tmp_path / "absent.pem"
    assert f"cert={absent}" in bad_url(f"{base}?cert={absent}&key={key}&ca={authority.ca}")
    assert f"ca={absent}" in bad_url(f"{base}?cert={cert}&key={key}&ca={absent}")
    assert f"ca={nonsense}" in bad_url(f"{base}?cert={cert}&key={key}&ca={nonsense}")
    assert "do not go together" in bad_url(f"{base}?cert={other_cert}&key={key}&ca={authority.ca}")
    assert "without a password" in bad_url(f"{base}?cert={secret_cert}&key={secret_key}&ca={authority.ca}")


def test_a_member_of_another_authority_stays_outside(
    tls_options: str, tmp_path: Path, run: Run[None], caplog: pytest.LogCaptureFixture
) -> None:
    """So does one without TLS, and whoever speaks plainly to a TLS port."""
    foreign_options = Authority(tmp_path, "somebody else").options()

    async def work() -> None:
        port = free_port()
        url = f"tcp://127.0.0.1:{port}/demo"
        async with ends(f"{url}?{tls_options}", 2) as (one, other):
            foreigner, plain = await opened(f"{url}?{foreign_options}"), await opened(url)
            for outsider in (foreigner, plain):
                outsider.engine.send([b"let me in"], one.address)
                one.engine.send([b"secret"], outsider.address)
            await until(lambda: foreigner.engine.stats.dropped > 0 and plain.engine.stats.dropped > 0)
            await until(lambda: one.engine.stats.dropped == 2)
            other.engine.send([b"inside"], one.address)
            await one.arrived(1)
            assert one.bodies == [b"inside"]
            for outsider in (foreigner, plain):
                assert not outsider.got
                await outsider.engine.close()
        assert "check cert=, key= and ca=" in caplog.text

    run(work())


def test_a_nats_server_that_is_not_there_is_refused_soon(run: Run[None]) -> None:
    async def work() -> None:
        port = free_port()
        began = time.monotonic()
        sentence = await refused(opened(f"nats://127.0.0.1:{port}/demo"), Unreachable)
        assert time.monotonic() - began < 2
        assert f"127.0.0.1:{port}" in sentence
        assert "is nats-server running" in sentence

    run(work())


def test_a_server_that_says_nothing_or_nonsense_is_no_nats_server(run: Run[None]) -> None:
    async def work() -> None:
        async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example ESMTP\r\n")
            await reader.read()
            writer.close()

        server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            for port in (silent.getsockname()[1], server.sockets[0].getsockname()[1]):
                began = time.monotonic()
                await refused(opened(f"nats://127.0.0.1:{port}/demo"), Unreachable)
                assert time.monotonic() - began < 4
        server.close()

    run(work())


def test_nats_without_nats_py_says_what_to_install(run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("nats", "nats.aio", "nats.aio.client"):
        monkeypatch.setitem(sys.modules, module, None)

    async def work() -> None:
        assert "install pluribus[nats]" in await refused(opened("nats://127.0.0.1:4222/demo"), MissingExtra)

    run(work())


def test_a_password_in_a_nats_url_is_refused_and_not_repeated() -> None:
    secret = uuid.uuid4().hex
    assert secret not in bad_url(f"nats://user:{secret}@127.0.0.1:4222/demo")
    assert "token_file=" in bad_url("nats://127.0.0.1:4222/demo?token_file=/no/such/file")


def test_a_bus_on_nats_without_nats_py_says_so_too(run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["nats", *(name for name in sys.modules if name.startswith("nats."))]:
        monkeypatch.setitem(sys.modules, name, None)

    async def work() -> None:
        with pytest.raises(MissingExtra, match=r"install pluribus\[nats\]"):
            await pluribus.connect("nats://127.0.0.1:4222/demo")

    run(work())
