"""What a member does for its clients in spaces of the kinds *views* and *partitioned* (``spaces/visits.py``)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from ....core.errors import BadInput, PluribusError, Refused, TooLarge
from ....spaces.kept import granted
from ....spaces.values import Item
from ....spaces.visits import (
    SpacePlace,
    VisitAll,
    VisitCount,
    VisitFetch,
    VisitFlush,
    VisitNotify,
    VisitOpen,
    VisitRead,
    VisitRelet,
    VisitRenew,
    VisitSettle,
    VisitTake,
    VisitWrite,
    VisitWritten,
)
from ..style import Asker
from .crew import Crew
from .space import microseconds, seconds

HELD_MAX = 10_000
"""Takes that are remembered for one client."""
TAKEN_BYTES_MAX = 16 << 20
"""Tuples in one take for a client."""


class HasCrews(Protocol):
    async def joined(self, place: SpacePlace) -> Crew: ...


async def visited(host: HasCrews, request: Any, asker: Asker) -> Any:
    """Answer a client."""
    if isinstance(request, VisitSettle):
        return await _settled(request, asker)
    way = await host.joined(request.place)
    match request:
        case VisitOpen():
            return None
        case VisitWrite(_, items, lease_us):
            written = await way.write(items, seconds(lease_us), 0)
            return VisitWritten(list(map(way.named, written.numbers)), microseconds(written.granted_s))
        case VisitTake():
            return await _taken(way, request, asker)
        case VisitRead(_, template, wait_s, if_exists):
            return await way.read(template, wait_s, if_exists, 0, False)
        case VisitAll(_, template):
            return (await way.page(template, -1, 0, 0))[1]
        case VisitCount(_, template):
            return await way.count(template, 0)
        case VisitRelet(_, name, item, lease_us, ends):
            if ends:
                await way.cancel_named(name, item)
                return VisitWritten([name], 0)
            name, granted_s = await way.renew_named(name, seconds(lease_us), item)
            return VisitWritten([name], microseconds(granted_s))
        case VisitFlush():
            return await way.flush()
        case VisitNotify():
            return await _registered(way, request, asker)
        case VisitFetch(_, name, seen, missed, wait_s, probe):
            return await way.fetched(name, seen, missed, probe, None if probe else wait_s)
        case VisitRenew(_, name, lease_us, ends):
            return microseconds(await way.renewed(name, lease_us, ends))
    raise Refused(f"{type(request).__name__} is not answered by this member: it is of another release")


def _key(token: int, asker: Asker) -> tuple[str, int]:
    """The key of what is kept for a client until it has the answer."""
    key = ("space", token)
    if key in asker.held or len(asker.held) >= HELD_MAX:
        raise BadInput(f"{len(asker.held):,} things are kept for this client: settle some")
    return key


async def _registered(way: Crew, asked: VisitNotify, asker: Asker) -> VisitWritten:
    key, lease_us = _key(asked.token, asker), granted(asked.lease_us)
    name = await way.registered(asked.template, lease_us, asked.hand_back)

    async def ended() -> None:
        with suppress(PluribusError):
            await way.renewed(name, 0, True)

    asker.held[key] = ended
    return VisitWritten([name], lease_us)


async def _taken(way: Crew, asked: VisitTake, asker: Asker) -> list[Item]:
    key = _key(asked.token, asker)
    timeout = 0.0 if asked.if_exists else asked.wait_s
    taken = await way.taken(asked.template, asked.most, timeout, asked.write, granted(asked.lease_us))
    if taken and not asked.write:
        if sum(item.size for item, _ in taken) > TAKEN_BYTES_MAX:
            way.put_back(taken)
            raise TooLarge(f"{len(taken):,} tuples are too much for one answer to a client: take fewer at once")

        async def written_again() -> None:
            way.put_back(taken)

        asker.held[key] = written_again
    return [item for item, _ in taken]


async def _settled(asked: VisitSettle, asker: Asker) -> bool:
    kept = asker.held.pop(("space", asked.token), None)
    if kept is not None and not asked.has:
        await kept()
    return kept is not None
