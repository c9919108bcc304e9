"""An access list compiled for decisions: per user, which destinations each verb of each style may reach.

A rule names one destination or a pattern, as of topics: levels parted by ``/``, ``+`` for one level, ``#`` last for the
rest. A request may be for a pattern as well (a subscription): a rule allows it if the rule covers everything that the
pattern matches. A user has its own rules, those of its roles and those of anyone. No rule forbids; a request that no
rule allows is refused.

The index of a user is made when the user is first seen, and forgotten with the list: rules of one destination are found
by its name, patterns by their first level.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..core.errors import BadInput
from ..wire.asking import ANY, ANYWHERE, MEMBERS_ONLY, Need
from .words import ANYONE, AUDIT, ROLE, Listed, Rule, Token, User

ONE, REST = "+", "#"
VERBS = {
    "topic": ("publish", "subscribe", "browse", "manage"),
    "subscription": ("use",),
    "consumers": ("use", "manage"),
    "writer": ("use",),
    "queue": ("send", "receive", "browse", "manage"),
    "space": ("write", "read", "take"),
    "transaction": ("act", "browse"),
    "group": ("join", "send", "ask"),
    "slots": ("join", "enrol", "see", "reconfigure", "host", "send", "ask"),
    "slot-role": ("hold",),
    "conversation": ("join", "send", "ask"),
    "objects": ("join", "send", "ask"),
    "replica": ("call", "read"),
    "machine": ("change", "read"),
    "keepers": ("browse", "manage"),
    "access": ("browse", "manage"),
}
"""The verbs that rules can allow, by style. Styles of users have their own."""
ALL = "all"
"""The verb of a rule that allows every verb."""
_INDEXES_MAX = 4_096


def rule_of(who: str, destination: str, verb: str) -> Rule:
    """``rule_of("ann", "queue:orders", "send")``; ``BadInput`` if there is no such right."""
    style, separator, pattern = destination.partition(":")
    if not separator or not style or not pattern:
        raise BadInput(f"{destination!r} is no destination: write STYLE:NAME, for instance queue:orders, or queue:#")
    if style == MEMBERS_ONLY[0]:
        raise BadInput("what only members say is not for clients: connect to the bus itself")
    if style in VERBS and verb not in (*VERBS[style], ALL):
        raise BadInput(f"{style!r} has no verb {verb!r}: use one of {', '.join(VERBS[style])}, or {ALL}")
    levels = pattern.split("/")
    if any((ONE in level or REST in level) and level not in (ONE, REST) for level in levels) or REST in levels[:-1]:
        raise BadInput(f"{pattern!r} is no pattern: + is a whole level, and # the last one")
    return Rule(who, style, pattern, verb)


def covers(pattern: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """True if ``pattern`` matches everything that ``wanted`` matches."""
    for at, level in enumerate(pattern):
        if level == REST:
            return True
        if at >= len(wanted) or wanted[at] == REST or (level != ONE and level != wanted[at]):
            return False
    return len(pattern) == len(wanted)


class _Index:
    """The destinations of one verb of one style."""

    __slots__ = ("everything", "exact", "wild")

    def __init__(self) -> None:
        self.everything = False
        self.exact: set[str] = set()
        self.wild: dict[str, list[tuple[str, ...]]] = {}

    def add(self, pattern: str) -> None:
        levels = tuple(pattern.split("/"))
        if pattern == REST:
            self.everything = True
        elif ONE in levels or REST in levels:
            self.wild.setdefault(levels[0], []).append(levels)
        else:
            self.exact.add(pattern)

    def reaches(self, destination: str) -> bool:
        if self.everything or destination in self.exact or destination == ANYWHERE:
            return True
        wanted = tuple(destination.split("/"))
        near = (*self.wild.get(wanted[0], ()), *self.wild.get(ONE, ()))
        return any(covers(pattern, wanted) for pattern in near)


class Decisions:
    """The decisions of one version of the list."""

    def __init__(self, listed: Listed) -> None:
        self.version = listed.version
        self.users = {user.name: user for user in listed.users}
        self.tokens: dict[str, Token] = {token.id: token for token in listed.tokens}
        self.certificates = {user.certificate: user.name for user in listed.users if user.certificate}
        self._rules: dict[str, list[Rule]] = {}
        for rule in listed.rules:
            self._rules.setdefault(rule.who, []).append(rule)
        self.listed = bool(listed.users or listed.rules)
        """True if there is a list; without one everything is allowed."""
        self._indexes: dict[str, dict[tuple[str, str], _Index]] = {}

    def roles_of(self, user: str) -> Iterable[str]:
        found: User | None = self.users.get(user)
        return () if found is None else found.roles

    def allows(self, user: str, need: Need) -> bool:
        """True if a user (empty: a client that has not logged in) may do it."""
        if not self.listed:
            return True
        style, destination, verb = need
        if need == MEMBERS_ONLY or (style == "topic" and destination == AUDIT and verb in ("publish", "manage")):
            return False
        index = self._indexes.get(user)
        if index is None:
            if len(self._indexes) >= _INDEXES_MAX:
                self._indexes.clear()
            index = self._indexes[user] = self._indexed(user)
        found = (index.get((style, one)) for one in (*verb.split("|"), ALL))
        return any(one is not None and one.reaches(destination) for one in found)

    def _indexed(self, user: str) -> dict[tuple[str, str], _Index]:
        index: dict[tuple[str, str], _Index] = {}
        for who in {ANYONE, user, *(ROLE + role for role in self.roles_of(user))}:
            for rule in self._rules.get(who, ()):
                for verb in (rule.verb, ANY):
                    index.setdefault((rule.style, verb), _Index()).add(rule.pattern)
        return index
