"""Transformers without ``await``: what ``pluribus.sync`` offers."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from ....transformations.chain import Chain
from ...sync.face import Closing
from .transformer import Transformer


class SyncTransformer(Closing):
    """See ``Transformer``. ``with bus.transformer(...):`` moves messages while the block runs."""

    _real: Transformer

    @property
    def chain(self) -> Chain:
        return self._real.chain

    @property
    def transformed(self) -> int:
        return self._thread.ask(lambda: self._real.transformed)

    @property
    def failed(self) -> int:
        return self._thread.ask(lambda: self._real.failed)

    @property
    def waits_for(self) -> str:
        return self._thread.ask(lambda: self._real.waits_for)

    @property
    def source(self) -> str:
        return self._real.source

    @property
    def target(self) -> str:
        return self._real.target

    def run(self, *, once: bool = False) -> int:
        return self._thread.call(self._real.run, once=once)

    def stop(self) -> None:
        self._thread.call(self._real.stop)

    def __enter__(self) -> Self:
        self._thread.call(self._real.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.call(self._real.__aexit__, kind, error, trace)
