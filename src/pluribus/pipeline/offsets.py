"""The place of a stream: an offset for each topic of each log. Spark keeps it in a checkpoint.

An offset means something in one log only. If keepers begin another one (a new store, or a bus of the same name
elsewhere), offset 1,000 of it is another event; a query that went on there would skip 1,000 events in silence. So a
place names its log, by the number that its first keepers gave it: ``{"5f3c…": {"stocks/ibm": 1000}}``. A query over
several logs has one entry for each. In places of before logs had names, topics stand at the top; they are taken for
those of the log that is there.

**Many topics.** Spark writes a place for every micro-batch, and ten thousand topics with their names are hundreds of
kilobytes. A place that is longer than ``INLINE_BYTES`` is kept by the keepers instead: as one event, packed, in a
durable topic of the query's own below ``pluribus/places/``, and Spark has only the offset of that event, with a digest,
and with the sum of its offsets, from which lag is computed::

    {"5f3c…": {"@kept": "9a31…:17:77aa01", "@topics": 10000, "@events": 123456}}

Spark needs the last two places of a query; the topic is kept to ``KEPT_BYTES``, by size alone, so that a query may rest
for as long as it likes. The event is on disk at a majority before Spark hears of the place.
"""

from __future__ import annotations

import json
import logging
import uuid
import zlib
from collections.abc import Callable, Mapping
from time import time
from typing import Any

import msgspec

from ..core.errors import BadInput, LogChanged
from ..pubsub.durable.batch import pack
from ..pubsub.durable.commands import REFUSED, Retain
from ..pubsub.durable.requests import Known
from ..runtime.clients.log_client import LogClient
from ..wire.bodies import BYTES
from .options import HIDDEN

log = logging.getLogger(__name__)

UNKNOWN = "0"
"""A log of which nothing was seen yet: no topic is there."""
INLINE_BYTES = 4_096
"""A longer place is kept by the keepers."""
INLINE_TOPICS = 512
"""More topics than this are never short."""
KEPT_BYTES = 8 << 20
"""Of the places of one query, about."""
KEPT, TOPICS, EVENTS = "@kept", "@topics", "@events"

Offsets = dict[str, dict[str, int]]
"""By log, in hexadecimal digits, and topic."""
Resolve = Callable[[str, str], dict[str, int]]
"""``resolve(log, kept)``: the offsets that keepers hold for a place."""


def name_of(known: Known) -> str:
    return f"{known.log:x}"


