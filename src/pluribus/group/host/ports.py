"""What the host needs of the log below it: a keeper's, or the safe order of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from .bodies import Rows


class HostLog(Rows, Protocol):
    """What the host needs of its log, besides the call-backs that it sets."""

    on_commit: Callable[[int, Sequence[bytes]], None]

    @property
    def row(self) -> int: ...

    @property
    def machine(self) -> int: ...

    @property
    def time_us(self) -> int: ...

    @property
    def applied_voters(self) -> Sequence[int]:
        """The voters as of the row that is being applied: the same at every keeper."""

    @property
    def awaits(self) -> bool:
        """Whether a caller here waits for the results of commands."""

    def halt(self, why: str) -> None: ...
