"""One run of one protocol: nodes on a square, members among them, sources that send, and the outcome.

With one seed the places, the paths, the members and the times of sending are the same for every protocol, so that runs
can be compared one by one. The medium and each node have a chance of their own.
"""

from __future__ import annotations

from random import Random

import msgspec

from ...core.errors import BadInput, Violation
from .adaptive import AdaptiveFlooding
from .air import Air
from .amris import Amris
from .amroute import AmRoute
from .flooding import Flooding
from .gossip import AirGossip
from .hyper import HyperFlooding
from .node import Data, RadioNode
from .odmrp import Odmrp
from .places import Places, Waypoints, reached
from .scoped import ScopedFlooding

PROTOCOLS: dict[str, type[RadioNode]] = {
    "flooding": Flooding,
    "scoped flooding": ScopedFlooding,
    "hyper flooding": HyperFlooding,
    "adaptive flooding": AdaptiveFlooding,
    "AMRIS": Amris,
    "AMRoute": AmRoute,
    "ODMRP": Odmrp,
    "gossip": AirGossip,
}

KM_H = 1 / 3.6


class Setting(msgspec.Struct, frozen=True):
    """One point of the comparison."""

    nodes: int = 50
    members: int = 10
    sources: int = 2
    speed_km_h: float = 36.0
    seconds: float = 120.0
    warm_s: float = 10.0
    """Before the first message, for trees to grow."""
    calm_s: float = 5.0
    """After the last one, for it to arrive."""
    rate: float = 2.0
    """Messages a second of each source."""
    length: int = 256
    loss: float = 0.02
    side_m: float = 1_000.0
    range_m: float = 250.0
    seed: int = 0

    def check(self) -> None:
        if not 0 < self.sources <= self.members <= self.nodes:
            raise BadInput(
                f"{self.sources} sources among {self.members} members among {self.nodes} nodes: have at least one "
                f"source, and no more of one than of the next"
            )
        if self.seconds <= self.warm_s + self.calm_s:
            raise BadInput(f"{self.seconds} s are over before a message is sent: take more than {self.warm_s:g} s")


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of one run."""

    sent: int
    wanted: int
    """Deliveries, if every member got every message of others."""
    delivered: int
    connected: int
    """Of the wanted ones, those for which a path existed when the message was sent."""
    transmissions: int
    data_transmissions: int
    control_bytes: int
    collided: int
    dropped: int
    energy_j: float
    delay_s: float
    """From sending to delivery, on average."""

    @property
    def ratio(self) -> float:
        return self.delivered / max(self.wanted, 1)

    @property
    def transmissions_each(self) -> float:
        """Of data and control, for each delivery."""
        return self.transmissions / max(self.delivered, 1)

    @property
    def data_transmissions_each(self) -> float:
        return self.data_transmissions / max(self.delivered, 1)

    @property
    def control_bytes_each(self) -> float:
        return self.control_bytes / max(self.delivered, 1)


class World:
    """Nodes with one protocol on the air, and a count of what is delivered."""

    def __init__(
        self, protocol: str, setting: Setting, *, places: Places | None = None, members: frozenset[int] | None = None
    ) -> None:
        setting.check()
        if protocol not in PROTOCOLS:
            raise BadInput(f"there is no protocol {protocol!r} of the radio world: use {', '.join(PROTOCOLS)}")
        self.setting = setting
        seed = setting.seed
        if places is None:
            places = Waypoints(
                setting.nodes,
                Random(f"places {seed}"),
                speed_m_s=setting.speed_km_h * KM_H,
                side_m=setting.side_m,
                range_m=setting.range_m,
            )
        if members is None:
            order = list(range(setting.nodes))
            Random(f"members {seed}").shuffle(order)
            members = frozenset(order[: setting.members])
        self.air = Air(places, Random(f"air {protocol} {seed}"), loss=setting.loss)
        self.members = members
        self.sources = sorted(members)[: setting.sources]
        self.nodes = [
            PROTOCOLS[protocol](node, self.air, members, self.deliver, Random(f"node {protocol} {seed} {node}"))
            for node in range(setting.nodes)
        ]
        self.sent_at: dict[tuple[int, int], float] = {}
        self.got: dict[int, set[tuple[int, int]]] = {member: set() for member in members}
        self.delivered = 0
        self.connected = 0
        self._delays_s = 0.0
        for node in self.nodes:
            node.start()

    def deliver(self, member: int, data: Data) -> None:
        key = (data.source, data.number)
        if key in self.got[member] or data.source == member or key not in self.sent_at:
            raise Violation(f"node {member} was given message {key} that it had, sent itself or nobody sent")
        self.got[member].add(key)
        self.delivered += 1
        self._delays_s += self.air.now - self.sent_at[key]

    def send(self, source: int, number: int) -> None:
        now = self.air.now
        self.sent_at[(source, number)] = now
        self.connected += len(reached(self.air.places, source, now) & self.members) - 1
        self.nodes[source].send(Data(source, number, self.setting.length))

    def traffic(self) -> None:
        """Every source sends at its rate, a little unevenly."""
        setting = self.setting
        random = Random(f"traffic {setting.seed}")
        for source in self.sources:
            at, number = setting.warm_s + random.random() / setting.rate, 0
            while at < setting.seconds - setting.calm_s:
                self.air.later(at, self.send, source, number)
                at += (0.8 + 0.4 * random.random()) / setting.rate
                number += 1

    def outcome(self) -> Outcome:
        counted = self.air.counted
        return Outcome(
            sent=len(self.sent_at),
            wanted=len(self.sent_at) * (len(self.members) - 1),
            delivered=self.delivered,
            connected=self.connected,
            transmissions=counted.transmissions,
            data_transmissions=counted.data_transmissions,
            control_bytes=counted.control_bytes,
            collided=counted.collided,
            dropped=counted.dropped,
            energy_j=counted.energy_j,
            delay_s=self._delays_s / max(self.delivered, 1),
        )


def play(protocol: str, setting: Setting) -> Outcome:
    """The whole run. The same setting gives the same outcome."""
    world = World(protocol, setting)
    world.traffic()
    world.air.run(setting.seconds)
    return world.outcome()
