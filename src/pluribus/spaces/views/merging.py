"""Merging: when an epoch begins, the eldest member makes one state from those of all members.

The replicas that count are those whose tuples are of the latest epoch; others were away, and are brought up to date. If
none has tuples of the last epoch that was opened, the space is lost: it begins empty, and every member is told. A tuple
stays if one of the replicas has it, unless a replica is without it that has executed its writer's operations that far.
Removals that a living worker had decided are executed here, those of the latest epoch first; if the tuple is gone by
then, another worker has taken it, and the worker is told that its take is void.

A registration stays by the same rule as a tuple, and so does each event that is kept for its listener.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..roster import Epoch
from ..values import Item
from .words import Install, KeptListener, Name, Report, Want, Word


class Merge:
    def __init__(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._reports: dict[int, Report] = {}
        self._names: set[Name] | None = None
        """Reports of the tuples of the epoch, when all members have reported."""
        self._marks: dict[int, int] = {}
        self._ahead: dict[int, set[int]] = {}
        self._void: dict[int, list[Name]] = {}
        self._lost = False
        self._items: dict[Name, tuple[Name, Item, int]] = {}
        self._missing: set[Name] = set()
        self._listeners: list[KeptListener] = []
        self._written: list[tuple[Name, Item]] = []
        """Tuples that are written in the place of removed ones, and that listeners have not been told of."""
        self.installed: set[int] = set()

    @property
    def complete(self) -> bool:
        """True if every member has reported."""
        return self._names is not None

    def reported(self, member: int, report: Report) -> None:
        if self._names is None:
            self._reports[member] = report
            if set(self._reports) >= set(self._epoch.members):
                self._merge()

    def _merge(self) -> None:
        latest = max(report.state for report in self._reports.values())
        valid = latest >= max(self._epoch.opened, 0)
        sources = [report for report in self._reports.values() if report.state == latest and valid]
        self._lost = not sources and self._epoch.opened > 0
        held = [set(report.names) for report in sources]
        for report in sources:
            for worker, number in report.marks.items():
                self._marks[worker] = max(number, self._marks.get(worker, 0))
            for worker, numbers in report.ahead.items():
                self._ahead.setdefault(worker, set()).update(numbers)
        for report in self._reports.values():
            known = report.next if self._lost else report.first
            self._marks[report.worker] = max(known - 1, self._marks.get(report.worker, 0))
        names = set().union(*held) if held else set()
        self._names = {name for name in names if not self._removed(name, sources, held)}
        self._remove()
        self._listeners = list(self._merged_listeners(sources))
        wanted = [self._names - set(self._reports[member].names) for member in self._epoch.holders]
        self._missing = set().union(*wanted) if wanted else set()

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

    def got(self, tuples: Iterable[tuple[Name, Item, int]]) -> None:
        for one in tuples:
            if one[0] in self._missing:
                self._items[one[0]] = one

    def words(self) -> Iterator[tuple[int, Word]]:
        """The words to send now; they are repeated until they are answered."""
        if self._names is None:
            return
        lacking = self._missing - set(self._items)
        if lacking:
            for member, report in sorted(self._reports.items()):
                asked = lacking & set(report.names)
                if asked:
                    lacking -= asked
                    yield member, Want(self._epoch.number, sorted(asked))
            return
        for member in self._epoch.members:
            if member not in self.installed:
                yield member, self._install(member)

    def _install(self, member: int) -> Install:
        assert self._names is not None
        report = self._reports[member]
        drop: set[Name] = set()
        add: list[tuple[Name, Item, int]] = []
        keeps = member in self._epoch.holders or not self._epoch.holders  # the last one leaves: another may yet come
        if keeps:
            has = set(report.names)
            drop = has - self._names
            add = [self._items[name] for name in sorted(self._names - has) if name in self._items]
        ahead = {worker: sorted(numbers) for worker, numbers in self._ahead.items() if numbers}
        void = self._void.get(member, [])
        listeners = self._listeners if keeps else []
        return Install(self._epoch.number, sorted(drop), add, self._marks, ahead, void, self._lost, listeners)


def _executed(report: Report, name: Name) -> bool:
    """True if the replica of this report has executed an operation."""
    worker, number = name
    return report.marks.get(worker, 0) >= number or number in report.ahead.get(worker, ())
