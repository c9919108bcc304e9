"""Which golds share a standing query, also when a configuration has changed.

Golds that read the same silver tables share a query: each is a branch of its plan. What differs goes apart: patterns,
whose state is Python's, unless ``queries = "few"`` is wanted; and ``last``, which answers again whenever something
changes (Spark calls it update mode), where all others answer once, when a window is complete.

**A query that was begun keeps its branches.** A checkpoint of Spark has the state of each branch by its place in the
plan, and not by its name: with other branches before it, a branch would go on with a state that is another one's. So
``Golds`` remembers, below the state, the branches with which each query was begun (``golds/QUERY.json``):

* a gold that is *added* gets a query of its own (or with others that are added), which begins with the first event that
  the clean topics have;
* a gold that is *removed* stays a branch, without answers. A query whose golds are all removed does not run any more;
* a gold that was removed and is there again is refused, too: its answers would come twice. It needs another name;
* a gold that *computes something else* is refused, as it would go on with the old state, or answer again for all
  events: give it another name. Its topic, its condition (``where``) and its time may change.

A query counts as begun when it has committed a micro-batch; before that, nothing of it is remembered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from ...core.errors import BadInput
from ..columns import named_fields
from ..files import Files
from .parts import Configuration, Enrich, Gold, kinds_of

FOLDER = "golds"
FREE = ("name", "topic", "where", "time")
"""What may change of a gold: it is no part of the state."""


class Group(NamedTuple):
    """Golds that share a standing query."""

    name: str
    golds: tuple[Gold, ...]
    mode: str
    silent: frozenset[str] = frozenset()
    """The golds that were removed: computed for the sake of the others' state, and not published."""


class Branch(msgspec.Struct):
    gold: Gold
    meaning: Any
    """What it computes, as far as its state depends on it."""
    removed: bool = False


class Begun(msgspec.Struct):
    """The branches with which a query was begun, in their order."""

    branches: list[Branch]
    mode: str


_encode = msgspec.json.Encoder().encode
_begun = msgspec.json.Decoder(Begun)


def groups(configuration: Configuration) -> list[Group]:
    """The queries of a configuration that begins."""
    return _grouped(configuration, configuration.gold)


def _grouped(configuration: Configuration, golds: Iterable[Gold]) -> list[Group]:
    held: dict[tuple[str, ...], list[Gold]] = {}
    for gold in golds:
        kind: str = gold.kind if gold.kind in ("pattern", "last") else "windows"
        if configuration.queries == "few" and kind != "last":
            kind = "answers"
        joined = "joined" if configuration.joined(gold.of) else ""
        held.setdefault((kind, joined, *configuration.inputs(gold.of)), []).append(gold)
    found = []
    for (kind, joined, *inputs), some in held.items():
        name = "-".join(["gold", kind, *([joined] if joined else []), *inputs])
        found.append(Group(name, tuple(some), "update" if kind == "last" else "append"))
    return found


def meaning_of(configuration: Configuration, gold: Gold) -> Any:
    """What a gold computes, as far as its state depends on it. The state of ``last``, and of streams that are joined,
    has whole events."""
    plain = msgspec.to_builtins(gold)
    # What is not given is left out, so that keys of later releases change no meaning.
    found = {name: value for name, value in plain.items() if value and name not in (*FREE, "of")}
    found["inputs"] = configuration.inputs(gold.of)
    steps = _steps(configuration, gold.of)
    found["joins"] = [[step.other, step.on, step.within] for step in steps if step.other]
    if gold.kind == "last" or found["joins"]:
        found["events"] = [_events(configuration, name) for name in found["inputs"]]
        found["columns"] = [_told(named_fields(step.columns)) for step in steps if step.table]
    return msgspec.json.decode(msgspec.json.encode(found))


def _steps(configuration: Configuration, of: str | Sequence[str]) -> list[Enrich]:
    found: list[Enrich] = []
    for name in [of] if isinstance(of, str) else of:
        for step in configuration.enrich:
            if step.name == name:
                found += [*_steps(configuration, step.of), step]
    return found


def _events(configuration: Configuration, name: str) -> Any:
    """Columns in their order, and their types: the state has them by their places."""
    return list(kinds_of(configuration.silver_of(name)).items())


def _told(fields: Any) -> Any:
    return [(field.name, field.dataType.simpleString()) for field in fields.fields]


