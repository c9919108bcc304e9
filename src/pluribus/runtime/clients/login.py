"""A client's credentials: where they come from, and to whom they may be sent."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NoReturn

from ...core.errors import BadInput, Refused
from ...wire import asking
from ...wire.asking import Answered, Failed, Word

if TYPE_CHECKING:  # loaded by those who log in, so that ``import pluribus`` stays quick
    from ...access.words import Login

LOGIN = 1 << 62
"""The number of the question with which a connection begins."""
USER, PASSWORD, TOKEN = "PLURIBUS_USER", "PLURIBUS_PASSWORD", "PLURIBUS_TOKEN"


class Credentials:
    """A user and its password, or a token. It is not printed and not pickled."""

    __slots__ = ("password", "token", "user")

    def __init__(self, user: str, password: str, token: str) -> None:
        self.user = user
        self.password = password
        self.token = token

    def __repr__(self) -> str:
        return "<credentials>"

    def __reduce__(self) -> NoReturn:
        raise BadInput("credentials are not pickled: give every process its own, for example by $PLURIBUS_TOKEN")


def login_from(user: str | None, password: str | None, token: str | None) -> Credentials | None:
    """What the caller gave, else what the environment has."""
    if user is None and password is None and token is None:
        user, password = os.environ.get(USER), os.environ.get(PASSWORD)
        token = os.environ.get(TOKEN) if password is None else None
        if password is None and token is None:
            return None
    if token is not None and password is not None:
        raise BadInput("a client is proved by password= or by token=: give one of them")
    if token is None and (user is None or password is None):
        raise BadInput("user= and password= go together: give both, or token=")
    return Credentials(user or "", password or "", token or "")


def check_private(host: str, *, sealed: bool) -> None:
    """``BadInput`` if this connection could be overheard."""
    from ipaddress import ip_address

    if sealed or host == "localhost":
        return
    try:
        private = ip_address(host).is_loopback
    except ValueError:
        private = False
    if not private:
        raise BadInput(
            f"a password or token is not sent in clear to {host}: use TLS (cert=, key=, ca= in the URL) or a bus secret"
        )


def login_of(credentials: Credentials) -> Login:
    from ...access.words import Login

    return Login(credentials.user, credentials.password, credentials.token)


def logged_in(word: Word) -> None:
    """``Refused`` if the member does not accept the credentials."""
    if isinstance(word, Failed):
        raise Refused(str(asking.error_of(word)))
    if not isinstance(word, Answered) or word.number != LOGIN:
        raise Refused("the member did not answer who this client is: it is of another release")
