"""Checkers for machines in the memory of a group. A *life* is what one state lives through: it ends when all who have
it are gone, or another primary's takes its place; what is promised is promised within a life.

They read ``put`` and ``moved`` (job and life), ``told`` (job and life; the body names consumer, epoch and number of the
assignment), ``settled`` (job and life), ``time`` of members (time and life), and at the end ``final`` of each member
(its life; the state in parts, the jobs of both machines, owners that are not members) and ``body`` of each job.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from ...core.errors import Violation
from ..machinery.history import History

Final = tuple[list[tuple[str, bytes]], tuple[list[int], list[int]], list[int]]
_final = msgspec.msgpack.Decoder(Final).decode


def kept(history: History) -> int:
    """A job that was acknowledged in the life that goes on is on one side; what was moved is on the right."""
    checks = 0
    for h in history.of("final"):
        life = h.id[0]
        _, (left, right), _ = _final(h.body)
        put = {one.id[0] for one in history.of("put") if one.id[1] == life}
        moved = {one.id[0] for one in history.of("moved") if one.id[1] == life}
        twice = [job for job, times in Counter([*left, *right]).items() if times > 1]
        if twice:
            raise Violation(f"jobs {twice[:5]} are on both sides, or twice on one, at member {h.member}")
        lost = (put | moved) - {*left, *right}
        if lost:
            raise Violation(f"jobs {sorted(lost)[:5]} were acknowledged and are nowhere at member {h.member}")
        wrong = moved - set(right)
        if wrong:
            raise Violation(f"jobs {sorted(wrong)[:5]} were moved and are not on the right at member {h.member}")
        checks += len(put) + len(moved)
    return checks


def told_once(history: History) -> int:
    """An assignment is told to its consumer once."""
    seen: set[bytes] = set()
    checks = 0
    for h in history.of("told"):
        checks += 1
        if h.body in seen:
            raise Violation(f"job {h.id[0]} was told twice as new to {h.member} at {h.at:.3f}")
        seen.add(h.body)
    return checks


def settled_once(history: History) -> int:
    """A job is settled once in a life, however often it was handed out."""
    settled: dict[tuple[int, int], int] = {}
    checks = 0
    for h in history.of("settled"):
        if not h.members:  # else it is the end of the run
            checks += 1
            if h.id in settled:
                raise Violation(f"job {h.id[0]} was settled by {settled[h.id]} and by {h.member} at {h.at:.3f}")
            settled[h.id] = h.member
    return checks


def same_states(history: History) -> int:
    """All members end in one life with the same parts, and nobody but members owns anything."""
    ends = [(h.member, h.id[0], _final(h.body)) for h in history.of("final")]
    checks = 0
    for member, life, (state, _, strangers) in ends:
        _, first_life, (first, _, _) = ends[0]
        if life != first_life:
            raise Violation(f"member {member} ends in another life than others")
        if strangers:
            raise Violation(f"{strangers[:5]} are no members any more, and still own consumers at {member}")
        for mine, others in zip(state, first, strict=False):
            checks += 1
            if mine != others:
                raise Violation(f"member {member} has another part {mine[0]} than others have ({others[0]})")
        if len(state) != len(first):
            raise Violation(f"member {member} has {len(state)} parts and others {len(first)}")
    return checks


def with_bodies(history: History) -> int:
    """Every job that is not done has its body, at every member."""
    checks = 0
    for h in history.of("body"):
        checks += 1
        if b"body of job %d " % h.id[0] not in h.body:
            raise Violation(f"job {h.id[0]} has the body {h.body[:20]!r} at member {h.member}")
    return checks


def time_never_falls(history: History) -> int:
    latest: dict[tuple[int, int], int] = {}
    checks = 0
    for h in history.of("time"):
        checks += 1
        time_us, life = h.id
        if time_us < latest.get((h.member, life), 0):
            raise Violation(f"the time fell to {time_us} at member {h.member}, {h.at:.3f}")
        latest[(h.member, life)] = time_us
    return checks
