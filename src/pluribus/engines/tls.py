"""Mutual TLS from PEM files: both sides show a certificate of the bus's own authority, or there is no connection.

Host names are not compared: processes of a bus come and go on any address, so a certificate is valid if the authority
named by ``ca=`` signed it. That authority must therefore be the bus's own, never a public one.
"""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from ..core.errors import BadUrl
from ..core.url import BusUrl

OPTIONS = ("cert", "key", "ca")


class Tls(msgspec.Struct, frozen=True):
    """One context for connections that are accepted, one for those that are dialled."""

    server: ssl.SSLContext
    client: ssl.SSLContext


def tls_option(options: dict[str, str], url: BusUrl) -> Tls | None:
    """Pop ``cert=``, ``key=`` and ``ca=``; all three or none, each a readable PEM file."""
    files = {name: options.pop(name) for name in OPTIONS if name in options}
    if not files:
        return None
    missing = [f"{name}=" for name in OPTIONS if not files.get(name)]
    if missing:
        raise BadUrl(
            f"{url.scheme}://…/{url.bus}: TLS is mutual and needs cert=, key= and ca=; add {' and '.join(missing)}"
        )
    for name, path in files.items():
        _check_readable(name, path)
    return Tls(_context(ssl.PROTOCOL_TLS_SERVER, files), _context(ssl.PROTOCOL_TLS_CLIENT, files))


def _check_readable(name: str, path: str) -> None:
    """OpenSSL's own errors name no file."""
    try:
        with Path(path).open("rb") as file:
            file.read(1)
    except OSError as error:
        raise BadUrl(f"{name}={path} cannot be read ({error.strerror}): give the path of a PEM file") from None


def _context(protocol: ssl._SSLMethod, files: dict[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(files["ca"])
    except (ssl.SSLError, OSError):
        raise BadUrl(f"ca={files['ca']} holds no certificate: give the authority's certificate as PEM") from None
    try:
        # A password of no characters: a key that wants one is refused, rather than asked for on the terminal.
        context.load_cert_chain(files["cert"], files["key"], password="")
    except (ssl.SSLError, OSError, ValueError):
        raise BadUrl(
            f"cert={files['cert']} and key={files['key']} do not go together: "
            "give a PEM certificate and its private key without a password"
        ) from None
    return context
