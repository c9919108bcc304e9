"""Lines to machines on one bus. A style opens one for each of its queues, spaces and so on.

``durable=True``: the machine is on the keepers' log; a program without a keeper asks one. ``durable=False``: it is in
the memory of the members that open it, in a group of its own; machines that are opened with the same ``group`` share
one order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...core.errors import BadInput
from ...core.ids import checked_name
from ...group.host import Machine
from ...group.host.requests import InMemory
from ...group.host.space import LogExtents
from ...group.host.tending import machines_of
from ...group.host.volatile import VolatileSpace
from ..styles.style import Style
from .group_host import GroupHost
from .kinds import style_machines, style_machines_loaded
from .line import GroupWay, MachineLine, Way

if TYPE_CHECKING:
    from ..bus import Bus

T = TypeVar("T")
COUNTED_GROUPS_MAX = 16
"""Of which ``pluribus top`` is told, and machines of each."""


class Machines(Style):
    """What one bus has open. ``bus._style(Machines)`` gives it."""

    closes = 60
    on_clients = "pluribus.runtime.machines.client:ClientMachines"

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.bus: Bus = bus
        self._hosts: dict[str, GroupHost] = {}
        self.space: type[LogExtents] = VolatileSpace
        """How the memory of machines is counted."""

    async def open(
        self,
        name: str,
        code: type[Machine],
        outcome: type[T],
        *,
        durable: bool = True,
        group: str | None = None,
        timeout: float | None = None,
    ) -> MachineLine[T]:
        """A line to the machine of this name, which is made if it is not there. ``Refused`` says which voter has no
        code of it."""
        checked_name(name, "the machine")
        if self.bus.eager and not durable:
            await style_machines_loaded()
        if durable and group is not None:
            raise BadInput("group= is for machines in memory: all durable machines share the keepers' log")
        way: Way = self.bus.durable if durable else self._group_way(group or name, code)
        line: MachineLine[T] = MachineLine(name, way, outcome, durable)
        await line.open(code.kind, code.version, timeout)
        return line

    async def in_memory(self, asked: InMemory) -> msgspec.Raw:
        """What a client asks about a machine in the memory of members: this one is among them from now on."""
        code = style_machines().get(asked.kind)
        if code is None:
            raise BadInput(f"there is no kind of machine {asked.kind!r} that members keep in memory for clients")
        answer = await self._group_way(asked.group, code).ask(asked.request)
        return msgspec.Raw(msgspec.msgpack.encode(answer))

    def _group_way(self, group: str, code: type[Machine]) -> GroupWay:
        bus, hosts = self.bus, self._hosts
        if "total" not in bus.orders:
            raise BadInput("machines in memory need total order: connect with stack='views'")

        async def opened() -> GroupHost:
            bus._check_open()
            host = hosts.get(group)
            if host is None or host.closed:
                codes = {**style_machines(), code.kind: code}
                host = hosts[group] = GroupHost(bus, group, codes, self._left, self.space)
                host.start()
            host.host.learn(code)
            await host.ready()
            return host

        return GroupWay(opened)

    def told(self) -> dict[str, dict[str, Any]]:
        told: dict[str, Any] = {}
        for host in list(self._hosts.values())[:COUNTED_GROUPS_MAX]:
            space = host.host.space
            for one in machines_of(host.host, {})[:COUNTED_GROUPS_MAX]:
                log = {"group": host.name, "live_bytes": space.live, "dead_bytes": space.total - space.live}
                told[str(one["machine"])] = one | log
        return {"memory": told} if told else {}

    def group_host(self, group: str) -> GroupHost | None:
        """The machines of a group, as this member has them; for tests, tools and the simulator."""
        return self._hosts.get(group)

    def _left(self, host: GroupHost) -> None:
        if self._hosts.get(host.name) is host:
            del self._hosts[host.name]

    async def close(self) -> None:
        for host in list(self._hosts.values()):
            host.leave()

    def abandon(self) -> None:
        for host in self._hosts.values():
            host.abandon()

    def validate(self) -> None:
        for host in self._hosts.values():
            host.validate()
