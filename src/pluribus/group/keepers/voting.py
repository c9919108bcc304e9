"""How people change who votes: the state of each keeper, which changes are safe, and the last resort.

**Adding and removing** is one row of the log each, placed by a leader (``Leader.change``), so any two majorities share
a voter and nothing acknowledged is lost. A leader refuses a change after which fewer than most voters would answer:
that row could not be committed any more, nor anything else. A lost keeper is *replaced* by two such rows: the new one
in, when it has caught up, then the old one out.

**Force** is for when most voters are gone for good, so that nobody can lead. One whole keeper becomes the only voter of
a new log, which has the same rows and a number (``cluster``) of its own. The other keepers that are there then *adopt*
that number and follow. A keeper that comes back later with the old number is a stranger: it cannot vote in the new log,
nor bring back rows that were given up. So two halves of a bus never mix their rows.

What force can lose: rows that were acknowledged by voters that are gone, and that no remaining keeper has. The loss is
least if the most recent log goes on. It has every row that any remaining keeper knows to be committed: a committed row
is in the log of every later leader (Ongaro and Ousterhout, 2014, section 5.4.3), so every log that ends in a later
epoch, or later in the same one, has it. A keeper that adopts does not vote before the forced keeper has repaired it:
until then it has the old list of voters, and these might elect another leader.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from ...core.errors import BadInput, Refused
from .rows import Voters
from .words import DAMAGED, LOST, WHOLE

if TYPE_CHECKING:
    from .keeper import Keeper

HEALTHS = {WHOLE: "whole", DAMAGED: "damaged", LOST: "lost"}
PREFIX_CHARS_MIN = 4
"""The fewest digits of a keeper's number that may stand for it."""


class MachineStanding(msgspec.Struct, frozen=True, array_like=True):
    """One machine on a keeper's log."""

    name: str
    kind: str
    version: int
    commands: int
    """Applied in this run."""
    turn_bytes: int
    """Written for it by this keeper as the leader."""


class Standing(msgspec.Struct, frozen=True, array_like=True):
    """The state of one keeper, as it reports itself. Of a voter that does not answer only that is known."""

    keeper: str
    """Its number, in hexadecimal."""
    member: str = ""
    """The name of the member whose keeper it is."""
    here: bool = False
    """Whether it answered."""
    votes: bool = False
    role: str = ""
    health: str = ""
    """``whole``; ``damaged``: rows are being put back; ``lost``: it gets everything again; ``broken``: its store takes
    nothing any more."""
    why: str = ""
    """Why it cannot vote, or cannot serve and lead, if that is so."""
    leader: str = ""
    """The leader that it follows now; empty if it hears none."""
    epoch: int = 0
    last_epoch: int = 0
    """Of the last row of its log."""
    start: int = 0
    end: int = 0
    """The end of its log; rows from ``start`` up to here are kept."""
    committed: int = 0
    applied: int = 0
    """Commands that it has done."""
    damaged: int = 0
    """Rows that are damaged, as far as it knows."""
    cluster: int = 0
    voters: list[str] = []
    version: int = 0
    """Of the list of voters."""
    machines: list[MachineStanding] = []
    live_bytes: int = 0
    """Bytes of the log that its machines still need."""
    dead_bytes: int = 0
    """Bytes of the log that they do not need, and that are not freed yet."""
    snapshot_s: float = -1.0
    """How long ago its last snapshot was kept, in this run; -1 if none was."""


def standing_of(keeper: Keeper, member: str = "") -> Standing:
    ledger, seat = keeper.ledger, keeper.seat
    voters = ledger.voters
    hears = keeper.role is not None and keeper.role.hears_leader
    return Standing(
        keeper=named(keeper.id),
        member=member,
        here=True,
        votes=keeper.id in voters,
        role=keeper.role.name if keeper.role is not None else "",
        health="broken" if ledger.broken else HEALTHS[ledger.meta.health],
        why=ledger.complaint or seat.halted,
        leader=named(seat.leader) if hears and seat.leader else "",
        epoch=ledger.epoch,
        last_epoch=ledger.last_epoch,
        start=ledger.start,
        end=ledger.end,
        committed=seat.commit,
        applied=seat.applied,
        damaged=len(ledger.damaged) + len(ledger.scars),
        cluster=ledger.meta.cluster,
        voters=[named(one) for one in voters.keepers],
        version=voters.version,
    )


def named(keeper: int) -> str:
    return f"{keeper:x}"


def numbered(keeper: str) -> int:
    try:
        return int(keeper, 16)
    except ValueError:
        raise BadInput(f"{keeper!r} is no keeper's number: see `pluribus keepers ls`") from None


def chosen(keeper: str, roll: Sequence[Standing]) -> str:
    """The number of a keeper that somebody named: by its number, the beginning of that, or its member's name."""
    exact = {one.keeper for one in roll if keeper and keeper in (one.keeper, one.member)}
    found = exact or {one.keeper for one in roll if len(keeper) >= PREFIX_CHARS_MIN and one.keeper.startswith(keeper)}
    if len(found) == 1:
        return found.pop()
    told = "several are" if found else "nobody is"
    known = ", ".join(one.keeper + (f" ({one.member})" if one.member else "") for one in roll)
    raise BadInput(f"{told} keeper {keeper!r}: use one of {known or 'those that are there'}")


def refusal(voters: Voters, keeper: int, near: Callable[[int], bool]) -> str:
    """Why a change of this keeper's vote would stop the others; empty if it would not. ``near`` says which answer."""
    after = [one for one in voters.keepers if one != keeper]
    if keeper not in voters:
        after.append(keeper)
    answer = sum(map(near, after))
    wanted = len(after) // 2 + 1
    if answer >= wanted:
        return ""
    return (
        f"of the {len(after)} voters that there would be {answer} answer, and {wanted} must: first remove those that "
        "do not answer, or start them"
    )


def most_recent(roll: Sequence[Standing], wanted: str = "") -> Standing:
    """The keeper whose log is to go on when most voters are gone for good; ``Refused`` if they are not, or if it would
    lose what a damaged one still knows. ``wanted`` is somebody's own choice."""
    here = [one for one in roll if one.here]
    leading = next((one for one in here if one.leader), None)
    if leading is not None:
        raise Refused(f"keeper {leading.leader} leads, so most voters are there: use remove or replace")
    whole = [one for one in here if one.health == "whole" and one.cluster and (not wanted or one.keeper == wanted)]
    if not whole:
        raise Refused(
            "no keeper that is there has a whole log: start one, or read what is left of a store with "
            "`pluribus keepers restore`, and start that"
        )
    if len({one.cluster for one in whole}) > 1:
        raise Refused("keepers of several logs are there: name the one to go on with")
    best = max(whole, key=lambda one: (one.last_epoch, one.end, one.keeper))
    ahead = [one for one in here if one.cluster == best.cluster and one.committed > best.end]
    if ahead and not wanted:
        raise Refused(
            f"keeper {ahead[0].keeper} has committed {ahead[0].committed:,} rows, and is {ahead[0].health}; the most "
            f"recent whole log has {best.end:,}: name the keeper to go on with, if that is to be lost"
        )
    return best
