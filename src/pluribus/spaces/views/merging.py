"""Merging: when an epoch begins, the eldest member makes one state from those of all members.

The replicas that count are those whose tuples are of the latest epoch; others were away, and are brought up to date. If
none has tuples of the last epoch that was opened, the space is lost: it begins empty, and every member is told. A tuple
stays if one of the replicas has it, unless a replica is without it that has executed its writer's operations that far.
Removals that a living worker had decided are executed here, those of the latest epoch first; if the tuple is gone by
then, another worker has taken it, and the worker is told that its take is void.

A registration stays by the same rule as a tuple, and so does each event that is kept for its listener.

Names and tuples travel in words of about a mebibyte. To each member one word is under way at a time; it is repeated
when no answer comes for a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from ..roster import Epoch
from ..values import Item
from .words import Install, KeptListener, More, Name, Report, Tell, Want, Word

NAMES_MAX = 50_000
"""Names in one word."""
WANTED_MAX = 16_384
"""Tuples that are asked for in one word, and that one word has at most."""
WORD_BYTES_MAX = 1 << 20
"""Tuples in one word, about; a longer one is alone in it."""
PATIENCE_S, PATIENCE_S_MAX = 0.3, 5.0
"""Seconds after which a word is repeated, at first and at most: they double while no answer comes."""

Travelling = tuple[Name, Item, int]
"""A tuple with its name, and the rest of its lease."""


class SentWord(msgspec.Struct):
    """What was last sent to a member."""

    again_at: float = 0.0
    asked: bool = False
    patience_s: float = PATIENCE_S


class InstallPlan(msgspec.Struct):
    """How the tuples of one member become those of the epoch."""

    drop: list[Name]
    add: list[Name]
    has: int = 0
    """So many of ``add`` it has."""


class Merge:
    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._reports: dict[int, Report] = {}
        self._told: dict[int, list[Name]] = {}
        """By member: the names of its tuples."""
        self._names: set[Name] | None = None
        """The tuples of the epoch, when all members have reported."""
        self._marks: dict[int, int] = {}
        self._ahead: dict[int, set[int]] = {}
        self._void: dict[int, list[Name]] = {}
        self._lost = False
        self._items: dict[Name, tuple[Name, Item, int]] = {}
        self._wanted: dict[int, dict[Name, None]] = {}
        """By member: the tuples that the eldest wants of it."""
        self._plans: dict[int, InstallPlan] = {}
        self._sent: dict[int, SentWord] = {}
        self._sources: set[int] = set()
        """Those whose tuples count."""
        self._listeners: list[KeptListener] = []
        self._written: list[tuple[Name, Item]] = []
        """Tuples that are written in the place of removed ones, and that listeners have not been told of."""
        self.installed: set[int] = set()

    @property
    def complete(self) -> bool:
        """True if every member has reported."""
        return self._names is not None

    def reported(self, member: int, report: Report) -> None:
        if member not in self._reports:
            self._reports[member] = report
            self._told[member] = list(report.names)
            self._merge_if_complete()

    def told(self, member: int, at: int, names: list[Name]) -> None:
        """A member has told more names of its tuples."""
        known = self._told.get(member)
        if known is not None and len(known) == at:
            known += names
            self._answered(member)
            self._merge_if_complete()

    def _merge_if_complete(self) -> None:
        reported = self._names is None and set(self._reports) >= set(self._epoch.members)
        if reported and all(len(self._told[member]) >= one.count for member, one in self._reports.items()):
            self._merge()

    def _merge(self) -> None:
        latest = max(report.state for report in self._reports.values())
        valid = latest >= max(self._epoch.opened, 0)
        members = [member for member, report in self._reports.items() if report.state == latest and valid]
        self._sources = set(members)
        sources = [self._reports[member] for member in members]
        self._lost = not sources and self._epoch.opened > 0
        has = {member: set(names) for member, names in self._told.items()}
        held = [has[member] for member in members]
        for report in sources:
            for worker, number in report.marks.items():
                self._marks[worker] = max(number, self._marks.get(worker, 0))
            for worker, numbers in report.ahead.items():
                self._ahead.setdefault(worker, set()).update(numbers)
        for report in self._reports.values():
            known = report.sent if self._lost else report.first - 1
            self._marks[report.worker] = max(known, self._marks.get(report.worker, 0))
        names = set().union(*held) if held else set()
        self._names = {name for name in names if not self._removed(name, sources, held)}
        self._remove()
        self._listeners = list(self._merged_listeners(sources))
        for member in self._epoch.members:
            self._plans[member] = self._planned(member, has[member])
        lacking = {name for plan in self._plans.values() for name in plan.add} - set(self._items)
        for member in sorted(has):
            found = lacking & has[member]
            if found:
                self._wanted[member] = dict.fromkeys(sorted(found))
                lacking -= found
        assert not lacking, "nobody has them"

    def _planned(self, member: int, has: set[Name]) -> InstallPlan:
        assert self._names is not None
        if not self._keeps(member):
            return InstallPlan([], [])
        return InstallPlan(sorted(has - self._names), sorted(self._names - has))

    def _keeps(self, member: int) -> bool:
        """True if a member has tuples in this epoch; if the last ones with replicas leave, they have them until then:
        another may yet come."""
        return member in self._epoch.holders or member in self._leaving

    @property
    def _leaving(self) -> list[int]:
        """Those that keep the tuples until they are gone, because nobody else does. Who gave up its own to leave before
        is not among them: it would be taken to have removed what it lacks."""
        return [] if self._epoch.holders else sorted(self._sources)

    def _removed(self, name: Name, sources: list[Report], held: list[set[Name]]) -> bool:
        return any(name not in names and _executed(report, name) for report, names in zip(sources, held, strict=True))

    def _merged_listeners(self, sources: list[Report]) -> Iterator[KeptListener]:
        found = [{one.name: one for one in report.listeners} for report in sources]
        names = set().union(*found) if found else set()
        for name in sorted(names):
            if not self._removed(name, sources, [set(one) for one in found]):
                having = [(report, one[name]) for report, one in zip(sources, found, strict=True) if name in one]
                yield self._merged_listener(having)

    def _merged_listener(self, having: list[tuple[Report, KeptListener]]) -> KeptListener:
        """An event stays if no replica has dealt with it. If a replica has dropped events, nobody knows which of those
        that it lacks were dropped and which acknowledged: all of them count as missed."""
        first = having[0][1]
        events: dict[Name, Item] = {}
        early: set[Name] = set()
        over: set[Name] = set()
        missed: set[Name] = set()
        for _, one in having:
            events.update((name, item) for name, item in one.events if name not in events)
            early.update(one.early)
        for report, one in having:
            has = {name for name, _ in one.events}
            lacking = {name for name in events if name not in has and _executed(report, name)}
            over |= lacking
            missed |= lacking if one.dropped else set()
        kept = [(name, item) for name, item in events.items() if name not in over | early]
        kept += [(name, item) for name, item in self._written if first.template.matches(item)]
        leases = [one.left_us for _, one in having]
        return KeptListener(
            *(first.name, first.template, first.hand_back, 0 if 0 in leases else max(leases)),
            max(one.seen for _, one in having),
            max(one.dropped for _, one in having) + len(missed - early),
            kept,
            sorted(name for name in early if not self._executed(name)),
        )

    def _executed(self, name: Name) -> bool:
        worker, number = name
        return number <= self._marks.get(worker, 0) or number in self._ahead.get(worker, ())

    def _remove(self) -> None:
        """Execute removals that are under way."""
        assert self._names is not None
        if self._lost:
            return
        removing = [
            (-decided, report.worker, number, name, member)
            for member, report in self._reports.items()
            for number, name, decided in report.removing
        ]
        for _, worker, number, name, member in sorted(removing):
            if self._executed((worker, number)):
                continue
            if name in self._names:
                self._names.discard(name)
                self._ahead.setdefault(worker, set()).add(number)
                written = self._reports[member].replacing.get(number)
                if written is not None:
                    self._names.add((worker, number))
                    self._items[worker, number] = ((worker, number), *written)
                    if number not in self._reports[member].again:
                        self._written.append(((worker, number), written[0]))
            else:
                self._void.setdefault(member, []).append(name)

    @property
    def done(self) -> bool:
        """True if every member has the tuples of the epoch."""
        return self.installed >= set(self._epoch.members)

    def got(self, member: int, tuples: Iterable[Travelling]) -> None:
        """Tuples that were wanted are here."""
        wanted = self._wanted.get(member, {})
        fresh = [one for one in tuples if one[0] in wanted]
        for one in fresh:
            del wanted[one[0]]
            self._items[one[0]] = one
        if not wanted:
            self._wanted.pop(member, None)
        if fresh:  # else it is an answer that came twice
            self._answered(member)

    def has(self, member: int, count: int) -> None:
        """A member has so many of the tuples that it lacked."""
        plan = self._plans.get(member)
        if plan is not None and count > plan.has:
            plan.has = count
            self._answered(member)

    def _answered(self, member: int) -> None:
        sent = self._sent.setdefault(member, SentWord())
        sent.asked, sent.again_at = False, 0.0

    def words(self, now: float) -> Iterator[tuple[int, Word]]:
        """The words to send now."""
        for member in self._epoch.members:
            sent = self._sent.setdefault(member, SentWord())
            word = self._word(member) if sent.again_at <= now else None
            if word is not None:
                if sent.asked:
                    sent.patience_s = min(2 * sent.patience_s, PATIENCE_S_MAX)
                sent.asked, sent.again_at = True, now + sent.patience_s
                yield member, word

    def _word(self, member: int) -> Word | None:
        """What this member is to be told or asked next."""
        epoch = self._epoch.number
        if self._names is None:
            told = len(self._told.get(member, ()))
            lacks = member in self._reports and told < self._reports[member].count
            return Tell(epoch, told) if lacks else None
        if member in self._wanted:
            return Want(epoch, list(islice(self._wanted[member], WANTED_MAX)))
        if self._wanted or member in self.installed:
            return None
        plan = self._plans[member]
        add = first_of(self._items[name] for name in plan.add[plan.has : plan.has + WANTED_MAX])
        if plan.has + len(add) < len(plan.add):
            return More(epoch, plan.has, add)
        ahead = {worker: sorted(numbers) for worker, numbers in self._ahead.items() if numbers}
        listeners = self._listeners if self._keeps(member) else []
        void = self._void.get(member, [])
        return Install(epoch, plan.drop, plan.has, add, self._marks, ahead, void, self._lost, listeners, self._leaving)


def first_of(tuples: Iterable[Travelling]) -> list[Travelling]:
    """As many as fit into one word, at least one."""
    found: list[Travelling] = []
    size = 0
    for one in tuples:
        size += one[1].size
        if found and size > WORD_BYTES_MAX:
            break
        found.append(one)
    return found


def _executed(report: Report, name: Name) -> bool:
    """True if the replica of this report has executed an operation."""
    worker, number = name
    return report.marks.get(worker, 0) >= number or number in report.ahead.get(worker, ())
