"""The form of a conversation in a store: a log of rows with messages, in the order in which they came, and the
forgotten identities. Reading the log restores the history; messages that the disk has damaged are asked of others like
any missing ones.
"""

from __future__ import annotations

import msgspec

from ..core.errors import Damaged
from ..core.ids import MessageId
from ..core.intervals import Intervals
from ..core.ports import Append, Change, Put, Restart, Store
from .history import History
from .words import Entry, GroupInfo, Known, decode_entries, encode, identities_of, minus, packed, unpacked

ROWS_AT_ONCE = 256
ENTRIES_PER_ROW = 512
SPARE_ENTRIES = 4_096
"""A log is rewritten when it holds twice the messages of the history, and this many more."""
TABLE = "conversations"

_decode_known = msgspec.msgpack.Decoder(Known).decode
_decode_table = msgspec.msgpack.Decoder(list[GroupInfo]).decode


class KeptConversation:
    """One conversation in one store."""

    def __init__(self, store: Store, gid: str) -> None:
        self._store = store
        self._log = f"conversation/{gid}"
        self._written = 0
        self._under_way: dict[MessageId, Entry] = {}
        """Messages that are being written, and not in the history before that is done."""
        self.damaged = 0
        """Rows that could not be read."""

    def load(self, history: History) -> None:
        """Put back the kept messages. They are not delivered again: the application finds them in the history, also
        those whose parents are missing, which waited for them in the earlier life or were orphans there."""
        history.forget_known(self._lost())
        bounds = self._store.bounds(self._log)
        for start in range(bounds.start, bounds.end, ROWS_AT_ONCE):
            for row in self._store.read(self._log, start, min(start + ROWS_AT_ONCE, bounds.end)):
                try:
                    entries = decode_entries(row) if row is not None else None
                except (msgspec.MsgspecError, UnicodeDecodeError):
                    entries = None
                if entries is None:
                    self.damaged += 1
                    continue
                self._written += len(entries)
                for entry in entries:
                    history.add(entry, 0.0)
        history.end_waiting()

    def _lost(self) -> dict[int, Intervals]:
        try:
            kept = self._store.get(f"{self._log}/lost")
            return {} if kept is None else unpacked(_decode_known(kept))
        except (Damaged, msgspec.MsgspecError, UnicodeDecodeError):
            self.damaged += 1
            return {}

    def changes(self, entries: list[Entry], history: History) -> list[Change]:
        """The changes of the store for these new messages: one more row, or the whole log anew when most of it was
        forgotten."""
        self._written += len(entries)
        known = self._under_way | {entry.id: entry for entry in entries}
        self._under_way = {identity: entry for identity, entry in known.items() if identity not in history}
        if self._written <= 2 * len(history) + SPARE_ENTRIES:
            return [Append(self._log, [encode(entries)])]
        live = list(history.all_entries())
        # Rows of these are on their way to the disk, and would be removed with all others.
        live += self._under_way.values()
        forgotten = minus(history.lost, identities_of(live))  # a member without bodies has lost those of live ones, too
        self._written = len(live)
        rows = [encode(live[at : at + ENTRIES_PER_ROW]) for at in range(0, len(live), ENTRIES_PER_ROW)]
        end = self._store.end(self._log)
        return [
            Put(f"{self._log}/lost", encode(packed(forgotten))),
            Restart(self._log, end),
            Append(self._log, rows),
        ]

    def gave_up(self, entry: Entry) -> None:
        """This message of ``changes`` will not come into the history."""
        self._under_way.pop(entry.id, None)


def load_table(store: Store) -> list[GroupInfo]:
    """The conversations that a person knew in an earlier life."""
    try:
        kept = store.get(TABLE)
        return [] if kept is None else _decode_table(kept)
    except (Damaged, msgspec.MsgspecError, UnicodeDecodeError):
        return []
