"""Awaited answers, by the asking object and the token that it gave (``:reply-with``).

*Promises.* An answer reaches only the object that asked: both its receiver and its token must be those of the question.
Each question ends once: with the first answer, with the departure of the process that was asked, or when its asker
gives up. Later answers are counted and dropped. A *standing* question (a subscription) may be answered any number of
times.

*Bounded.* ``REPLIES_MAX`` questions of one process.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..core.errors import BadInput, NoMembers, Overflow, PluribusError
from ..core.limits import REPLIES_MAX
from ..wire.kqml import Kqml
from .messages import Said, answers_token

Told = Callable[[Said | PluribusError], None]


class _Awaited:
    __slots__ = ("member", "standing", "tell")

    def __init__(self, member: int, tell: Told, standing: bool) -> None:
        self.member = member
        self.tell = tell
        self.standing = standing


class Replies:
    def __init__(self, mark: str = "") -> None:
        self._mark = f".{mark}"
        """The suffix of the tokens of this process."""
        self._awaited: dict[tuple[str, str], _Awaited] = {}
        self._tokens = 0
        self.late = 0

    def new_token(self) -> str:
        self._tokens += 1
        return f"q{self._tokens}{self._mark}"

    def begin(self, asker: str, token: str, member: int, tell: Told, *, standing: bool = False) -> None:
        """Await the answer of an object of this member; 0 is this process."""
        if (asker, token) in self._awaited:
            raise BadInput(f"an answer to {token!r} is awaited already: give each question a :reply-with of its own")
        if len(self._awaited) >= REPLIES_MAX:
            raise Overflow(f"{REPLIES_MAX} questions to objects await their answers: await some of them")
        self._awaited[(asker, token)] = _Awaited(member, tell, standing)

    def moved(self, asker: str, token: str, member: int) -> None:
        """The question goes to another process."""
        self._awaited[(asker, token)].member = member

    def answered(self, receiver: str, message: Said) -> bool:
        """True if this is the answer to a question of ours; the asking object has then been told."""
        key = (receiver, answers_token(message))
        awaited = self._awaited.get(key) if key[1] else None
        if awaited is None:
            return False
        if not awaited.standing:
            del self._awaited[key]
        awaited.tell(message)
        return True

    def is_late(self, message: Said) -> bool:
        """True if it answers a question that is over: one whose token was given here."""
        if isinstance(message, Kqml) and message.performative == "discard":  # which names a token and answers nothing
            return False
        late = answers_token(message).endswith(self._mark)
        self.late += late
        return late

    def forget(self, asker: str, token: str) -> None:
        self._awaited.pop((asker, token), None)

    def members(self, there: Collection[int]) -> None:
        """These processes are there; questions to any other are ended with an error."""
        for key, awaited in list(self._awaited.items()):
            if awaited.member and awaited.member not in there:
                del self._awaited[key]
                awaited.tell(NoMembers("the process of the object that was asked is gone: find another, ask again"))

    def close(self, error: PluribusError) -> None:
        awaited, self._awaited = self._awaited, {}
        for one in awaited.values():
            one.tell(error)

    def __len__(self) -> int:
        return len(self._awaited)

    def validate(self) -> None:
        assert len(self._awaited) <= REPLIES_MAX
