"""The promises to occupants of a software bus, as functions that read a history; see ``checkers``.

Happenings of this kind: ``send`` (a message, its port as group); ``counted`` (``members`` are the tickets that are
waited for, the body has the leg of each, one a word); ``done`` (the same of those that acknowledged); ``expired`` (a
report; legs as body); ``refused``; ``lost`` (the sender of this origin is gone with its queue). Of receivers, with
origin and ticket as ``chain``: ``enrolled``, ``accept``, ``deliver``, ``ack``, ``withhold``. Of routers: ``map`` (one
began, with these connections), ``route+`` and ``route-``, ``occupied`` (who is in a slot now), ``emptied`` (the last
occupant of a slot left for good). And ``settled``. Versions of the map are pairs in ``parent``; the version that an
accepted message carried is in ``members``, and ``orphan`` says that its ticket was known to be stale.
"""

from __future__ import annotations

from collections import defaultdict

from ...core.errors import Violation
from ...core.ids import MessageId
from ..machinery.history import History

Hand = tuple[int, str, MessageId]


def given_once(history: History) -> int:
    """A receiver, wherever it has moved, is given a message once, or again if it withheld it."""
    state: dict[Hand, str] = {}
    checks = 0
    for h in history.happenings:
        if h.what not in ("deliver", "ack", "withhold"):
            continue
        key = (h.chain[0], h.group, h.id)
        before = state.get(key, "")
        if h.what == "deliver":
            checks += 1
            if before in ("deliver", "ack"):
                raise Violation(f"{h.group} was given {h.id} again at {h.at:.6f}, which it had {before}")
        state[key] = h.what
    return checks


def done_means_acknowledged(history: History) -> int:
    """If a sender calls a message done, each occupant that it counted has acknowledged it, on every connection that
    stayed."""
    acked: set[tuple[MessageId, str, int]] = set()
    origins = {h.chain[1]: h.chain[0] for h in history.of("enrolled")}
    reported: dict[MessageId, set[str]] = defaultdict(set)
    checks = 0
    for h in history.happenings:
        if h.what == "ack":
            acked.add((h.id, h.group, h.chain[0]))
        elif h.what == "expired":
            reported[h.id] |= set(h.body.decode().split())
        elif h.what == "done":
            legs = h.body.decode().split()
            for leg, ticket in zip(legs, h.members, strict=True):
                checks += 1
                if (h.id, leg, origins.get(ticket, 0)) not in acked:
                    raise Violation(f"{h.id} is called acknowledged by ticket {ticket} on {leg}, which did not")
            for leg in PERMANENT.get(h.group, ()):
                checks += 1
                if leg not in legs and leg not in reported[h.id]:
                    raise Violation(f"{h.id} is called done, and nobody of {leg} has acknowledged it")
    return checks


def everybody_counted_has_it(history: History) -> int:
    """An occupant that was counted first and stayed has acknowledged what its sender calls done, or it is reported."""
    counted: dict[MessageId, list[tuple[str, int]]] = {}
    reported: dict[MessageId, set[str]] = defaultdict(set)
    gone_at = _departures(history)
    checks = 0
    for h in history.happenings:
        if h.what == "counted":
            counted[h.id] = list(zip(h.body.decode().split(), h.members, strict=True))
        elif h.what == "expired":
            reported[h.id] |= set(h.body.decode().split())
        elif h.what == "done":
            acked = set(zip(h.body.decode().split(), h.members, strict=True))
            for leg, ticket in counted.get(h.id, ()):
                stayed = h.at < gone_at.get(ticket, float("inf")) - TOLD_S
                if stayed and leg in PERMANENT.get(h.group, ()) and leg not in reported[h.id]:
                    checks += 1
                    if (leg, ticket) not in acked:
                        raise Violation(f"{h.id} is called done, and ticket {ticket} of {leg} was not waited for")
    return checks


TOLD_S = 1.0
"""A router counts by its map, and tells of a change of it when that is on disk."""


def _departures(history: History) -> dict[int, float]:
    """When each ticket was known to be given up."""
    there: dict[str, tuple[int, ...]] = {}
    gone_at: dict[int, float] = {}
    for h in history.of("occupied"):
        for ticket in set(there.get(h.group, ())) - set(h.members):
            gone_at.setdefault(ticket, h.at)
        there[h.group] = h.members
    return gone_at


