"""Objects on a bus without ``await``, for ``pluribus.sync``.

Handlers and methods of objects run as on any bus: plain functions in threads, coroutines on the background loop.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

from ....core.errors import Closed
from ....objects.interfaces import Export
from ....objects.messages import ObjectMessage, Said
from ....objects.residents import INSTEAD
from ....objects.subprotocols import Subprotocol
from ....wire.kqml import Kqml
from ...group.asking import ANSWER_S
from ...loop.background import Background
from ...sync.face import Face
from . import communicator as real_communicator
from . import directory as real_directory
from . import handles as real_handles
from . import networks as real_networks
from . import queue as real_queue
from . import shadows as real_shadows
from .places import FIND_S
from .shadows import USUAL, Usual


def _real(who: Any) -> Any:
    return who._real if isinstance(who, SyncShadow) else who


class SyncShadow(Face):
    """See ``Shadow``."""

    _real: real_shadows.Shadow

    @property
    def id(self) -> str:
        return self._real.id

    @property
    def local(self) -> object | None:
        return self._real.local

    def send(self, message: Kqml | str, *, sender: object | None = None) -> None:
        self._thread.call(self._real.send, message, sender=_real(sender))

    def send_object(
        self, body: Any, *, in_reply_to: str = "", reply_with: str = "", sender: object | None = None
    ) -> None:
        options = {"in_reply_to": in_reply_to, "reply_with": reply_with, "sender": _real(sender)}
        self._thread.call(self._real.send_object, body, **options)

    def ask(
        self, message: Kqml | str | ObjectMessage, *, sender: object | None = None, timeout: float | None = ANSWER_S
    ) -> Said:
        return self._thread.call(self._real.ask, message, sender=_real(sender), timeout=timeout)

    def call(
        self,
        method: str,
        *args: Any,
        timeout: float | Usual | None = USUAL,
        queued: bool = False,
        key: str = "",
        **named: Any,
    ) -> Any:
        return self._thread.call(self._real.call, method, *args, timeout=timeout, queued=queued, key=key, **named)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SyncShadow) and self._real == other._real

    def __hash__(self) -> int:
        return hash(self._real)


class SyncDirectory(Face):
    """See ``ObjectDirectory``."""

    _real: real_directory.ObjectDirectory

    def add(
        self,
        served: object,
        *aliases: str,
        id: str | None = None,
        names: Collection[str] | None = None,
        subprotocols: Iterable[type[Subprotocol]] = (),
        exports: Iterable[type | Export] = (),
    ) -> SyncShadow:
        options: dict[str, Any] = {"id": id, "names": names, "subprotocols": subprotocols, "exports": exports}
        return SyncShadow(self._thread.call(self._real.add, served, *aliases, **options), self._thread)

    def remove(self, who: object) -> None:
        self._thread.call(self._real.remove, _real(who))

    def add_alias(self, alias: str, who: object) -> None:
        self._thread.call(self._real.add_alias, alias, _real(who))

    def delete_alias(self, alias: str, who: object) -> None:
        self._thread.call(self._real.delete_alias, alias, _real(who))

    def preempt(self, target: object, by: object | None, mode: str = INSTEAD) -> None:
        self._thread.ask(self._real.preempt, _real(target), _real(by), mode)

    def shadow(self, name: str) -> SyncShadow:
        return SyncShadow(self._real.shadow(name), self._thread)

    def find(self, name: str, *, timeout: float = FIND_S) -> SyncShadow:
        return SyncShadow(self._thread.call(self._real.find, name, timeout=timeout), self._thread)

    def find_all(self, name: str, *, timeout: float = 0.0) -> list[SyncShadow]:
        found = self._thread.call(self._real.find_all, name, timeout=timeout)
        return [SyncShadow(shadow, self._thread) for shadow in found]

    def here(self) -> list[SyncShadow]:
        return [SyncShadow(shadow, self._thread) for shadow in self._thread.ask(self._real.here)]


class SyncCommunicator(Face):
    """See ``ObjectCommunicator``."""

    _real: real_communicator.ObjectCommunicator

    def send(self, receiver: SyncShadow | str, message: Kqml | str, *, sender: object | None = None) -> None:
        self._thread.call(self._real.send, _real(receiver), message, sender=_real(sender))

    def ask(
        self,
        receiver: SyncShadow | str,
        message: Kqml | str | ObjectMessage,
        *,
        sender: object | None = None,
        timeout: float | None = ANSWER_S,
    ) -> Said:
        return self._thread.call(self._real.ask, _real(receiver), message, sender=_real(sender), timeout=timeout)

    def send_object(
        self,
        receiver: SyncShadow | str,
        body: Any,
        *,
        in_reply_to: str = "",
        reply_with: str = "",
        sender: object | None = None,
    ) -> None:
        options = {"in_reply_to": in_reply_to, "reply_with": reply_with, "sender": _real(sender)}
        self._thread.call(self._real.send_object, _real(receiver), body, **options)

    def broadcast(self, alias: str, message: Kqml | str, *, sender: object | None = None) -> None:
        self._thread.call(self._real.broadcast, alias, message, sender=_real(sender))

    def ask_all(
        self, alias: str, message: Kqml | str, *, sender: object | None = None, timeout: float | None = ANSWER_S
    ) -> list[Said]:
        return self._thread.call(self._real.ask_all, alias, message, sender=_real(sender), timeout=timeout)

    def multicast(self, message: Kqml | str, *, sender: object | None = None) -> None:
        self._thread.call(self._real.multicast, message, sender=_real(sender))

    def notify(self, who: object, content: Any, value: Any) -> int:
        return self._thread.call(self._real.notify, _real(who), content, value)

    def subscribe(
        self,
        receiver: SyncShadow | str,
        content: Any,
        *,
        sender: object | None = None,
        timeout: float | None = ANSWER_S,
    ) -> SyncUpdates:
        """The subscription begins at once: use it with ``with``."""
        options = {"sender": _real(sender), "timeout": timeout}
        real = self._thread.ask(self._real.subscribe, _real(receiver), content, **options)
        self._thread.call(real.open)
        return SyncUpdates(real, self._thread)


class SyncUpdates(Face):
    """See ``Updates``."""

    _real: real_communicator.Updates

    def receive(self, timeout: float | None = None) -> Said:
        return self._thread.call(self._real.receive, timeout)

    def __iter__(self) -> Iterator[Said]:
        with suppress(Closed):
            while True:
                yield self.receive()

    def close(self) -> None:
        if self._thread.usable:
            self._thread.call(self._real.aclose)


class SyncNetwork(Face):
    """See ``VirtualNetwork``."""

    _real: real_networks.VirtualNetwork

    def add(self, shadow: SyncShadow) -> None:
        self._thread.call(self._real.add, shadow._real)

    def delete(self, shadow: SyncShadow) -> None:
        self._thread.call(self._real.delete, shadow._real)

    def multicast(self, message: Kqml | str, sender: object | None = None) -> None:
        self._thread.call(self._real.multicast, message, _real(sender))

    def __len__(self) -> int:
        return len(self._real)


class SyncQueue(Face):
    """See ``CallQueue``."""

    _real: real_queue.CallQueue


class SyncHandle:
    """See ``Handle``."""

    def __init__(self, real: real_handles.Handle, thread: Background) -> None:
        self._real = real
        self._thread = thread

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._real, name)
        return lambda *args, **named: self._thread.call(method, *args, **named)

    def __repr__(self) -> str:
        return f"<synchronous {self._real!r}>"