def place(offsets: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """Sorted, because Spark takes places for different if their names stand in another order."""
    return {name: dict(sorted(offsets[name].items())) for name in sorted(offsets)} or {UNKNOWN: {}}


def parted(place: Mapping[str, Any], resolve: Resolve | None = None) -> Offsets:
    """The logs of a place and their offsets; below ``UNKNOWN`` those of which no log is named."""
    found: Offsets = {}
    for name, offsets in place.items():
        if not isinstance(offsets, Mapping):
            found.setdefault(UNKNOWN, {})[name] = int(offsets)
        elif isinstance(offsets.get(KEPT), str):
            if resolve is None:
                raise BadInput(f"the place {offsets[KEPT]!r} is kept by the keepers of log {name}: ask them")
            found[name] = resolve(name, offsets[KEPT])
        else:
            found[name] = dict(offsets)
    return found


def events_of(place: Mapping[str, Any] | None) -> int | None:
    """The sum of all offsets of a place, wherever it is kept: the difference of two of them is a number of events."""
    if not place:
        return None
    total = 0
    for offsets in place.values():
        if not isinstance(offsets, Mapping):
            total += int(offsets)
        elif EVENTS in offsets:
            total += int(offsets[EVENTS])
        else:
            total += sum(int(offset) for offset in offsets.values())
    return total


def resumed(offsets: Offsets, ends: Offsets, wants: Callable[[str], bool], skip: bool, whole: bool = True) -> Offsets:
    """The offsets from which to go on in the logs that are there, whose topics end at ``ends``. ``whole``: each of the
    logs has told its topics, so that one that is missing is another one now, and not one of which nothing is seen.

    ``LogChanged`` if a log is another one, or ends before what was read of it; with ``skip`` that is logged, and
    reading goes on with what is there.
    """
    found: Offsets = {}
    for name, topics in offsets.items():
        here = name
        if name == UNKNOWN and len(ends) == 1:
            here = next(iter(ends))
        elif name != UNKNOWN and name not in ends and whole and ends:
            now = ", ".join(sorted(set(ends) - set(offsets)) or sorted(ends))
            told = f"the keepers have another log ({now}) than the one that was read so far ({name})"
            if not skip:
                raise LogChanged(
                    f"{told}: name the keepers of that one, begin with a new checkpoint, or read the new log from its "
                    "first event on with option gaps='skip'"
                )
            log.warning("%s: it is read from its first event on", told)
            continue
        found[here] = {**found.get(here, {}), **_checked(topics, ends.get(here, {}), wants, skip)}
    return found


def _checked(
    topics: Mapping[str, int], ends: Mapping[str, int], wants: Callable[[str], bool], skip: bool
) -> dict[str, int]:
    found = dict(topics)
    for topic, offset in topics.items():
        end = ends.get(topic)
        if end is None:
            if not wants(topic):
                continue  # the query wants fewer topics than before
            end = 0
        if offset > end:
            told = f"the topic {topic!r} ends at {end}, and was read up to {offset} before"
            if not skip:
                raise LogChanged(
                    f"{told}: its keepers lost events or hold an older copy; restore them, begin with a new "
                    "checkpoint, or go on at the end with option gaps='skip'"
                )
            log.warning("%s: reading goes on at %s", told, end)
            found[topic] = end
    return found


class Places:
    """Keeps long places with the keepers, and finds them again. One for each reader of a stream, beside the driver."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        """By log: the name of the topic of this query's places, without its prefix."""
        self._last: dict[str, tuple[str, dict[str, int]]] = {}
        """By log: the place that was kept or found last."""
        self._published: dict[str, tuple[int, int]] = {}
        """By log: the session under which places are published, and the last number in it."""

    def resolve(self, keepers: LogClient, name: str, kept: str) -> dict[str, int]:
        last = self._last.get(name)
        if last is not None and last[0] == kept:
            return dict(last[1])
        topic, _, rest = kept.partition(":")
        at, _, digest = rest.partition(":")
        if not (topic.isalnum() and at.isdigit()):
            raise BadInput(f"{kept!r} is no place that keepers hold: begin with a new checkpoint")
        try:
            (batch,) = keepers.read(HIDDEN + topic, int(at), int(at) + 1, log=int(name, 16), whole=True)
        except (BadInput, LogChanged) as error:
            raise LogChanged(
                f"the keepers do not hold the place {kept!r} of this query any more ({error}): restore them, or begin "
                "with a new checkpoint"
            ) from None
        (body,) = batch.decoded()
        offsets = _unpacked(body, digest)
        self._names[name], self._last[name] = topic, (kept, offsets)
        return dict(offsets)

    def keep(self, keepers: LogClient, name: str, offsets: Mapping[str, int]) -> dict[str, Any]:
        """The entry of a place for these offsets of one log: the offsets themselves if they are few."""
        if len(offsets) <= INLINE_TOPICS and len(json.dumps(offsets)) <= INLINE_BYTES:
            return dict(offsets)
        told = {TOPICS: len(offsets), EVENTS: sum(offsets.values())}
        last = self._last.get(name)
        if last is None or last[1] != offsets:
            topic = self._names.get(name)
            if topic is None:
                topic = self._names[name] = uuid.uuid4().hex[:16]
                keepers.do(Retain(HIDDEN + topic, 0, KEPT_BYTES))
            body, digest = _packed(offsets)
            session, number = self._published.pop(name, (uuid.uuid4().int >> 65 or 1, 0))
            packed = pack(HIDDEN + topic, session, number + 1, 0, BYTES, int(time() * 1e6), [body])
            (outcome,) = keepers.put([packed])  # if this fails, the next one is published under another session
            if outcome.status == REFUSED:
                raise BadInput(f"the keepers refused to hold a place of {len(offsets):,} topics: {outcome.reason}")
            self._published[name] = (session, number + 1)
            last = self._last[name] = (f"{topic}:{outcome.number}:{digest}", dict(offsets))
        return {KEPT: last[0], **told}


def _packed(offsets: Mapping[str, int]) -> tuple[bytes, str]:
    """Sorted names and offsets; names of neighbours begin alike, so they shrink to little."""
    names = sorted(offsets)
    plain = msgspec.msgpack.encode(["\n".join(names), [offsets[name] for name in names]])
    return zlib.compress(plain, 1), f"{zlib.crc32(plain):08x}"


def _unpacked(body: bytes, digest: str) -> dict[str, int]:
    try:
        plain = zlib.decompress(body)
        names, offsets = msgspec.msgpack.decode(plain, type=tuple[str, list[int]])
    except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadInput(f"a place of this query cannot be read ({error}): begin with a new checkpoint") from None
    if f"{zlib.crc32(plain):08x}" != digest:
        raise LogChanged("the keepers hold another place than the one that was kept: begin with a new checkpoint")
    return dict(zip(names.split("\n"), offsets, strict=True))
