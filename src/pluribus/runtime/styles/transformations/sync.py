"""Transformers without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

from types import TracebackType

from ...sync.face import Face
from .transformer import Transformer


class SyncTransformer(Face):
    """See ``Transformer``. ``with bus.transformer(...):`` moves messages while the block runs."""

    _real: Transformer

    def __enter__(self) -> SyncTransformer:
        self._thread.call(self._real.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._real.__aexit__, kind, error, trace)

    def run(self, *, once: bool = False) -> int:
        return self._thread.call(self._real.run, once=once)
