"""Questions to an open group from *outsiders*: members of the bus that are not in it, and clients through their member.

An outsider joins a group beside the open one, ``ask/NAME``. The members of the open group see this group appear, and
join it too. Then the outsider has one of them ask the question and return the answers. A group that no outsider asks
costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from ...core.errors import (
    AnswersLate,
    Closed,
    Excluded,
    MalformedFrame,
    NoMembers,
    PluribusError,
    Refused,
    RemoteError,
    Unanswered,
    Uncertain,
)
from ...core.ids import MemberId, number_of
from ...group.asking import Answer, Answers
from ...group.relay.words import is_open
from ...group.requests import AskGroup, Replied, Reply, SendGroup
from ...stack.events import Members
from ...wire.bodies import BYTES, array_header, decode_bodies, encode_body
from ..styles.style import Asker, Style
from .member_line import MemberLine

if TYPE_CHECKING:
    from ..bus import Bus

COME_S = 5.0
"""Seconds in which a member of the open group must join the group beside it."""
LOOK_S = 0.02

log = logging.getLogger("pluribus")


def beside(name: str) -> str:
    """The name of the group in which outsiders ask a group."""
    return f"ask/{name}"


class Outsiders(Style):
    """One member's questions as an outsider, and the questions of outsiders that it answers."""

    closes = 70

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self._lines: dict[str, asyncio.Future[MemberLine]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def handle(self, request: Any, asker: Asker) -> Any:
        if isinstance(request, SendGroup):
            body = decoded(request.kind, request.body)
            member, number = await self.bus.send(request.group, body, timeout=request.timeout_s)
            return (int(member), number)
        if isinstance(request, AskGroup):
            return await self.ask(request)
        return await super().handle(request, asker)

    async def ask(self, request: AskGroup) -> Replied:
        """Ask as a member of the group, or through one."""
        name = request.group
        if name in self.bus._groups:
            return await self._asked(request)
        dispatch = self.bus._dispatch
        line = await self._line(name)
        until = self.bus._now() + COME_S
        while True:
            known = dispatch.members.get(number_of(name))
            if known is not None and not is_open(known.promises):
                raise Refused(f"the group {name!r} is closed: only its members ask it; open it with open=True")
            inside = [] if known is None else [member for member in line.group.view.members if member in known.members]
            if inside:
                break
            if self.bus._now() > until:
                raise NoMembers(f"nobody is in the group {name!r}, or nobody who may be asked from outside")
            await asyncio.sleep(LOOK_S)
        try:
            found: Replied = await line.ask(inside[0], request)
        except Closed as error:
            raise Uncertain(f"{error}: the question may have been asked", (0, 0)) from None
        return found

    async def _asked(self, request: AskGroup) -> Replied:
        group = await self.bus._opened(self.bus._groups[request.group])
        body = decoded(request.kind, request.body)
        return await replied(group.ask(body, replies=request.replies, timeout=request.wait_s))

    # The group beside.

    def shown(self, event: Members, name: str) -> None:
        """The group beside an open group of this member has these members: join it if there are any."""
        if event.members and name not in self._lines:
            self._tasks.append(asyncio.ensure_future(self._join_quietly(name)))

    async def _join_quietly(self, name: str) -> None:
        with suppress(PluribusError):
            await self._line(name)

    async def _line(self, name: str) -> MemberLine:
        found = self._lines.get(name)
        if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
            found = self._lines[name] = asyncio.ensure_future(self._join(name))
        return await asyncio.shield(found)

    async def _join(self, name: str) -> MemberLine:
        group = await self.bus.group(beside(name), own=False)
        line = MemberLine(group)
        line.serve = self._serve
        self._tasks += [asyncio.ensure_future(self._read(line)), asyncio.ensure_future(self._watch(line))]
        return line

    async def _serve(self, request: Any, sender: int) -> Any:
        if not isinstance(request, AskGroup) or request.group not in self.bus._groups:
            raise Closed("this member is not in the group: ask another one")
        if not is_open(self.bus._groups[request.group]._channel.promises):
            raise Refused(f"the group {request.group!r} is closed: only its members ask it; open it with open=True")
        return await self._asked(request)

    async def _read(self, line: MemberLine) -> None:
        while not line.group.closed:
            try:
                async for message in line.group:
                    try:
                        if isinstance(message.body, bytes):
                            line.take(message.sender, message.body)
                    except MalformedFrame as error:
                        log.warning("a member of %r sent %s", line.group.name, error)
            except Excluded:
                continue

    async def _watch(self, line: MemberLine) -> None:
        async for view in line.group.views():
            line.viewed(view.members)

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        for task in self._tasks:
            task.cancel()
        for line in self._lines.values():
            if line.done() and not line.cancelled() and line.exception() is None:
                line.result().abandon()
            else:
                line.cancel()


def decoded(kind: int | str, body: bytes) -> Any:
    """A body that was encoded elsewhere; ``Opaque`` if its type is not known here."""
    if kind == BYTES:
        return body
    return decode_bodies(kind, msgspec.Raw(array_header(1) + body), 1)[0]


async def replied(asking: Awaitable[Answers]) -> Replied:
    """What comes of a question, as it travels; also the answers that came where there were too few."""
    try:
        return replied_of(await asking)
    except (NoMembers, Unanswered) as error:
        came = replied_of(error.answers)
        return msgspec.structs.replace(came, failed=(type(error).__name__, str(error)))


def replied_of(answers: Sequence[Answer]) -> Replied:
    """Answers as they travel."""
    replies = []
    for answer in answers:
        if answer.error is not None:
            replies.append(Reply(int(answer.sender), error=(answer.error.kind, str(answer.error))))
        else:
            replies.append(Reply(int(answer.sender), *encode_body(answer.value)))
    left = answers.left if isinstance(answers, Answers) else ()
    return Replied(replies, [int(member) for member in left])


def answers_of(replied: Replied) -> Answers:
    """As ``Group.ask`` gives them; or the error that it raises, with the answers that came."""
    found = Answers()
    for reply in replied.replies:
        sender = MemberId(reply.member)
        if reply.error is not None:
            found.append(Answer(sender, error=RemoteError(reply.error[1], reply.error[0])))
        else:
            found.append(Answer(sender, decoded(reply.kind, reply.body)))
    found.left = tuple(map(MemberId, replied.left))
    if replied.failed is not None:
        kind, text = replied.failed
        raise {"NoMembers": NoMembers, "AnswersLate": AnswersLate}.get(kind, Unanswered)(text, found)
    return found
