"""Objects on a bus without ``await``, for ``pluribus.sync``.

Handlers and methods of objects run as on any bus: plain functions in threads, coroutines on the background loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any

from ....core.errors import Closed
from ....objects.interfaces import Export
from ....objects.messages import ObjectMessage, Said
from ....objects.queued import QueuedCall
from ....objects.residents import INSTEAD
from ....objects.subprotocols import Subprotocol
from ....wire.kqml import Kqml
from ...group.asking import ANSWER_S
from ...loop.background import Background
from ...sync.face import Closing, StandIn, real_of
from . import communicator as real_communicator
from . import directory as real_directory
from . import handles as real_handles
from . import networks as real_networks
from . import queue as real_queue
from . import shadows as real_shadows
from .directory import Listed
from .places import FIND_S
from .shadows import USUAL, Usual


class SyncShadow(StandIn):
    """See ``Shadow``."""

    _real: real_shadows.Shadow

    @property
    def id(self) -> str:
        return self._real.id

    @property
    def member(self) -> int:
        return self._real.member

    @property
    def local(self) -> object | None:
        return self._real.local

    def send(self, message: Kqml | str, *, sender: object | None = None) -> None:
        self._thread.call(self._real.send, message, sender=real_of(sender))

    def send_object(
        self, body: Any, *, in_reply_to: str = "", reply_with: str = "", sender: object | None = None
    ) -> None:
        self._thread.call(
            self._real.send_object, body, in_reply_to=in_reply_to, reply_with=reply_with, sender=real_of(sender)
        )

    def ask(
        self, message: Kqml | str | ObjectMessage, *, sender: object | None = None, timeout: float | None = ANSWER_S
    ) -> Said:
        return self._thread.call(self._real.ask, message, sender=real_of(sender), timeout=timeout)

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


class SyncDirectory(StandIn):
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
        return SyncShadow(
            self._thread.call(
                self._real.add,
                real_of(served),
                *aliases,
                id=id,
                names=names,
                subprotocols=subprotocols,
                exports=exports,
            ),
            self._thread,
        )

    def remove(self, who: object) -> None:
        self._thread.call(self._real.remove, real_of(who))

    def add_alias(self, alias: str, who: object) -> None:
        self._thread.call(self._real.add_alias, alias, real_of(who))

    def delete_alias(self, alias: str, who: object) -> None:
        self._thread.call(self._real.delete_alias, alias, real_of(who))

    def preempt(self, target: object, by: object | None, mode: str = INSTEAD) -> None:
        self._thread.ask(self._real.preempt, real_of(target), real_of(by), mode)

    def find(self, name: str, *, timeout: float = FIND_S) -> SyncShadow:
        return SyncShadow(self._thread.call(self._real.find, name, timeout=timeout), self._thread)

    def shadow(self, name: str) -> SyncShadow:
        return SyncShadow(self._thread.ask(self._real.shadow, name), self._thread)

    def find_all(self, name: str, *, timeout: float = 0.0) -> list[SyncShadow]:
        return [SyncShadow(one, self._thread) for one in self._thread.call(self._real.find_all, name, timeout=timeout)]

    def here(self) -> list[SyncShadow]:
        return [SyncShadow(one, self._thread) for one in self._thread.ask(self._real.here)]

    def list(self, *, timeout: float = FIND_S) -> list[Listed]:
        return self._thread.call(self._real.list, timeout=timeout)


class SyncCommunicator(StandIn):
    """See ``ObjectCommunicator``."""

    _real: real_communicator.ObjectCommunicator

    def send(self, receiver: SyncShadow | str, message: Kqml | str, *, sender: object | None = None) -> None:
        self._thread.call(self._real.send, real_of(receiver), message, sender=real_of(sender))

    def send_object(
        self,
        receiver: SyncShadow | str,
        body: Any,
        *,
        in_reply_to: str = "",
        reply_with: str = "",
        sender: object | None = None,
    ) -> None:
        self._thread.call(
            self._real.send_object,
            real_of(receiver),
            body,
            in_reply_to=in_reply_to,
            reply_with=reply_with,
            sender=real_of(sender),
        )

    def ask(
        self,
        receiver: SyncShadow | str,
        message: Kqml | str | ObjectMessage,
        *,
        sender: object | None = None,
        timeout: float | None = ANSWER_S,
    ) -> Said:
        return self._thread.call(self._real.ask, real_of(receiver), message, sender=real_of(sender), timeout=timeout)

    def broadcast(self, alias: str, message: Kqml | str, *, sender: object | None = None) -> None:
        self._thread.call(self._real.broadcast, alias, message, sender=real_of(sender))

    def ask_all(
        self, alias: str, message: Kqml | str, *, sender: object | None = None, timeout: float | None = ANSWER_S
    ) -> list[Said]:
        return self._thread.call(self._real.ask_all, alias, message, sender=real_of(sender), timeout=timeout)

    def multicast(self, message: Kqml | str, *, sender: object | None = None) -> None:
        self._thread.call(self._real.multicast, message, sender=real_of(sender))

    def notify(self, who: object, content: Any, value: Any) -> int:
        return self._thread.call(self._real.notify, real_of(who), content, value)

    def stats(self) -> dict[str, int]:
        return self._thread.ask(self._real.stats)

    def subscribe(
        self,
        receiver: SyncShadow | str,
        content: Any,
        *,
        sender: object | None = None,
        timeout: float | None = ANSWER_S,
    ) -> SyncUpdates:
        """The subscription begins at once: use it with ``with``."""
        options: dict[str, Any] = {"sender": real_of(sender), "timeout": timeout}
        real = self._thread.ask(self._real.subscribe, real_of(receiver), content, **options)
        self._thread.call(real.open)
        return SyncUpdates(real, self._thread)

    def watch(self) -> SyncWatching:
        """It begins at once: use it with ``with``."""
        real = self._thread.ask(self._real.watch)
        self._thread.ask(real.__enter__)
        return SyncWatching(real, self._thread)


class SyncWaiting(Closing):
    """See ``Waiting``: iterate it, or ``receive``."""

    _real: real_communicator.Waiting

    def receive(self, timeout: float | None = None) -> Said:
        return self._thread.call(self._real.receive, timeout)

    def __iter__(self) -> Iterator[Said]:
        with suppress(Closed):
            while True:
                yield self.receive()


class SyncUpdates(SyncWaiting):
    """See ``Updates``."""

    _real: real_communicator.Updates

    def close(self) -> None:
        if not self.closed:
            self._thread.call(self._real.aclose)


class SyncWatching(SyncWaiting):
    """See ``Watching``."""

    _real: real_communicator.Watching

    def close(self) -> None:
        if not self.closed:
            self._thread.ask(self._real.__exit__, None, None, None)


class SyncNetwork(StandIn):
    """See ``VirtualNetwork``."""

    _real: real_networks.VirtualNetwork

    @property
    def name(self) -> str:
        return self._real.name

    @property
    def mode(self) -> str:
        return self._thread.ask(lambda: self._real.mode)

    def switch(self, mode: str) -> None:
        self._thread.ask(self._real.switch, mode)

    def add(self, shadow: SyncShadow) -> None:
        self._thread.call(self._real.add, real_of(shadow))

    def delete(self, shadow: SyncShadow) -> None:
        self._thread.call(self._real.delete, real_of(shadow))

    def multicast(self, message: Kqml | str, sender: object | None = None) -> None:
        self._thread.call(self._real.multicast, message, real_of(sender))

    def __len__(self) -> int:
        return self._thread.ask(self._real.__len__)

    def __contains__(self, shadow: object) -> bool:
        return self._thread.ask(self._real.__contains__, real_of(shadow))


class SyncQueue(StandIn):
    """See ``CallQueue``."""

    _real: real_queue.CallQueue

    @property
    def site(self) -> str:
        return self._thread.ask(lambda: self._real.site)

    def open(self, path: str | os.PathLike[str]) -> None:
        self._thread.call(self._real.open, path)

    def pending(self) -> list[QueuedCall]:
        return self._thread.ask(self._real.pending)

    def answer(self, which: str | int, *, timeout: float | None = None) -> Any:
        return self._thread.call(self._real.answer, which, timeout=timeout)


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
