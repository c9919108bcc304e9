"""Bus URLs: what is right is taken apart, what is wrong is one sentence that quotes it and says what to write."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pluribus.core.errors import BadUrl
from pluribus.core.url import HAVE_HOSTS, SCHEMES, BusUrl, parse_address, parse_url, whole_number

RIGHT = {
    "multicast://demo": BusUrl("multicast", "demo"),
    "multicast://demo?interface=10.0.0.5&ttl=": BusUrl("multicast", "demo", (), {"interface": "10.0.0.5", "ttl": ""}),
    "inproc://demo": BusUrl("inproc", "demo"),
    "udp://127.0.0.1:7001/demo": BusUrl("udp", "demo", (("127.0.0.1", 7001),)),
    "tcp://127.0.0.1:7001,10.0.0.2:0/a/b": BusUrl("tcp", "a/b", (("127.0.0.1", 7001), ("10.0.0.2", 0))),
    "udp://[::1]:7001/demo?bind=[::1]:0": BusUrl("udp", "demo", (("::1", 7001),), {"bind": "[::1]:0"}),
    "nats://broker.example:4222/demo": BusUrl("nats", "demo", (("broker.example", 4222),)),
}

WRONG = {
    "demo": "is not a bus URL",
    "": "is not a bus URL",
    "http://demo": "names the engine 'http'",
    "MULTICAST://demo": "names the engine 'MULTICAST'",
    "udp:///demo": "names no host",
    "udp://127.0.0.1/demo": "is not an address",
    "udp://127.0.0.1:70000/demo": "is not an address",
    "udp://127.0.0.1:-1/demo": "is not an address",
    "udp://127.0.0.1:²/demo": "is not an address",
    "udp://127.0.0.1:" + "9" * 5_000 + "/demo": "is not an address",
    "udp://:7001/demo": "is not an address",
    "udp://" + "a" * 70 + ":7001/demo": "is not an address",
    "udp://[::1:7001/demo": "is not a bus URL",
    "udp://127.0.0.1:7001": "does not name a bus",
    "multicast://": "does not name a bus",
    "multicast://" + "x" * 129: "does not name a bus",
    "multicast://demo/more": "has a path after the bus",
    "tcp://127.0.0.1:7001/demo?cert=/home/#1/cert.pem": "has a #",
    "multicast://demo#other": "has a #",
    "udp://127.0.0.1:7001/demo?path=1472&path=8192": "has the option path twice",
}


@pytest.mark.parametrize("text", RIGHT)
def test_a_right_url_is_taken_apart(text: str):
    url = parse_url(text)
    assert (url.scheme, url.bus, url.hosts, url.options) == (
        RIGHT[text].scheme,
        RIGHT[text].bus,
        RIGHT[text].hosts,
        RIGHT[text].options,
    )
    assert url.text == text


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[:40] or "nothing")
def test_a_wrong_url_is_one_sentence_that_quotes_it(text: str):
    with pytest.raises(BadUrl) as caught:
        parse_url(text)
    sentence = str(caught.value)
    assert WRONG[text] in sentence
    assert repr(text) in sentence
    assert "\n" not in sentence


@given(st.text())
@example("udp://[::1/demo")
@example("udp://host：1/demo")  # a full-width colon, which urllib refuses by itself
def test_nothing_but_bad_url_is_ever_raised(text: str):
    for candidate in (text, *(f"{scheme}://{text}" for scheme in SCHEMES)):
        try:
            url = parse_url(candidate)
        except BadUrl:
            continue
        assert url.bus
        assert bool(url.hosts) is (url.scheme in HAVE_HOSTS)


@given(st.ip_addresses(), st.integers(0, 65_535))
def test_an_address_survives_being_written(host: object, port: int):
    shown = f"[{host}]" if ":" in str(host) else str(host)
    assert parse_address(f"{shown}:{port}", "udp://…") == (str(host), port)


@given(st.text(max_size=25))
@example("٣")
@example("1" * 19)
def test_a_whole_number_is_plain_digits(text: str):
    number = whole_number(text)
    if number is not None:
        assert number == int(text) >= 0
        assert set(text) <= set("0123456789")