class Golds:
    """The memory of the queries that were begun. One process at a time has it."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def groups(self, configuration: Configuration) -> list[Group]:
        """The queries of a configuration, those that were begun first. ``BadInput`` if one of them cannot go on."""
        now = {gold.name: gold for gold in configuration.gold}
        found: list[Group] = []
        known = self._known()
        for name, begun in known.items():
            group = self._gone_on(configuration, name, begun, now)
            if group is not None:
                found.append(group)
        gone = {branch.gold.name for begun in known.values() for branch in begun.branches if branch.removed}
        for name in now:
            if name in gone:
                raise BadInput(
                    f"gold {name!r} was removed before, and what it answered until then is there: give it another "
                    "name, and it answers for all events that the clean topics have"
                )
        taken = {*known, *(group.name for group in found)}
        for group in _grouped(configuration, now.values()):
            number, name = 1, group.name
            while name in taken:
                number += 1
                name = f"{group.name}-{number}"
            taken.add(name)
            found.append(group._replace(name=name))
        return found

    def remember(self, configuration: Configuration, some: Iterable[Group]) -> None:
        """Before these queries are started; the others do not run any more."""
        running = {group.name: group for group in some}
        for name, begun in self._known().items():
            if name not in running:
                self._write(name, begun.branches, begun.mode, {branch.gold.name for branch in begun.branches})
        for name, group in running.items():
            branches = [Branch(gold, meaning_of(configuration, gold)) for gold in group.golds]
            self._write(name, branches, group.mode, group.silent)

    def _write(self, name: str, branches: Sequence[Branch], mode: str, removed: Iterable[str]) -> None:
        gone, path = {*removed}, f"{FOLDER}/{name}.json"
        told = [msgspec.structs.replace(one, removed=one.removed or one.gold.name in gone) for one in branches]
        data = _encode(Begun(told, mode))
        if not self._files.exists(path) or self._files.read(path) != data:
            self._files.write(path, data)

    def _known(self) -> dict[str, Begun]:
        """The queries that were begun, by name, in the order of their names."""
        found: dict[str, Begun] = {}
        for one in self._files.list(FOLDER):
            name = one.path.removeprefix(f"{FOLDER}/").removesuffix(".json")
            if one.path.endswith(".json") and self._files.list(f"checkpoint/{name}/commits"):
                found[name] = self._read(one.path)
        return found

    def _read(self, path: str) -> Begun:
        try:
            return _begun.decode(self._files.read(path))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{self._files.under(path)} is no memory of golds ({error}): restore the folder of the state"
            ) from None

    def _gone_on(self, configuration: Configuration, name: str, begun: Begun, now: dict[str, Gold]) -> Group | None:
        """The query as it goes on; None if all of its golds are removed. Takes its golds out of ``now``."""
        golds: list[Gold] = []
        silent: set[str] = set()
        for branch in begun.branches:
            gold = None if branch.removed else now.get(branch.gold.name)
            if gold is None:
                golds.append(branch.gold)
                silent.add(branch.gold.name)
            elif meaning_of(configuration, gold) != branch.meaning:
                raise BadInput(
                    f"gold {gold.name!r} computes something else than what the query {name!r} was begun with: give it "
                    "another name, and it answers for all events that the clean topics have; or begin with an empty "
                    "state and another name of the backbone"
                )
            else:
                # Spark has values by their places, too.
                golds.append(msgspec.structs.replace(gold, values=branch.gold.values))
        if len(silent) == len(golds):
            return None
        for branch, gold in zip(begun.branches, golds, strict=True):
            if gold.name in silent:
                self._check_there(configuration, name, branch)
            else:
                del now[gold.name]
        return Group(name, tuple(golds), begun.mode, frozenset(silent))

    def _check_there(self, configuration: Configuration, name: str, branch: Branch) -> None:
        """What a removed gold is made of is still there, as the state of the others lies beside its own."""
        gold = branch.gold
        wanted = {gold.of} if isinstance(gold.of, str) else {*gold.of}
        there = {one.name for one in configuration.silver} | {one.name for one in configuration.enrich}
        if not wanted <= there or meaning_of(configuration, gold) != branch.meaning:
            raise BadInput(
                f"gold {gold.name!r} is removed, and the query {name!r} of other golds still needs what it was made of "
                f"({', '.join(sorted(wanted))}), as it was: put that back, or give those golds other names as well"
            )
