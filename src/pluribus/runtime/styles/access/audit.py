"""The audit log: a durable topic that has every change of the access list and every refusal.

A change is written in the same command that makes it. Refusals are written by the door that refused, a moment later;
equal refusals that come together are one record with their number, so that a client that is refused a million times
does not fill the disks of the keepers. Nothing secret is ever in a record.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from ....access.words import AUDIT
from ....core.errors import PluribusError

if TYPE_CHECKING:
    from ...bus import Bus
    from .guard import Visitor

EVERY_S = 0.25
KINDS_MAX = 1_024
"""Different refusals that wait to be written; further ones are only counted."""
PUBLISH_S = 10.0

log = logging.getLogger("pluribus")


class Audit:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._waiting: dict[tuple[str, str, str, str], int] = {}
        self._lost = 0
        self._task: asyncio.Task[None] | None = None

    def refused(self, visitor: Visitor, right: str, question: str) -> None:
        self._add((visitor.user, visitor.address, f"refused {right}", question))

    def failed(self, visitor: Visitor, user: str, how: str) -> None:
        """A client failed to prove that it is this user."""
        self._add((user[:64], visitor.address, "login refused", how))

    def _add(self, key: tuple[str, str, str, str]) -> None:
        if key not in self._waiting and len(self._waiting) >= KINDS_MAX:
            self._lost += 1
            return
        if key not in self._waiting:
            log.warning("access: %s, user %r at %s (%s)", key[2], key[0], key[1], key[3])
        self._waiting[key] = self._waiting.get(key, 0) + 1
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._write())

    async def _write(self) -> None:
        while self._waiting or self._lost:
            await asyncio.sleep(EVERY_S)
            await self._flush()

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, {}
        lost, self._lost = self._lost, 0
        at = self._bus._wall()
        records: list[dict[str, Any]] = [
            {"what": what, "user": user, "address": address, "question": question, "count": count, "at": at}
            for (user, address, what, question), count in waiting.items()
        ]
        if lost:
            records.append({"what": "refusals that were too many to write down", "count": lost, "at": at})
        try:
            for record in records:
                await self._bus.publish(AUDIT, record, durable=True, timeout=PUBLISH_S)
        except PluribusError as error:
            log.warning("%d records of the audit log could not be written: %s", len(records), error)

    async def close(self) -> None:
        if self._waiting or self._lost:
            await self._flush()

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()
