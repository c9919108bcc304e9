"""An object of this process that has an id: its handlers, its preemptive objects, its subscribers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput, Overflow
from ..core.limits import SUBSCRIBERS_MAX
from ..wire.kqml import Kqml, kqml, plain
from .handlers import Handler, Handlers, handles
from .messages import Said, sender_of, token_of
from .subprotocols import MulticastGroupControl, Naming, Subprotocol

if TYPE_CHECKING:
    from .directory import Directory
    from .interfaces import Export

INSTEAD, BEFORE = "instead", "before"


class Resident:
    """Made by ``Directory.add``."""

    __slots__ = (
        "_handlers",
        "_protocols",
        "aliases",
        "exports",
        "id",
        "methods",
        "mode",
        "preempted_by",
        "running",
        "served",
        "subscribers",
        "waiting",
    )

    def __init__(
        self, served: object, id: str, directory: Directory, subprotocols: Iterable[type[Subprotocol]]
    ) -> None:
        self.id = id
        self.served = served
        self.aliases: dict[str, None] = {}
        self.methods: Mapping[str, Callable[..., Any]] = {}
        """The methods that can be called."""
        self.exports: dict[str, Export] = {}
        """By interface: the handles through which its methods can be called."""
        self.preempted_by: Resident | None = None
        self.mode = INSTEAD
        self.subscribers: dict[tuple[str, str], Any] = {}
        """By subscriber and token: the content to which it subscribed."""
        self.running = 0
        self.waiting: deque[Any] = deque()
        self._handlers = Handlers(served)
        own: list[type[Subprotocol]] = [MulticastGroupControl, *subprotocols]
        if len({protocol.name for protocol in own}) != len(own) or not all(protocol.name for protocol in own):
            raise BadInput("two subprotocols with one name, or one without: give each a name of its own")
        protocols: list[Subprotocol] = [protocol(self, directory) for protocol in own]
        self._protocols = {protocol.name: Handlers(protocol) for protocol in protocols}
        self._protocols[""] = Handlers(Naming(self, directory))
        self._protocols["subscribe"] = Handlers(_Subscribing(self))

    def handler(self, message: Said) -> tuple[Handler | None, Said]:
        """The handler of a message, and its argument: the content of a broadcast is handled as if it had come by
        itself."""
        found = self._handlers.find(message)
        if found is None and isinstance(message, Kqml):
            found = self._built_in(message)
            if found is None and message.performative == "broadcast":
                inner = message.embedded()
                if inner is not None and inner.performative != "broadcast":
                    said = Kqml(inner.performative, {**inner.parameters, **_addresses(message)})
                    handler, said_to = self.handler(said)
                    return (handler, said_to) if handler is not None else (self._handlers.say, message)
        return found or self._handlers.say, message

    def _built_in(self, message: Kqml) -> Handler | None:
        protocol = message.parameters.get("subprotocol")
        if protocol is not None:
            handlers = self._protocols.get(str(protocol)) if protocol not in ("", "subscribe") else None
            return None if handlers is None else handlers.find(message) or handlers.say
        return self._protocols[""].find(message) or self._protocols["subscribe"].find(message)

    def quick(self, message: Kqml) -> Handler | None:
        """The object's own quick handler for a message, if no object preempts it."""
        if self.preempted_by is not None or "subprotocol" in message.parameters:
            return None
        found = self._handlers.by_performative(message.performative)
        return found if found is not None and found.quick else None

    def path(self) -> list[tuple[Resident, bool]]:
        """The objects that get a message to this object, one after another, each with whether it only gets it before
        the next."""
        steps: list[tuple[Resident, bool]] = [(self, False)]
        at = self
        while at.preempted_by is not None:
            if at.mode == INSTEAD:
                steps[0] = (at.preempted_by, steps[0][1])
            else:
                steps.insert(0, (at.preempted_by, True))
            at = at.preempted_by
        return steps

    def wanted_by(self, content: Any) -> list[tuple[str, str]]:
        """The subscriptions to this content: subscribers and their tokens."""
        wanted = plain(content)
        return [key for key, about in self.subscribers.items() if about is None or about == wanted]

    def __repr__(self) -> str:
        names = "".join(f" {alias!r}" for alias in self.aliases)
        return f"<object {self.id[:11]}…{names} {type(self.served).__name__}>"


class _Subscribing:
    """``subscribe`` and ``discard``, for objects that do not handle them themselves."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident

    @handles("subscribe", quick=True)
    def subscribe(self, message: Kqml) -> Any:
        token, subscriber = token_of(message), sender_of(message)
        if not token or not subscriber:
            raise BadInput("a subscribe that names no :sender or no :reply-with: updates could not be sent")
        table = self._resident.subscribers
        if (subscriber, token) not in table and len(table) >= SUBSCRIBERS_MAX:
            raise Overflow(f"{SUBSCRIBERS_MAX} have subscribed to this object already: subscribe to another")
        inner = message.embedded()
        table[(subscriber, token)] = plain(message.content if inner is None else inner.content)
        return kqml("tell")

    @handles("discard", quick=True)
    def discard(self, message: Kqml) -> None:
        self._resident.subscribers.pop((sender_of(message), str(message.get("in-reply-to", ""))), None)


def _addresses(message: Kqml) -> dict[str, Any]:
    names = ("sender", "receiver", "reply-with", "sender_unicast_address")
    return {name: message.parameters[name] for name in names if name in message.parameters}
