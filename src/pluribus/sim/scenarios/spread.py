"""Spread: the tree alone, on a fixed list, while members die between one of its datagrams and the next.

A host dies at a boundary that the seed picks: just before a datagram leaves it, just after that, or before a datagram
on its way reaches it. So each of the source's four failures, and several of them together, strike at every point of a
message's way down and of the acknowledgements' way up. Nothing repairs above the tree: it keeps its promises alone.
"""

from __future__ import annotations

import asyncio
from random import Random

from ...core.errors import MalformedFrame, Violation
from ...core.ids import MemberId
from ...core.ports import Address
from ...layers import CATALOGUE
from ...layers.spread import Spread
from ...layers.spread.words import Down, Rumour, Submit, Up
from ...runtime.bus import Bus
from ..checkers.delivery import integrity
from ..machinery.history import Happening, History
from ..machinery.host import Host
from ..machinery.network import Link
from ..machinery.roster import Roster
from ..machinery.world import World
from . import Scenario

SENDING_S = 1.0
SETTLING_S = 12.0
"""Seconds after which all dead members are known to be dead, every message has reached all, and is forgotten."""
MESSAGES_MAX = 12
FAILURES = ("child_before", "child_after", "proxy_before", "proxy_after")
LATE = 20
"""Datagrams after the planned boundary from which a death may be of any kind."""
SETTLING_SLOWLY_S = 50.0
SLOW = Link(latency_s=2.5)
"""A link so slow that a member's datagrams arrive after it is known to be dead."""
LOSSY = Link(loss=0.04, duplicate=0.04, reorder=0.1)

CATALOGUE.setdefault(Roster.name, Roster)


def stack(seed: int, members: int) -> str:
    """Every shape of tree, with either kind of proxy; in some seeds a member sends that is not in the list."""
    random = Random(f"{seed}/stack")
    by = random.choice(["tree", "tree", "pipeline", "gossip"])
    k, degree = random.randrange(1, 5), random.randrange(1, 4)
    proxy = random.choice(["sender", "first"])
    outside = 1 if members > 2 and random.random() < 0.3 else 0
    spread = f"spread(by={by!r}, k={k}, degree={degree}, proxy={proxy!r})"
    detector = "detector(beat_s=0.2, silence_s=1.5)"
    return f"transport | fragment | {detector} | {spread} | roster(members={members}, outside={outside}) | groups"


class Reaper:
    """Watches the datagrams of the tree, and kills at the boundaries that the seed picked."""

    def __init__(self, world: World) -> None:
        self.world = world
        random = world.random
        self._hosts: dict[Address, Host] = {host.address: host for host in world.hosts}
        datagrams = len(world.hosts) * MESSAGES_MAX
        deaths = [random.randrange(1, datagrams) if random.random() < 0.7 else 1 for _ in range(random.randrange(5))]
        self._due = [(boundary, random.choice(FAILURES)) for boundary in sorted(deaths)]
        self._seen = 0
        self._dead = 0
        self._carry = world.network.carry
        world.network.carry = self.carry  # type: ignore[method-assign]

    def rest(self) -> None:
        self._due.clear()

    def carry(self, source: Address, target: Address, data: bytes) -> None:
        sender, receiver = self._hosts[source], self._hosts[target]
        if not sender.up:
            return  # it died at an earlier datagram of the same moment
        word = self._word(sender, data)
        if word is not None:
            self._seen += 1
            self._strike(sender, word, sends=True, share=0.5)
            self._strike(receiver, word, sends=False, share=1.0)
        if sender.up:
            self._carry(source, target, data)
        if word is not None:
            self._strike(sender, word, sends=True, share=1.0)

    @staticmethod
    def _word(sender: Host, data: bytes) -> object:
        """The tree's word on a datagram; None on any other."""
        assert sender.bus is not None
        try:
            frame = sender.bus._stack.node.codec.decode(data)
        except MalformedFrame:
            return None
        word = frame.headers[-1] if frame.headers else None
        return word if isinstance(word, Spread.headers) else None

    def _strike(self, host: Host, word: object, *, sends: bool, share: float) -> None:
        """Kill the host if a death is due here, of the wanted kind; after a while, of any kind."""
        if not self._due or not host.up or sum(other.up for other in self.world.hosts) <= 2:
            return
        boundary, wanted = self._due[0]
        failure = kind_of(host, word, sends=sends)
        late = self._seen > boundary + LATE
        if self._seen < boundary or self.world.random.random() >= share or not (failure == wanted or late):
            return
        del self._due[0]
        self._dead += 1
        self.world.faults[failure] += 1
        self.world.faults["several"] += self._dead == 2
        self.world.crash(self.world.hosts.index(host))


