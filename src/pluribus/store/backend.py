"""What a place for bytes must do, blocking; one thread uses it at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Backend(Protocol):
    """Writes gather until ``commit``, which returns when all of them would survive a loss of power."""

    def append(self, log: str, rows: Sequence[bytes]) -> None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Forget what was not committed; the log is as it was."""

    def read(self, log: str, start: int, stop: int) -> Sequence[bytes | None]: ...

    def get(self, key: str) -> bytes | None: ...

    def end(self, log: str) -> int: ...

    def close(self) -> None: ...
