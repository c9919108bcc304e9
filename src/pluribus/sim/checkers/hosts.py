"""Checkers for machines on one log: transactions are whole, things have one owner, states are alike, space comes back.

They read ``put`` (a job was acknowledged), ``moved`` and ``stayed`` (a transaction was done or refused; the number is
the job and the transaction), ``handled``, ``settled`` and ``ended`` of consumers (job and epoch), ``added`` (a call was
answered; the body names the counter), ``time`` of keepers (of the row that is applied, and their life), and at the end
``final`` (the state in parts, the jobs of both machines, the counters), ``body`` of each job, ``stored`` and
``differed`` of each keeper.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from ...core.errors import Violation
from ..machinery.history import History

Final = tuple[list[tuple[str, bytes]], tuple[list[int], list[int]], dict[str, int]]
_final = msgspec.msgpack.Decoder(Final).decode
SLACK_BYTES = 20_000
"""Heads of rows, the last extent, and what is dead and not worth writing forward, in this world."""


def all_or_nothing(history: History) -> int:
    """A job is on one side only, and none that was acknowledged is lost; what moved is on the right."""
    checks = 0
    put = {h.id[0] for h in history.of("put")}
    moved = {h.id[0] for h in history.of("moved")}
    for h in history.of("final"):
        _, (left, right), _ = _final(h.body)
        twice = [job for job, times in Counter([*left, *right]).items() if times > 1]
        if twice:
            raise Violation(f"jobs {twice[:5]} are on both sides, or twice on one, at keeper {h.member}")
        lost = (put | moved) - {*left, *right}
        if lost:
            raise Violation(f"jobs {sorted(lost)[:5]} were acknowledged and are nowhere at keeper {h.member}")
        wrong = moved - set(right)
        if wrong:
            raise Violation(f"jobs {sorted(wrong)[:5]} were moved and are not on the right at keeper {h.member}")
        checks += len(put) + len(moved)
    return checks


def assigned_once(history: History) -> int:
    """A job is settled once, however often it was handed out."""
    settled: dict[int, int] = {}
    checks = 0
    for h in history.of("settled"):
        if not h.members:  # else it is the end of the run
            checks += 1
            if h.id[0] in settled:
                raise Violation(f"job {h.id[0]} was settled by {settled[h.id[0]]} and by {h.member} at {h.at:.3f}")
            settled[h.id[0]] = h.member
    return checks + sum(1 for _ in history.of("handled"))


def counted(history: History) -> int:
    """Calls were done once: a counter is what was added and acknowledged, neither more nor less."""
    wanted = Counter(h.body.decode() for h in history.of("added"))
    checks = 0
    for h in history.of("final"):
        checks += sum(wanted.values())
        values = _final(h.body)[2]
        if values != dict(wanted):
            raise Violation(f"counters are {values} at keeper {h.member}, and {dict(wanted)} was acknowledged")
    return checks


def same_states(history: History) -> int:
    """All keepers end with the same parts, and none was ever found to differ from the others."""
    states = {h.member: _final(h.body)[0] for h in history.of("final")}
    first: list[tuple[str, bytes]] = next(iter(states.values()), [])
    checks = 0
    for member, state in states.items():
        for mine, others in zip(state, first, strict=False):
            checks += 1
            if mine != others:
                raise Violation(f"keeper {member} has another part {mine[0]} than others have ({others[0]})")
        if len(state) != len(first):
            raise Violation(f"keeper {member} has {len(state)} parts and others {len(first)}")
    for h in history.of("differed"):
        checks += 1
        if h.id[0]:
            raise Violation(f"keeper {h.member} had another state than most, {h.id[0]} times")
    return checks


def with_bodies(history: History) -> int:
    """The body of every job that is not done is in the row that its machine names, at every keeper."""
    checks = 0
    for h in history.of("body"):
        checks += 1
        if b"body of job %d " % h.id[0] not in h.body:
            raise Violation(f"job {h.id[0]} has the body {h.body[:20]!r} in row {h.id[1]} of keeper {h.member}")
    return checks


def time_never_falls(history: History) -> int:
    latest: dict[tuple[int, int], int] = {}
    checks = 0
    for h in history.of("time"):
        checks += 1
        time_us, life = h.id
        if time_us < latest.get((h.member, life), 0):
            raise Violation(f"the time fell to {time_us} at keeper {h.member}, {h.at:.3f}")
        latest[(h.member, life)] = time_us
    return checks


def bounded(history: History) -> int:
    """The rows of which a keeper had time to free what is dead hold at most twice what is live, and a little."""
    checks = 0
    for h in history.of("stored"):
        checks += 1
        stored, live = h.id
        if stored > 2 * live + SLACK_BYTES:
            raise Violation(f"keeper {h.member} stores {stored} bytes that it had time to free, and {live} are live")
    return checks
