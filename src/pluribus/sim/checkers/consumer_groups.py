"""Checkers for consumer groups: every event that was acknowledged is handled, nothing that was settled comes again, at
most one member holds an event, and events of one key are handed out in their order.

Clients write down ``sent`` and ``acked`` (of a publisher; the body is ``KEY NUMBER``), ``handled`` (of a member; the
number is the offset and whether it came again) and ``settled_one`` (the same, when its commit was confirmed). Keepers
write down ``given`` and ``back`` as they apply commands (offset and the keeper's life; the body names the member), and
``final``.
"""

from __future__ import annotations

from ...core.errors import Violation
from ..machinery.history import History
from .durable_topics import finals_of

NO_KEY = b"-"


def all_handled(history: History) -> int:
    """What was acknowledged to its publisher was handled by a member, and nothing else was."""
    handled = {h.body for h in history.of("handled")}
    sent = {h.body for h in history.of("sent")}
    checks = 0
    for h in history.of("acked"):
        checks += 1
        if h.body not in handled:
            raise Violation(f"{h.body!r} was acknowledged, and no member of the group got it")
    for h in history.of("handled"):
        checks += 1
        if h.body not in sent:
            raise Violation(f"a member got {h.body!r}, which nobody published")
    return checks


def settled_once(history: History) -> int:
    """An event whose settlement was confirmed is not handed out to anybody after that."""
    settled: dict[int, float] = {}
    checks = 0
    for h in history.happenings:
        if h.what == "settled_one":
            settled.setdefault(h.id[0], h.at)
        elif h.what == "handled":
            checks += 1
            if h.id[0] in settled:
                raise Violation(f"offset {h.id[0]} was settled at {settled[h.id[0]]:.6f} and came again at {h.at:.6f}")
    return checks


def one_holder(history: History) -> int:
    """A keeper gives an event to nobody while another member holds it."""
    holders: dict[tuple[int, int, int], bytes] = {}
    checks = 0
    for h in history.happenings:
        if h.what in ("given", "back"):
            offset, life = h.id
            at = (h.member, life, offset)
            checks += 1
            if h.what == "back":
                holders.pop(at, None)
            elif at in holders and holders[at] != h.body:
                raise Violation(f"offset {offset} was given to {h.body!r} while {holders[at]!r} held it")
            else:
                holders[at] = h.body
    return checks


def keys_in_order(history: History) -> int:
    """While an event of a key is not settled, no later one of that key is handled; events of a key are settled in the
    order in which they stand in the topic."""
    _, events = finals_of(history).topics.get("work", (0, []))
    key_of = {offset: body.split()[0] for offset, _, _, body in events}
    before: dict[int, int] = {}
    last: dict[bytes, int] = {}
    for offset in sorted(key_of):
        key = key_of[offset]
        if key != NO_KEY:
            if key in last:
                before[offset] = last[key]
            last[key] = offset
    seen: set[int] = set()
    checks = 0
    for h in history.of("handled"):
        checks += 1
        offset = h.id[0]
        if offset in before and before[offset] not in seen:
            raise Violation(f"offset {offset} was handled before {before[offset]}, which has the same key")
        seen.add(offset)
    return checks
