"""Bus URLs: ``engine://[host:port[,host:port…]/]bus[?option=value…]``.

::

    multicast://demo                              IP multicast on the loopback interface
    multicast://demo?interface=10.0.0.5           … on that interface: others on its network can join
    udp://127.0.0.1:7001/demo                     the first process takes the address, the others find it there
    tcp://127.0.0.1:7001,127.0.0.1:7002/demo      the same with two places to ask
    udp://127.0.0.1:7001/demo?bind=127.0.0.1:0    never take the address, only ask there
    inproc://demo                                 members of one process
    nats://127.0.0.1:4222/demo                    carried by a NATS server or cluster
    client://127.0.0.1:7400,127.0.0.1:7401/demo   no member, but a client of one of these
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

import msgspec

from .errors import BadInput, BadUrl
from .ids import checked_name
from .limits import VIEW_MEMBERS_MAX
from .ports import Address

SCHEMES = ("multicast", "udp", "tcp", "inproc", "nats", "client")
HAVE_HOSTS = ("udp", "tcp", "nats", "client")
DEFAULT_URL = "multicast://pluribus"
EXAMPLE = "write it like multicast://demo or udp://127.0.0.1:7001/demo"


class BusUrl(msgspec.Struct, frozen=True):
    """A URL taken apart; ``options`` are as written, each engine takes its own and refuses the rest."""

    scheme: str
    bus: str
    hosts: tuple[Address, ...] = ()
    options: dict[str, str] = {}
    text: str = ""
    founders: int | None = None
    """How many members the bus's first primary needs: of the bus, whichever engine carries it."""


def parse_url(text: str) -> BusUrl:
    """Take a URL apart, or raise ``BadUrl`` with one sentence that says which part is wrong."""
    scheme, separator, rest = text.partition("://")
    if "@" in rest.partition("/")[0]:
        raise BadUrl(
            f"a {scheme}:// URL has no user and no password in it, because URLs are logged: give user= and password=, "
            "or $PLURIBUS_USER and $PLURIBUS_PASSWORD"
        )
    if not separator:
        raise BadUrl(f"{text!r} is not a bus URL: {EXAMPLE}")
    if scheme not in SCHEMES:
        raise BadUrl(f"{text!r} names the engine {scheme!r}: use one of {', '.join(SCHEMES)}")
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise BadUrl(f"{text!r} is not a bus URL ({error}): {EXAMPLE}") from None
    if parts.fragment:
        raise BadUrl(f"{text!r} has a #, and what follows it would be lost: write %23 for it in a value")
    if scheme in HAVE_HOSTS:
        bus = parts.path.strip("/")
        hosts = tuple(parse_address(host, text) for host in parts.netloc.split(",") if host)
        if not hosts:
            raise BadUrl(f"{text!r} names no host: {scheme}://HOST:PORT/BUS is the form")
    else:
        bus, hosts = parts.netloc, ()
        if parts.path.strip("/"):
            raise BadUrl(f"{text!r} has a path after the bus: {scheme}://BUS is the form")
    try:
        checked_name(bus, "the bus")
    except BadInput as error:
        form = f"{scheme}://HOST:PORT/BUS" if scheme in HAVE_HOSTS else f"{scheme}://BUS"
        raise BadUrl(f"{text!r} does not name a bus ({error}): {form} is the form") from None
    options = _options(parts.query, text)
    return BusUrl(scheme, bus, hosts, options, text, _founders(options, scheme, text))


def parse_door(serve: str, bus: str) -> BusUrl:
    """Where a member serves clients of its bus, from HOST:PORT[?options]; raises ``BadInput``."""
    address, question, options = serve.partition("?")
    found = parse_url(f"client://{address}/{bus}{question}{options}")
    if len(found.hosts) != 1:
        raise BadInput(f"serve={serve!r} names {len(found.hosts)} addresses: give one HOST:PORT")
    return found


def _options(query: str, url: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in options:
            raise BadUrl(f"{url!r} has the option {name} twice: give it once")
        options[name] = value
    return options


def _founders(options: dict[str, str], scheme: str, url: str) -> int | None:
    text = options.pop("founders", None)
    if text is None:
        return None
    if scheme == "client":
        raise BadUrl(f"{url!r}: founders={text} is for members: leave it out, a client founds nothing")
    number = whole_number(text)
    if number is None or not 1 <= number <= VIEW_MEMBERS_MAX:
        raise BadUrl(f"{url!r}: founders={text} is out of range; use 1 to {VIEW_MEMBERS_MAX}")
    return number


def parse_address(text: str, url: str) -> Address:
    """``host:port`` or ``[v6]:port``; the port may be 0 where any will do."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = whole_number(port)
    if not separator or not _is_host(host) or number is None or number > 65_535:
        raise BadUrl(f"{url!r}: {text!r} is not an address; write HOST:PORT with a port from 0 to 65535")
    return (host, number)


def whole_number(text: str) -> int | None:
    """The number that a few plain digits stand for; ``isdigit`` alone takes superscripts, which ``int`` does not."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _is_host(text: str) -> bool:
    """Whether the resolver can be asked for it: it raises no ``OSError`` for what is no name at all."""
    try:
        return bool(text.encode("idna")) and text.isprintable()
    except UnicodeError:
        return False