def kind_of(host: Host, word: object, *, sends: bool) -> str:
    """Which of the source's four failures this is, if the host dies now, before or after it sends this word."""
    assert host.bus is not None
    roster = roster_of(host.bus)
    me = roster.members.index(host.bus.me) if host.bus.me in roster.members else -1
    if isinstance(word, Submit):
        return "sender_after" if sends else "proxy_before"
    if isinstance(word, Down | Rumour):
        if (word.by if isinstance(word, Down) else word.origin) == me:
            return "proxy_after"
        return "child_after" if sends else "child_before"
    if isinstance(word, Up) and (sends or not any(have.proxy == me for have in word.haves)):
        return "child_after"
    return "proxy_after" if isinstance(word, Up) else "other_word"


def roster_of(bus: Bus) -> Roster:
    found = bus._stack.find(Roster)
    assert isinstance(found, Roster)
    return found


async def play(world: World, history: History) -> None:
    random = world.random
    settling_s = SETTLING_S
    weather = random.random()
    if weather < 0.3:
        world.set_link(LOSSY)
    elif weather < 0.5:
        settling_s = SETTLING_SLOWLY_S
        for _ in range(1, len(world.hosts)):
            source, target = random.sample(range(len(world.hosts)), 2)
            world.set_link(SLOW, source, target)
    await listening(world, history)
    reaper = Reaper(world)
    count = random.randrange(1, MESSAGES_MAX + 1)
    haste = random.choice([0.001, 0.02, SENDING_S / MESSAGES_MAX])
    for _ in range(count):
        await asyncio.sleep(haste * random.random())
        bus = random.choice(world.buses)
        send(world, history, bus)
    await asyncio.sleep(settling_s)
    reaper.rest()
    world.validate()
    in_list = [bus for bus in world.buses if bus.me in roster_of(bus).members]
    history.add(Happening(world.now, 0, "settled", members=tuple(bus.me for bus in in_list)))
    for bus in world.buses:
        spread = bus.stats()["spread"]
        held = spread["kept"] + spread["submissions"]
        history.add(Happening(world.now, bus.me, "held", "spread", body=str(held).encode()))


async def listening(world: World, history: History) -> None:
    """Returns when every host records its deliveries, and has the list."""
    for bus in world.buses:
        _listen(world, history, bus)
    while not all(roster_of(bus).members for bus in world.buses):  # noqa: ASYNC110 - virtual time costs nothing
        await asyncio.sleep(0.05)


def _listen(world: World, history: History, bus: Bus) -> None:
    def deliver(message: tuple[int, int], body: bytes) -> None:
        world.note("deliver", bus.name, body)
        history.add(Happening(world.now, bus.me, "deliver", "spread", message, body))

    roster_of(bus).deliver = deliver


def send(world: World, history: History, bus: Bus) -> None:
    roster = roster_of(bus)
    body = f"{bus.name} at {world.now:.6f} ".encode() * world.random.randrange(1, 50)

    def stimulus() -> None:
        # Written down before: a sender that dies while it sends may have sent.
        history.add(Happening(world.now, bus.me, "send", "spread", (bus.me, roster._sent + 1), body))
        roster.send(body)

    bus._stack.run(stimulus)


def agreement(history: History) -> int:
    """A message that one survivor delivers, or sends, is delivered by every survivor of the list."""
    settled = next(history.of("settled"))
    delivered: dict[tuple[int, int], set[int]] = {}
    for h in history.of("deliver"):
        delivered.setdefault(h.id, set()).add(h.member)
    alive = {h.member for h in history.of("held")}
    checks = 0
    for h in history.of("send"):
        have = delivered.get(h.id, set()) & set(settled.members)
        if not have and h.member not in alive:
            continue
        for member in settled.members:
            checks += 1
            if member not in have and member != h.member:
                raise Violation(f"{MemberId(member)!r} never delivered {h.id}, which {len(have)} of the others did")
    return checks


def forgotten(history: History) -> int:
    """At the end no member holds a message: messages that all have are forgotten."""
    sent = sum(1 for _ in history.of("send"))
    checks = 0
    for h in history.of("held"):
        checks += sent
        if h.body != b"0":
            raise Violation(f"{MemberId(h.member)!r} still holds {h.body.decode()} messages that all have")
    return checks


SPREAD = Scenario(
    "spread",
    "the doubling tree by itself, with deaths at every boundary between its datagrams",
    stack,
    play,
    {"integrity": integrity, "agreement": agreement, "forgotten": forgotten},
    (*FAILURES, "several", "loss", "duplicate", "reorder"),
    members_min=2,
    members_max=12,
)
