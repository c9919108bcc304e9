"""A shadow stands for an object, in this process or another: with it a program can write to the object, ask it and call
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....core.errors import BadInput
from ....objects.messages import ObjectMessage, Said
from ....objects.names import is_id
from ....wire.kqml import Kqml, parse
from ...group.asking import ANSWER_S
from .places import HERE

if TYPE_CHECKING:
    from .post import Post


class Usual:
    """The default time-out of a call."""

    def __repr__(self) -> str:
        return "USUAL"


USUAL = Usual()


class Shadow:
    """Made by ``bus.directory``. It stands for an object, or for the next in turn of an alias (a ``broadcast`` goes to
    all objects of the alias). Two shadows are equal if they stand for the same id or alias."""

    __slots__ = ("_post", "id", "member")

    def __init__(self, post: Post, id: str, member: int) -> None:
        self._post = post
        self.id = id
        self.member = member
        """The process in which the object was when it was found; 0 is this one."""

    @property
    def local(self) -> object | None:
        """The object itself, if it is in this process."""
        resident = self._post.directory.residents.get(self.id)
        return None if resident is None else resident.served

    async def send(self, message: Kqml | str, *, sender: object | None = None) -> None:
        """Send a KQML message, or its text. ``NoObject`` if the object is gone; a message that the object cannot handle
        comes back to ``sender`` as an ``error``."""
        said = message if type(message) is Kqml else said_of(message)
        if not self._post.send_here(self.id, said, sender):
            await sent(self._post, self.id, said, sender)

    async def send_object(
        self, body: Any, *, in_reply_to: str = "", reply_with: str = "", sender: object | None = None
    ) -> None:
        """Send an object, of a registered type. With ``in_reply_to`` it answers a message with that token."""
        await self._post.send(self.id, ObjectMessage(body, "", "", reply_with, in_reply_to), sender)

    async def ask(
        self, message: Kqml | str | ObjectMessage, *, sender: object | None = None, timeout: float | None = ANSWER_S
    ) -> Said:
        """Send a message and await its answer, which is KQML or an object; ``answer.content`` is its content.

        ``RemoteError``: its handler raised an exception. ``Sorry``: it has no answer. ``AnswersLate``: no answer came
        in time. ``NoMembers`` or ``NoObject``: the object is gone.
        """
        return await self._post.ask(self.id, said_of(message), sender, timeout)

    async def call(
        self,
        method: str,
        *args: Any,
        timeout: float | Usual | None = USUAL,
        queued: bool = False,
        key: str = "",
        **named: Any,
    ) -> Any:
        """Call an exposed method; returns its result, or raises ``RemoteError`` for its exception. ``timeout`` is 10
        seconds by default, and unlimited for a queued call.

        ``queued=True`` keeps the call on disk until the object is there, and then until the answer has come: see
        ``bus.queued_calls``. ``key`` names the call: a second call with the same key, even after a restart, gets the
        answer of the first.
        """
        if queued:
            wait = None if isinstance(timeout, Usual) else timeout
            return await self._post.queue.call(self.id, method, args, named, key, wait)
        if key:
            raise BadInput("key= is for queued calls: add queued=True, or leave it out")
        wait = ANSWER_S if isinstance(timeout, Usual) else timeout
        return await self._post.calls.call(await self._one(), method, args, named, wait)

    async def _one(self) -> str:
        """The id of the object; for an alias, of the next in turn."""
        return self.id if is_id(self.id) else (await self._post.places.one(self.id))[1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shadow) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        where = "here" if self.member == HERE else f"at {self._post.name_of(self.member) or self.member}"
        return f"<shadow of {self.id[:11]}… {where}>"


def said_of(message: Kqml | str | ObjectMessage) -> Said:
    """The message that a caller gave: KQML, its text, or an object message."""
    if isinstance(message, str):
        return parse(message)
    if isinstance(message, Kqml | ObjectMessage):
        return message
    raise BadInput(f"a {type(message).__name__} is no message: send KQML, its text, or an object with send_object()")


async def sent(post: Post, receiver: str, message: Said, sender: object | None) -> None:
    """Send to the object with an id, or the next in turn of an alias; a ``broadcast`` to all objects of the alias."""
    if isinstance(message, Kqml) and message.performative == "broadcast" and not is_id(receiver):
        await post.broadcast(receiver, message, sender)
    else:
        await post.send(receiver, message, sender)
