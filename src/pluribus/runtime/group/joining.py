"""The part of a bus that joins groups and what is built on them, and sends to groups that it is not in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from ..._speed.waiting import Line
from ...core.errors import BadInput, GroupMismatch, Unreachable
from ...core.ids import MemberId, MessageId, checked_name, number_of
from ...core.limits import CACHE_ENTRIES_MAX
from ...core.ports import Random
from ...core.url import BusUrl
from ...group.asking import Answers, Replies
from ...group.dispatch import Dispatch
from ...group.log import StateMachine
from ...group.relay.words import OPEN
from ...group.requests import AskGroup
from ...group.safelog import SafeLog
from ...group.seal import Seal
from ...group.stalled import WAIT, checked_wish
from ...group.state import State
from ...stack.events import Members
from ...wire.bodies import encode_body
from ..styles.style import S
from .asking import ANSWER_S
from .group import Group
from .objects import Objects
from .relay import Relayed
from .replica import Replica
from .secret import Given, given

if TYPE_CHECKING:  # loaded by those who use them, so that ``import pluribus`` stays quick
    from ..keepers.durable_replica import DurableReplica
    from ..keepers.keeping import Keeping
    from .cache import Cache
    from .notifications import Notifications

JOIN_S = 30.0
"""After so long joining fails: the members of the bus do not agree on a view."""

M = TypeVar("M", bound=StateMachine)


class GroupsFace:
    """What ``Bus`` offers of groups; ``Bus`` owns the stack below and ends what is opened here."""

    me: MemberId
    _dispatch: Dispatch
    _groups: dict[str, Group]
    _replicas: dict[str, Replica[Any]]
    _line: Line
    _now: Callable[[], float]
    _random: Random
    url: BusUrl

    @cached_property
    def _relays(self) -> dict[str, Relayed]:
        return {}

    @cached_property
    def _durable_replicas(self) -> dict[str, DurableReplica[Any]]:
        return {}

    @cached_property
    def _open_groups(self) -> dict[int, str]:
        """Open groups of this member, by the number of the group in which outsiders ask them."""
        return {}

    def _asked_beside(self, name: str) -> None:
        """Listen for questions of outsiders from now on."""
        number = number_of(f"ask/{name}")
        self._open_groups[number] = name
        known = self._dispatch.members.get(number)
        if known is not None:
            self._shown_beside(known)

    def _shown_beside(self, event: Members) -> None:
        name = self._open_groups.get(event.group)
        if name is not None and name in self._groups:
            from .outsiders import Outsiders

            self._style(Outsiders).shown(event, name)

    if TYPE_CHECKING:

        @property
        def keeping(self) -> Keeping: ...

        def _style(self, kind: type[S]) -> S: ...

    @cached_property
    def _nonces(self) -> Iterator[int]:
        """Nonces for messages that are sealed with keys of groups."""
        return count()

    @property
    def _provided(self) -> set[str]:
        raise NotImplementedError

    @property
    def orders(self) -> tuple[str, ...]:
        """The orders that the stack of this bus offers, the default first."""
        provided = self._provided
        basic = ("fifo", "none") if "reliability" in provided else ("none", *({"fifo"} & provided))
        return (*basic, *(order for order in ("causal", "total", "semantic") if order in provided))

    async def group(
        self,
        name: str,
        *,
        order: str | None = None,
        safe: bool = False,
        own: bool = True,
        state: State | None = None,
        stalled: str = WAIT,
        open: bool = False,
        key: Given | None = None,
    ) -> Group:
        """Join a group; returns when this member is in its view. ``own=False``: this member does not hear itself.

        ``order`` defaults to the best that needs no agreement: fifo where the stack is reliable, none elsewhere.
        ``safe`` delivers a message only when every member of the group holds it; it implies total order. Every member
        of a group asks for the same. Asking again gives the same group.

        ``state`` has two methods, ``snapshot() -> bytes`` and ``restore(bytes)``. The first member's state is the
        group's. A new member is given the state before its first message, so that it has every message applied once;
        then this call returns when the state is restored. A member that was cut off from an ordered group is given the
        state again when it comes back, between two messages. Only one task may read the messages of such a group.

        ``stalled`` says what becomes of members that do not read while this one wants to send: ``wait`` for them,
        ``exclude`` them from the group after some time, or, on a best-effort stack, ``drop`` what they have no room
        for.

        By default a group is closed: only its members send to it. If all its members opened it with ``open=True``,
        every process of the bus may send through any of them (``bus.send``, ``bus.relay``).

        ``key`` (bytes, text, or the path of a file) is a secret of the members of this group. A process with another
        key is refused with ``GroupMismatch``, and cannot read the messages.
        """
        self._check_open()
        seal = self._seal(name, key, open=open) if key is not None else None
        asked = [
            word for word in (order, "safe" if safe else "", OPEN if open else "", seal.word if seal else "") if word
        ]
        order = order if order is not None else "total" if safe else self.orders[0]
        if order not in self.orders:
            raise BadInput(f"order={order!r} is not offered by the stack of this bus: use {' or '.join(self.orders)}")
        if safe and order != "total":
            raise BadInput(f"safe=True goes with order='total', not with {order!r}: leave out one of them")
        promises = " ".join(dict.fromkeys([order, *asked]))
        group = self._groups.get(name)
        if group is not None:
            if group._channel.own is not own:
                raise GroupMismatch(f"group {name!r} is open with own={not own}: close it first, or ask for the same")
            had = group._channel.promises
            if not set(asked) <= set(had.split()):
                raise GroupMismatch(f"group {name!r} is open with {had!r}, not with {promises!r}: ask for the same")
            return await self._opened(group)
        if open and "views" not in self._provided:
            raise BadInput("open=True needs agreed views, by which members count once what is relayed: stack='views'")
        if state is not None and not (own and "views" in self._provided):
            raise BadInput("state= needs agreed views and a member that hears itself: stack='views', own=True")
        wish = checked_wish(stalled, self._provided)
        channel = self._dispatch.join(name, own=own, promises=promises, state=state, stalled=wish, seal=seal)
        group = self._groups[name] = Group(channel, self._dispatch, self._left, self._now, self._line)
        if open:
            self._asked_beside(name)
        return await self._opened(group)

    async def _opened(self, group: Group) -> Group:
        """The group, once this member is in its view and has its state."""
        if not group.opening.done:
            async with group.opening:
                try:
                    await group.joined(JOIN_S)
                except TimeoutError:
                    raise Unreachable(f"no view of group {group.name!r} in {JOIN_S:g} s: look at bus.stats()") from None
                await group.restored()
        return group

    def _seal(self, name: str, key: Given, *, open: bool) -> Seal:
        if open:
            raise BadInput("open=True and key= exclude each other: senders from outside do not have the key")
        if "views" not in self._provided:
            raise BadInput("key= needs agreed views, which say who is in the group: connect with stack='views'")
        return Seal(given(key, "group key"), self.url.bus, checked_name(name, "the group"), int(self.me), self._nonces)

    def relay(self, name: str) -> Relayed:
        """A way to send to an open group without joining it, through any of its members; see
        ``runtime/group/relay.py``."""
        self._check_open()
        if "views" not in self._provided:
            raise BadInput("senders from outside need agreed views: connect with stack='views'")
        return self._relays.get(name) or self._relays.setdefault(name, Relayed(name, self._dispatch, self._now))

    async def send(self, name: str, body: Any, *, timeout: float | None = None) -> MessageId:
        """Send to a group; returns when every member has the message. A process that is not in the group sends through
        one of the members, if the group is open.

        Raises ``NoMembers`` if nobody is in the group, ``Refused`` if it is closed, and ``Uncertain`` if it cannot be
        known, or is not known after ``timeout`` seconds, whether every member has the message.
        """
        if name in self._groups:
            group = await self._opened(self._groups[name])
            return await group.send(body, wait="stable", timeout=timeout)
        return await self.relay(name).send(body, wait="stable", timeout=timeout)

    async def ask(self, name: str, body: Any, *, replies: Replies = "all", timeout: float | None = ANSWER_S) -> Answers:
        """Ask a group; see ``Group.ask``. A process that is not in the group asks through one of the members, if the
        group is open. ``Uncertain``: that member went away, and the question may have been asked."""
        from .outsiders import Outsiders, answers_of

        self._check_open()
        if "views" not in self._provided:
            raise BadInput("questions from outside need agreed views: connect with stack='views'")
        asked = AskGroup(checked_name(name, "the group"), *encode_body(body), replies, timeout)
        return answers_of(await self._style(Outsiders).ask(asked))

    async def objects(
        self,
        name: str,
        interface: type | None = None,
        *,
        serve: object | None = None,
        one_by_one: bool = True,
        timeout: float | None = ANSWER_S,
        order: str | None = None,
        safe: bool = False,
        own: bool = True,
        state: State | None = None,
        stalled: str = WAIT,
        open: bool = False,
        key: Given | None = None,
    ) -> Objects:
        """Join an object group: one object that stands for those which its members serve. See ``Group.proxy``.

        ``serve`` is this member's own object, if it has one; its calls run one by one unless told otherwise.
        ``timeout`` is for each call. The other options are those of ``group``; with ``order="total"`` objects that
        start alike stay alike.
        """
        group = await self.group(
            name, order=order, safe=safe, own=own, state=state, stalled=stalled, open=open, key=key
        )
        if serve is not None:
            group.serve(serve, one_by_one=one_by_one)
        return group.proxy(interface, timeout=timeout)

    @overload
    async def replica(self, name: str, machine: M) -> Replica[M]: ...

    @overload
    async def replica(
        self,
        name: str,
        machine: str | type[M],
        *,
        durable: Literal[True],
        version: int = 1,
        timeout: float | None = 15.0,
    ) -> DurableReplica[M]: ...

    async def replica(
        self,
        name: str,
        machine: Any,
        *,
        durable: bool = False,
        version: int = 1,
        timeout: float | None = 15.0,
    ) -> Any:
        """Open a replicated state machine: every member that opens the name applies the same commands alike.

        ``machine`` has ``apply(index, command) -> bytes``, ``snapshot() -> bytes`` and ``restore(bytes)``. Returns when
        this member has the state; the first member's state is empty. The state is in the memory of the members in the
        primary, and lives as long as one of them does. Opening it again with the same machine gives the same replica.

        With ``durable=True`` the machine runs at the keepers, on their disks, and they must have its code: ``machine``
        is the kind under which they have it (``connect(store=, machines={kind: Class})``, ``pluribus keep --machine
        kind=module:Class``), or the class, if its name is the kind. ``Refused`` says which voter lacks the code in this
        ``version``.
        """
        if durable:
            return await self._durable_replica(name, machine, version, timeout)
        if isinstance(machine, (str, type)):
            raise BadInput(f"{machine!r} is the name of a machine, or a class: give an object, or durable=True")
        self._check_open()
        if "total" not in self.orders:
            raise BadInput("a replica needs total order: connect with stack='views'")
        replica = self._replicas.get(name)
        if replica is None:
            log = SafeLog(f"replica/{checked_name(name, 'the replica')}", self._dispatch, new_number(self._random))
            left, tell = self._left_replica, self._dispatch.on_event
            replica = Replica(name, log, machine, new_number(self._random), left, tell)
            self._replicas[name] = replica
        elif replica.machine is not machine:
            raise GroupMismatch(f"replica {name!r} is open with another machine: close it first, or give the same")
        if not replica.opening.done:
            async with replica.opening:
                await replica.ready()
        return replica

    async def notifications(
        self,
        name: str,
        consumer: Any,
        *,
        order: str | None = None,
        safe: bool = False,
        own: bool = True,
        stalled: str = WAIT,
        open: bool = False,
        key: Given | None = None,
    ) -> Notifications:
        """Join a notification bus: ``await n.notify(body)`` calls ``consumer.notified(message)`` at every member.

        The options are those of ``group``; the order is total where the stack has it. A consumer with ``get_cache``
        and ``put_cache`` is given the others' cache when it joins. ``runtime/group/notifications.py`` has every hook.
        """
        from .notifications import Notifications, cache_of

        if order is None and not safe and "total" in self.orders:
            order = "total"
        if name in self._groups:
            raise GroupMismatch(f"group {name!r} is open here, and its messages have one reader: close it first")
        state = cache_of(consumer)
        group = await self.group(
            name, order=order, safe=safe, own=own, state=state, stalled=stalled, open=open, key=key
        )
        return Notifications(group, consumer)

    async def cache(self, name: str, *, entries_max: int = CACHE_ENTRIES_MAX) -> Cache:
        """Join a replicated cache; returns when this member has all entries. The first member's ``entries_max`` holds
        for all."""
        from .cache import Cache, CacheConsumer

        consumer = CacheConsumer(self.me, entries_max)
        return Cache(await self.notifications(f"cache/{name}", consumer), consumer)

    async def _durable_replica(
        self, name: str, machine: str | type[StateMachine], version: int, timeout: float | None
    ) -> DurableReplica[Any]:
        from ..keepers.durable_replica import opened_replica

        self._check_open()
        session = new_number(self._random)
        return await opened_replica(self._durable_replicas, name, machine, version, timeout, self.keeping, session)

    def _left_replica(self, replica: Replica[Any]) -> None:
        self._replicas.pop(replica.name, None)

    def _left(self, group: Group) -> None:
        self._groups.pop(group.name, None)

    def _check_open(self) -> None:
        raise NotImplementedError


def new_number(random: Random) -> int:
    """A random number, which nobody else is likely to draw."""
    return random.getrandbits(62) + 1
