"""The access list as one bus uses it: changes, questions, and clients that log in."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, ClassVar

import msgspec

from ....access import passwords, words
from ....access.machine import AccessList
from ....access.rules import Decisions, rule_of
from ....access.words import AUDIT, Listed, Outcome, Token, User
from ....core.errors import BadInput, Refused, Uncertain
from ....group.host import words as host
from ....group.host.words import ONCE
from ....pubsub.durable import batch as topic_batch
from ....wire.bodies import encode_body
from ...machines.line import MachineLine
from ...machines.machines import Machines
from ..style import Asker, Style
from . import guard as guards
from .guard import Guard, Visitor

ASK_S = 15.0
TOPICS = "topics"
SLOW_S, SLOW_S_MAX = 0.5, 30.0
"""Seconds by which a login that fails is delayed after the first failure; each failure of the same user or address
doubles them."""
FAILURES_MAX = 4_096
"""Users and addresses whose failures are remembered."""
FORGET_S = 300.0
PROVING_MAX = 2
"""Passwords that are compared at once: each takes 16 MiB and a processor. Between two waits at most so many guesses get
through, over any number of connections."""
WRONG = "the user, the password or the token is wrong"


class AccessStyle(Style):
    """The access list on one member. ``guard`` decides for its doors."""

    closes: ClassVar[int] = 15
    on_clients: ClassVar[str] = "pluribus.runtime.styles.access.client:ClientAccess"

    def __init__(self, bus: Any) -> None:
        super().__init__(bus)
        self.guard = Guard(bus)
        self._line: MachineLine[Outcome] | None = None
        self._opening = asyncio.Lock()
        self._proving = asyncio.Semaphore(PROVING_MAX)
        self._failures: dict[str, tuple[int, float]] = {}

    async def handle(self, request: Any, asker: Asker) -> Any:
        visitor = asker.visitor
        if isinstance(request, words.Login):
            return await self._login(request, visitor)
        if isinstance(request, words.Change):
            visitor.free = False  # it may make the list, and is not cut off for having been here before
            by = visitor.user or "anyone"
            return await self.change(words.command_of(request.command), by, request.number)
        if isinstance(request, words.Look):
            return await self.listed()
        if isinstance(request, words.Check):
            return await self.check(request)
        if isinstance(request, words.Mine):
            return visitor.user
        return await super().handle(request, asker)

    # Changing.

    async def line(self) -> MachineLine[Outcome]:
        async with self._opening:
            if self._line is None:
                machines: Machines = self.bus._style(Machines)
                self._line = await machines.open(words.MACHINE, AccessList, Outcome, timeout=ASK_S)
            return self._line

    async def change(self, command: words.Command, by: str, number: int | None = None) -> Outcome:
        """Make a change, with its record in the audit log; returns when no door uses the list of before. A change that
        is repeated with the same ``number`` is made once."""
        line = await self.line()
        at = self.bus._wall()
        kind, encoded = encode_body({"what": words.told(command), "user": by, "address": "", "count": 1, "at": at})
        session = ONCE + (self.bus.durable.new_number() if number is None else number) % ONCE
        sender = int(self.bus.me)
        record = topic_batch.pack(AUDIT, session, 1, sender, kind, int(at * 1e6), [encoded], [None], [None])
        takes = isinstance(command, words.DropUser | words.DropRule | words.DropToken)
        if isinstance(command, words.PutUser):  # a known user may have lost a role, or the password
            takes = any(user.name == command.user.name for user in (await self.listed()).users)
        parts = [(words.MACHINE, [words.encode(command)]), (TOPICS, [record])]
        found = await line.transact(session, 1, 1, parts, ASK_S)
        if found.status == host.REFUSED:
            raise Refused(found.reason)
        if found.status == host.UNKNOWN:
            raise Uncertain(f"{found.reason}: look at the list", (session, 1))
        await self.guard.caught_up()
        if takes:
            await asyncio.sleep(guards.LEASE_S)
        return Outcome(words.DONE)

    async def listed(self) -> Listed:
        line = await self.line()
        return words.listed_of(await line.inspect(words.encode(words.Show()), timeout=ASK_S))

    async def check(self, asked: words.Check) -> bool:
        rule_of(asked.who, f"{asked.style}:{asked.destination}", asked.verb)
        return Decisions(await self.listed()).allows(asked.who, (asked.style, asked.destination, asked.verb))

    # Identity.

    async def _login(self, asked: words.Login, visitor: Visitor) -> str:
        decisions = await self.guard.current()
        if not decisions.listed:
            return ""
        keys = [f"address {visitor.address.rpartition(':')[0]}", f"user {asked.user}" if asked.user else ""]
        found = None
        while found is None:
            await self._slowed(keys)
            async with self._proving:
                if self._wait_s(keys) <= 0:  # other attempts failed while this one waited for its turn
                    found = await self._proved(asked, decisions)
                    if not found[0]:
                        self._fail(keys)
        user, token, until_us = found
        if not user:
            self.guard.audit.failed(visitor, asked.user, "token" if asked.token else "password")
            raise Refused(f"{WRONG}: look at user=, password= and token=")
        decisions = await self.guard.current()  # the list may be another by now
        if user not in decisions.users:
            raise Refused(f"{WRONG}: look at user=, password= and token=")
        for key in keys:
            self._failures.pop(key, None)
        visitor.user, visitor.token, visitor.until_us = user, token, until_us
        visitor.decided.clear()
        visitor.version = decisions.version
        return user

    async def _proved(self, asked: words.Login, decisions: Decisions) -> tuple[str, str, int]:
        """The user, the id of the token and its end; an empty user if the identity is not proved."""
        if asked.token:
            return self._by_token(asked.token, decisions)
        kept = decisions.users.get(asked.user, User("nobody")).password
        good = await asyncio.to_thread(passwords.proves, asked.password, kept)
        return (asked.user if good else "", "", 0)

    def _by_token(self, text: str, decisions: Decisions) -> tuple[str, str, int]:
        id, digest = passwords.token_parts(text)
        token = decisions.tokens.get(id, Token("-", "", bytes(32), 0))
        good = passwords.same(token.digest, digest) and token.until_us > self.bus._wall() * 1e6
        return (token.user, token.id, token.until_us) if good else ("", "", 0)

    async def _slowed(self, keys: list[str]) -> None:
        while (wait_s := self._wait_s(keys)) > 0:  # noqa: ASYNC110 - it grows if others fail meanwhile
            await asyncio.sleep(wait_s)

    def _wait_s(self, keys: list[str]) -> float:
        """Seconds for which the next attempt waits, because of earlier failures."""
        now = self.bus._now()
        wait_s = 0.0
        for key in keys:
            count, at = self._failures.get(key, (0, 0.0))
            if count and now - at < FORGET_S:
                wait_s = max(wait_s, at + min(SLOW_S * 2 ** (count - 1), SLOW_S_MAX) - now)
        return wait_s

    def _fail(self, keys: list[str]) -> None:
        now = self.bus._now()
        for key in filter(None, keys):
            count, at = self._failures.pop(key, (0, now))
            self._failures[key] = (1 if now - at > FORGET_S else min(count + 1, 16), now)
        while len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]

    async def close(self) -> None:
        await self.guard.close()

    def abandon(self) -> None:
        self.guard.abandon()


class Access:
    """``bus.access``: the access list of the bus. See ``docs/access.md``."""

    def __init__(self, bus: Any) -> None:
        self._bus = bus

    async def add_user(
        self, name: str, *, password: str | None = None, roles: list[str] | None = None, certificate: str = ""
    ) -> None:
        """Add a user, or replace the user's settings. Without ``password`` an earlier password stays; if there was
        none, tokens or a certificate prove the user."""
        kept = (
            ""
            if password is None
            else await asyncio.to_thread(passwords.hashed, password, secrets.token_bytes(passwords.SALT_BYTES))
        )
        known = password is None and any(user.name == name for user in (await self.list()).users)
        await self._change(words.PutUser(_user(name, kept, roles or [], certificate), known))

    async def remove_user(self, name: str) -> None:
        """Remove a user with its tokens and its own rules. When it returns, the user is refused everywhere, also on
        open connections."""
        await self._change(words.DropUser(name))

    async def add_rule(self, who: str, destination: str, verb: str) -> None:
        """``add_rule("ann", "queue:orders", "send")``. ``who`` is a user, ``role:NAME`` or ``anyone``."""
        await self._change(words.PutRule(rule_of(who, destination, verb)))

    async def remove_rule(self, who: str, destination: str, verb: str) -> None:
        """Remove a rule. When it returns, no door uses the rule any more."""
        await self._change(words.DropRule(rule_of(who, destination, verb)))

    async def token(self, user: str, *, seconds: float) -> str:
        """A token that proves the user for so many seconds. It is shown once, and cannot be looked up later."""
        if not 0 < seconds <= 366 * 86_400:
            raise BadInput(f"seconds={seconds!r}: a token is for some seconds, at most for a year")
        id = passwords.token_id(secrets.token_bytes(passwords.ID_BYTES))
        text = passwords.token_text(id, secrets.token_bytes(passwords.TOKEN_BYTES))
        until_us = int((self._bus._wall() + seconds) * 1e6)
        await self._change(words.PutToken(Token(id, user, passwords.digest(text), until_us)))
        return text

    async def remove_token(self, id: str) -> None:
        """Remove a token, given its id or the token itself."""
        await self._change(words.DropToken(passwords.token_parts(id)[0] or id))

    async def list(self) -> Listed:
        """Users, rules and tokens, without their secrets."""
        found: Listed = await self._bus._style(AccessStyle).listed()
        return found

    async def check(self, who: str, destination: str, verb: str) -> bool:
        """True if the list allows this to a user (without a list: if everything is allowed)."""
        rule = rule_of(who, destination, verb)
        return bool(await self._bus._style(AccessStyle).check(words.Check(who, rule.style, rule.pattern, verb)))

    async def _change(self, command: words.Command) -> None:
        await self._bus._style(AccessStyle).change(command, f"member {self._bus.name}")


def _user(name: str, password: str, roles: list[str], certificate: str) -> User:
    try:
        return msgspec.convert((name, password, roles, certificate), User)
    except msgspec.ValidationError as error:
        raise BadInput(f"user {name!r} cannot be: {error}") from None
