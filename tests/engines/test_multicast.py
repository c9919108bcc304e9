"""IP multicast: what only it can get wrong."""

import ipaddress

import pytest

from pluribus.bench.ports import free_port
from pluribus.core.errors import BadUrl
from pluribus.core.url import parse_url
from pluribus.engines import engine_for, multicast
from tests.engines.ends import Run, checked_sentence, ends


def test_oneself_is_not_heard_where_the_kernel_has_no_filters(run: Run[None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multicast, "_refuse_own", lambda sock, own: False)

    async def work() -> None:
        async with ends(f"multicast://alone-{free_port()}", 2) as (one, other):
            one.engine.send_all([b"from one"])
            await other.arrived(1)
            other.engine.send_all([b"from other"])
            await one.arrived(1)
            assert one.bodies == [b"from other"]
            assert other.bodies == [b"from one"]

    run(work())


def test_buses_on_one_port_do_not_hear_each_other(run: Run[None]) -> None:
    async def work() -> None:
        name, port = f"same-{free_port()}", 21_777
        url, other_url = (f"multicast://{name}-{which}?port={port}" for which in ("one", "two"))
        async with ends(url, 2) as (here, near), ends(other_url, 2) as (there, beyond):
            there.engine.send_all([b"for others"])
            here.engine.send_all([b"for us"])
            await near.arrived(1)
            await beyond.arrived(1)
            assert (near.bodies, beyond.bodies) == ([b"for us"], [b"for others"])
            assert not here.got
            assert not there.got

    run(work())


@pytest.mark.parametrize("bus", ["demo", "pluribus", "x" * 128, "ein Bus mit Leerzeichen", "bus-ñ"])
def test_a_name_stands_for_a_group_of_the_organisation(bus: str) -> None:
    host, port = multicast.group_of(bus)
    assert ipaddress.IPv4Address(host) in ipaddress.IPv4Network("239.192.0.0/14")
    assert 20_000 <= port < 30_000
    assert multicast.group_of(bus) == (host, port)


@pytest.mark.parametrize(
    "option",
    [
        "group=10.0.0.1",
        "group=nonsense",
        "port=0",
        "port=70000",
        "ttl=300",
        "ttl=x",
        "path=100",
        "path=x",
        "driver=slow",
    ],
)
def test_an_option_out_of_range_is_refused(option: str) -> None:
    with pytest.raises(BadUrl) as refusal:
        engine_for(parse_url(f"multicast://demo?{option}"))
    assert option in checked_sentence(refusal.value)
