"""How far a stream has read: an offset for each topic, of which log. It is what Spark keeps in a checkpoint.

An offset means something in one log only. If keepers begin another one (a new store, or a bus of the same name
elsewhere), offset 1,000 of it is another event; who went on there would pass over 1,000 events in silence. So a place
names its log, by the number that its first keepers gave it: ``{"5f3c…": {"stocks/ibm": 1000}}``. In places of before
logs had names, topics stand at the top; they are taken for those of the log that is there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import LogChanged
from ..pubsub.durable.requests import Known
from ..pubsub.topics import matches

log = logging.getLogger(__name__)

UNKNOWN = "0"
"""A log of which nothing was seen yet: no topic is there."""


def place(known: Sequence[Known], offsets: Mapping[str, int]) -> dict[str, Any]:
    """Sorted, because Spark takes places for different if their names stand in another order."""
    return {log_of(known): dict(sorted(offsets.items()))}


def log_of(known: Sequence[Known]) -> str:
    return f"{known[0].log:x}" if known else UNKNOWN


def parted(place: Mapping[str, Any]) -> tuple[str, dict[str, int]]:
    """The log and its offsets."""
    for name, offsets in place.items():
        if isinstance(offsets, dict):
            return name, dict(offsets)
    return UNKNOWN, dict(place)


def resumed(place: Mapping[str, Any], known: Sequence[Known], pattern: str, skip: bool) -> dict[str, int]:
    """The offsets from which to go on in the log that is there.

    ``LogChanged`` if it is another one, or ends before what was read of it; with ``skip`` that is logged, and reading
    goes on with what is there.
    """
    before, offsets = parted(place)
    now = log_of(known)
    if UNKNOWN not in (before, now) and before != now:
        told = f"the keepers have another log ({now}) than the one that was read so far ({before})"
        if not skip:
            raise LogChanged(
                f"{told}: name the keepers of that one, begin with a new checkpoint, or read the new log from its "
                "first event on with option gaps='skip'"
            )
        log.warning("%s: it is read from its first event on", told)
        return {}
    ends = {one.topic: one.end for one in known}
    for topic, offset in offsets.items():
        if topic not in ends and not matches(pattern, topic):
            continue  # the query wants fewer topics than before
        end = ends.get(topic, 0)
        if offset > end:
            told = f"the topic {topic!r} ends at {end}, and was read up to {offset} before"
            if not skip:
                raise LogChanged(
                    f"{told}: its keepers lost events or hold an older copy; restore them, begin with a new "
                    "checkpoint, or go on at the end with option gaps='skip'"
                )
            log.warning("%s: reading goes on at %s", told, end)
            offsets[topic] = end
    return offsets