PERMANENT = {"producer.red": ("alpha.in", "beta.in"), "producer.green": ("beta.in",)}
"""Connections of the scenario that nobody deletes."""


def ended(history: History) -> int:
    """A message is done or reported in the end, unless its sender is gone with its queue."""
    lost = {h.id[0] for h in history.of("lost")}
    over = {h.id for h in history.happenings if h.what in ("done", "refused")}
    checks = 0
    for h in history.of("send"):
        if h.id[0] not in lost:
            checks += 1
            if h.id not in over:
                raise Violation(f"{h.id} of {h.group}, sent at {h.at:.6f}, is neither done nor expired in the end")
    return checks


def sent_by_somebody(history: History) -> int:
    """A delivered message was sent, on a port that a connection leads from, with that body."""
    sent = {h.id: (h.group, h.body) for h in history.of("send")}
    checks = 0
    for h in history.of("deliver"):
        checks += 1
        if h.id not in sent or sent[h.id][1] != h.body:
            raise Violation(f"{h.group} was given {h.id}, which nobody sent so")
    return checks


def routed(history: History) -> int:
    """What is accepted, the map led there, at a version that is at least the one that the message carried."""
    shapes: dict[int, dict[str, list[tuple[int, bool]]]] = {}
    bases: dict[int, tuple[int, set[str]]] = {}
    for h in history.happenings:
        if h.what == "map" and h.parent is not None:
            epoch, number = h.parent
            bases[epoch] = (number, set(h.body.decode().split()))
            shapes[epoch] = defaultdict(list)
        elif h.what in ("route+", "route-") and h.parent is not None and h.parent[0] in shapes:
            shapes[h.parent[0]][h.group].append((h.parent[1], h.what == "route+"))
    checks = 0
    for h in history.of("accept"):
        assert h.parent is not None
        checks += 1
        if tuple(h.members) > tuple(h.parent):
            raise Violation(f"{h.group} accepted {h.id} by version {h.parent}; the message knew {h.members}")
        epoch, number = h.parent
        if epoch in bases:
            edge = f"{h.body.decode()}>{h.group}"
            known = [added for at, added in sorted(shapes[epoch][edge]) if at <= number]
            if not (known[-1] if known else edge in bases[epoch][1]):
                raise Violation(f"{h.group} accepted {h.id} at {h.at:.6f}, where version {h.parent} leads nobody")
    return checks


def stale_tickets_refused(history: History) -> int:
    """No occupant accepts a message with a ticket that it was told to be stale."""
    checks = 0
    for h in history.of("accept"):
        checks += 1
        if h.orphan:
            raise Violation(f"{h.group} accepted {h.id} at {h.at:.6f} with a ticket that it was told to be stale")
    return checks


def dependent_routes_deleted(history: History) -> int:
    """When the last occupant of a slot leaves for good, every connection of the slot is deleted before that is told."""
    connections: set[str] = set()
    checks = 0
    for h in history.happenings:
        if h.what == "map":
            connections = set(h.body.decode().split())
        elif h.what == "route+":
            connections.add(h.group)
        elif h.what == "route-":
            connections.discard(h.group)
        elif h.what == "emptied":
            checks += 1 + len(connections)
            left = [edge for edge in connections if f"{h.group}." in edge]
            if left:
                raise Violation(f"slot {h.group!r} was left for good at {h.at:.6f} and {left[0]} is still there")
    return checks


def reached_in_the_end(history: History) -> int:
    """What was sent after the last fault is done soon, though the router moves meanwhile, and nothing of it expired."""
    settled = next((h for h in history.of("settled")), None)
    if settled is None:
        return 0
    done = {h.id: h.at for h in history.of("done")}
    expired = {h.id for h in history.of("expired")}
    checks = 0
    for h in history.of("send"):
        if h.at > settled.at:
            checks += 1
            if h.id in expired or done.get(h.id, h.at + SOON_S + 1) - h.at > SOON_S:
                raise Violation(
                    f"{h.id} of {h.group}, sent at {h.at:.6f} after all faults, was not done in {SOON_S:g} s"
                )
    return checks


SOON_S = 3.0


def answered(history: History) -> int:
    """An answer is the one to the question that was asked."""
    checks = 0
    for h in history.of("answered"):
        checks += 1
        if h.body != b"answer to " + h.group.encode():
            raise Violation(f"{h.group} was answered with {h.body!r}")
    return checks
