"""Where the bus secret comes from, and what it does to a stack."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ...core.errors import BadInput
from ...core.secret import Secret
from ...group.dispatch import Dispatch
from ...layers import CATALOGUE
from ...stack.layer import Layer

log = logging.getLogger(__name__)

VARIABLE = "PLURIBUS_SECRET"
FILE_VARIABLE = "PLURIBUS_SECRET_FILE"
SECURE = "secure"
BELOW_SECURE = ("transport", "fragment")

Given = Secret | bytes | str | os.PathLike[str]


def secret_from(wanted: Given | None) -> Secret | None:
    """The caller's secret, else ``$PLURIBUS_SECRET``, else the file that ``$PLURIBUS_SECRET_FILE`` names."""
    if wanted is None:
        if VARIABLE in os.environ:
            wanted = os.environ[VARIABLE]
        elif FILE_VARIABLE in os.environ:
            wanted = Path(os.environ[FILE_VARIABLE])
        else:
            return None
    return given(wanted, "bus secret")


def given(value: Given, what: str) -> Secret:
    """A secret as callers give it. A path is a file that holds it; space at its end is not part of it."""
    if isinstance(value, Secret):
        return value
    if isinstance(value, os.PathLike):
        return Secret(_read(Path(value), what), what)
    return Secret(value, what)


def _read(path: Path, what: str) -> bytes:
    try:
        value = path.read_bytes().rstrip()
        readable_by_others = os.name == "posix" and path.stat().st_mode & 0o077
    except OSError as error:
        reason = f"the {what} cannot be read from {path} ({error.strerror}): name a file that holds it"
        raise BadInput(reason) from None
    if readable_by_others:
        log.warning("the %s in %s can be read by other users: chmod 600 %s", what, path, path)
    return value


def secured(specification: str) -> str:
    """The same stack with ``secure`` in it, directly above what carries frames, unless it is there already."""
    parts = [part.strip() for part in specification.split("|")]
    names = [part.partition("(")[0] for part in parts]
    if SECURE in names:
        return specification
    at = 0
    while at < len(names) and names[at] in BELOW_SECURE:
        at += 1
    return " | ".join([*parts[:at], SECURE, *parts[at:]])


def catalogue(secret: Secret | None) -> dict[str, Callable[..., Layer]]:
    """Every layer by its name; ``secure`` has the secret already, so that it stands in no specification."""
    known: dict[str, Callable[..., Layer]] = {**CATALOGUE, Dispatch.name: Dispatch}
    if secret is not None:
        known[SECURE] = partial(CATALOGUE[SECURE], secret=secret)
    return known
