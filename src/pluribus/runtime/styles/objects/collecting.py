"""Messages to all objects of an alias whose answers are awaited.

Each process answers once, with the answers of all its objects of that alias. So the asking process knows when all have
answered: the processes are the members of a group, and a member that leaves is not waited for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ....core.errors import AnswersLate, BadInput, MalformedFrame
from ....core.frame import Message
from ....objects.communicator import Delivery
from ....objects.messages import Said, token_of
from ....objects.residents import Resident
from ....objects.words import ALL, ONE, Letter, Outcomes
from ....wire.bodies import BYTES
from .letters import letter_of

if TYPE_CHECKING:
    from .post import Post


class Collecting:
    def __init__(self, post: Post) -> None:
        self._post = post

    async def gather(
        self, alias: str, message: Said, sender: object | None, timeout: float | None
    ) -> list[tuple[str, Said]]:
        """Ask all objects of an alias; returns their answers, each with the id of its object."""
        token = token_of(message) or self._post.replies.new_token()
        said = self._post.multicastable(alias, message, sender, token)
        own = asyncio.ensure_future(self._collected(self._post.directory.all_of(alias), said))
        try:
            answers = await self._post.ask_all(letter_of(said, alias, ALL), timeout)
            async with asyncio.timeout(timeout):
                found = list(await own)
        except TimeoutError as late:
            if isinstance(late, AnswersLate):
                raise
            raise AnswersLate(f"an object of {alias!r} here did not answer in {timeout:g} s") from None
        finally:
            own.cancel()
        for answer in answers:
            if isinstance(answer.value, Outcomes):
                for id, kind, (_, payload) in answer.value.of:
                    found.append((id, self._post.opened(Letter(kind, alias, ONE, id, payload, "", token))))
        return found

    def take(self, message: Message, letter: Letter) -> None:
        """A message to all objects of an alias whose answers are awaited."""
        targets = self._post.directory.all_of(letter.receiver)
        if not targets:
            self._post.counts["filtered"] += 1
            self._post.spawn(self._post.reply(message, Outcomes([])), sends=True)
            return
        self._post.spawn(self._collect(message, letter, targets))

    async def _collect(self, message: Message, letter: Letter, targets: list[Resident]) -> None:
        try:
            said = self._post.opened(letter)
        except (BadInput, MalformedFrame) as error:
            self._post.malformed(message, error)
            await self._post.reply(message, Outcomes([]))
            return
        outcomes: list[tuple[str, int, tuple[int | str, bytes]]] = []
        for id, answer in await self._collected(targets, said):
            found = letter_of(answer, letter.sender, ONE)
            outcomes.append((id, found.kind, (BYTES, found.payload)))
        await self._post.reply(message, Outcomes(outcomes))

    async def _collected(self, targets: list[Resident], said: Said) -> list[tuple[str, Said]]:
        """The answers of these objects of ours, in the order in which they come."""
        answers: list[tuple[str, Said]] = []
        everybody: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = len(targets)

        def over(delivery: Delivery, result: Any, error: Exception | None) -> None:
            nonlocal waiting
            answer = self._post.answer(delivery, result, error)
            if answer is not None:
                answers.append((delivery.resident.id, answer))
            waiting -= 1
            if not waiting and not everybody.done():
                everybody.set_result(None)

        for target in targets:
            self._post.tap(said)
            self._post.communicator.deliver(target, said, over)
        if targets:
            await everybody
        return answers
