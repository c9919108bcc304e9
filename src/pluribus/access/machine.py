"""The access list as a machine on the log host. Source: chapter on indirect communication, 6.4.2.

Theory of operation
-------------------
Users, rules and tokens are three tables; each change counts the *version* up.
Members that serve clients hold a copy, ask for the latest version (``Copy``), and decide by it (``rules.py``).

*Every change is written down.* A change is only done together with others (``prepare``): the same command appends its
record to the audit topic, so there is no change without a record, and no record without a change.

*Once.* The host does each such command once, by its session and sequence. Each also names the whole state that it asks
for.

*Removal is whole.* With a user go its tokens and its own rules, in the same version. A token also ends by the
replicated time, so that the table does not grow; doors use their own clock.

Bounded: see the limits; at each the command is refused, with the remedy. A whole list fits in one answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec

from ..core.errors import MalformedFrame
from ..group.host.machine import TICK_THINGS_MAX, Effects, Ground, Machine, Refusal
from . import words
from .words import ANYONE, DONE, REFUSED, ROLE, Listed, Outcome, Rule, Token, User

USERS_MAX = 2_000
RULES_MAX = 5_000
TOKENS_MAX = 5_000
_STATE = "list"


class _Change(Effects):
    commands: list[words.Command]


class AccessList(Machine):
    """The access list of one bus."""

    kind: ClassVar[str] = words.MACHINE
    version: ClassVar[int] = 1
    transactional: ClassVar[bool] = True

    def __init__(self, ground: Ground) -> None:
        super().__init__(ground)
        self._clear()

    def _clear(self) -> None:
        self.number = 0
        """The version of the list."""
        self.users: dict[str, User] = {}
        self.rules: set[Rule] = set()
        self.tokens: dict[str, Token] = {}

    # Commands.

    def apply(self, row: int, place: int, command: bytes) -> Outcome:
        return Outcome(REFUSED, "the access list is changed together with the record of the change: use bus.access")

    def prepare(self, row: int, places: Sequence[int], commands: Sequence[bytes]) -> Refusal | Effects:
        if len(commands) != 1:
            return Refusal("one change of the access list at a time")
        try:
            command = words.command_of(commands[0])
        except MalformedFrame as error:
            return Refusal(str(error))
        reason = self._reason(command)
        if reason:
            return Refusal(reason)
        return _Change([Outcome(DONE, version=self.number + 1)], [command])

    def _reason(self, command: words.Command) -> str:
        """The reason why a change is impossible; empty if it is possible."""
        if isinstance(command, words.PutUser):
            name = command.user.name
            if ":" in name or name == ANYONE:
                return f"{name!r} is no name of a user: use one without a colon, and not {ANYONE!r}"
            if command.same_password and name not in self.users:
                return f"there is no user {name!r} whose password could stay: give one"
            if name not in self.users and len(self.users) >= USERS_MAX:
                return f"{USERS_MAX:,} users are on the list: remove some, or share roles by certificates"
            proof = command.user.certificate
            if proof and any(one.certificate == proof and one.name != name for one in self.users.values()):
                return f"the certificate {proof!r} is another user's: one certificate proves one user"
        elif isinstance(command, words.DropUser):
            if command.name not in self.users:
                return f"there is no user {command.name!r}"
        elif isinstance(command, words.PutRule):
            who = command.rule.who
            if who != ANYONE and not who.startswith(ROLE) and who not in self.users:
                return f"there is no user {who!r}: add the user first, or write role:NAME"
            if command.rule not in self.rules and len(self.rules) >= RULES_MAX:
                return f"{RULES_MAX:,} rules are on the list: use roles and patterns"
        elif isinstance(command, words.DropRule):
            if command.rule not in self.rules:
                return "there is no such rule: `pluribus access list` shows them"
        elif isinstance(command, words.PutToken):
            if command.token.user not in self.users:
                return f"there is no user {command.token.user!r}: add the user first"
            if command.token.until_us <= self.ground.now_us:
                return "the token would have ended already: give it more time"
            if len(self.tokens) >= TOKENS_MAX:
                return f"{TOKENS_MAX:,} tokens are on the list: remove some, or give them less time"
        elif command.id not in self.tokens:
            return f"there is no token {command.id!r}, or it has ended"
        return ""

    def commit(self, effects: Effects) -> None:
        assert isinstance(effects, _Change)
        for command in effects.commands:
            self._touch()
            if isinstance(command, words.PutUser):
                user = command.user
                if command.same_password:
                    user = msgspec.structs.replace(user, password=self.users[user.name].password)
                self.users[user.name] = user
            elif isinstance(command, words.DropUser):
                del self.users[command.name]
                self.tokens = {id: one for id, one in self.tokens.items() if one.user != command.name}
                self.rules = {rule for rule in self.rules if rule.who != command.name}
            elif isinstance(command, words.PutRule):
                self.rules.add(command.rule)
            elif isinstance(command, words.DropRule):
                self.rules.discard(command.rule)
            elif isinstance(command, words.PutToken):
                self.tokens[command.token.id] = command.token
            else:
                del self.tokens[command.id]

    def _touch(self) -> None:
        self.parts.touch(_STATE)
        self.number += 1

    # Questions.

    def query(self, question: bytes) -> bytes:
        asked = words.question_of(question)
        if isinstance(asked, words.Copy):
            return b"" if asked.version == self.number else words.encode(self.listed())
        return words.encode(shown(self.listed()))

    def listed(self) -> Listed:
        users = [self.users[name] for name in sorted(self.users)]
        tokens = [self.tokens[id] for id in sorted(self.tokens)]
        return Listed(self.number, users, sorted(self.rules), tokens)

    # Time.

    def due_us(self) -> int | None:
        return min((one.until_us for one in self.tokens.values()), default=None)

    def tick(self) -> None:
        late = [id for id, one in self.tokens.items() if one.until_us <= self.ground.now_us]
        if late:
            self._touch()
            for id in sorted(late)[:TICK_THINGS_MAX]:
                del self.tokens[id]

    # Snapshots.

    def part_names(self) -> list[str]:
        return [_STATE]

    def encode_part(self, name: str) -> bytes:
        return words.encode(self.listed())

    def restore(self, parts: Iterable[tuple[str, bytes]]) -> None:
        self._clear()
        for _, data in parts:
            listed = words.listed_of(data)
            self.number = listed.version
            self.users = {user.name: user for user in listed.users}
            self.rules = set(listed.rules)
            self.tokens = {token.id: token for token in listed.tokens}

    def validate(self) -> None:
        assert all(token.user in self.users for token in self.tokens.values())
        assert all(r.who in self.users or r.who == ANYONE or r.who.startswith(ROLE) for r in self.rules)
        assert len(self.users) <= USERS_MAX and len(self.rules) <= RULES_MAX and len(self.tokens) <= TOKENS_MAX


def shown(listed: Listed) -> Listed:
    """The list without anything by which a secret could be guessed."""
    users = [msgspec.structs.replace(user, password="set" if user.password else "") for user in listed.users]
    tokens = [msgspec.structs.replace(token, digest=b"") for token in listed.tokens]
    return msgspec.structs.replace(listed, users=users, tokens=tokens)
