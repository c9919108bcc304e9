"""Calls of objects: of one object by its shadow, or of many through a handle; and the calls of other processes to
objects here.

A call says its interface, its group and its object outside of its arguments. A process that has no such object says so
and does not decode the arguments (M2MP: filter first). An object can be called by the methods that it exposes or
exports; an export says which callers may use which handle.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ....core.errors import AnswersLate, BadInput, NoMembers, NoObject, PluribusError, Refused, RemoteError, Unanswered
from ....core.frame import Message
from ....group.asking import Answers, Question
from ....group.calls import arguments_of, called
from ....objects.communicator import Delivery, Over
from ....objects.handlers import Handler
from ....objects.interfaces import ALL, FIRST, NONE, UNI, Export, checked_arguments
from ....objects.messages import ObjectMessage
from ....objects.residents import Resident
from ....objects.words import FAILED, GOOD, Invocation, Outcomes
from ....wire.questions import ABSENT, Answered, Wrapped, unwrapped, wrapped
from ...group.asking import ERROR_CHARS_MAX
from .bridge import crossed

if TYPE_CHECKING:
    from .post import Post

log = logging.getLogger(__name__)

Outcome = tuple[str, int, Any]
"""Id, whether the call succeeded, and the result or the exception."""


class ObjectCalls:
    def __init__(self, post: Post) -> None:
        self._post = post
        post.services[Invocation] = self._invoked

    # Calling

    async def call(
        self, id: str, method: str, args: Sequence[Any], named: Mapping[str, Any], timeout: float | None
    ) -> Any:
        """Call one exposed method of one object."""
        return (await self.invoke(UNI, None, id, FIRST, method, args, named, timeout))[0][2]

    async def invoke(
        self,
        how: str,
        export: Export | None,
        receiver: str,
        results: str,
        method: str,
        args: Sequence[Any],
        named: Mapping[str, Any],
        timeout: float | None,
    ) -> list[Outcome]:
        """The results of a call: with ``first`` one good result, or an exception if all failed; with ``all`` the
        results of all objects, exceptions included; with ``none`` nothing, and nothing is awaited."""
        interface = "" if export is None else export.interface
        own = self._allowed(how, interface, receiver, self._post.bus.name)[0]
        if how == UNI and receiver in self._post.directory.residents:
            word = None
        else:
            word = Invocation(how, interface, receiver, results, called(0, method, args, named), crossed.get())
        if results == NONE:
            for resident in own:
                self._run(resident, interface, method, args, named, _log_failure)
            if word is not None:
                await (await self._post.group()).send(word)
            return []
        try:
            async with asyncio.timeout(timeout):
                found = await self._outcomes(word, how, receiver, results, own, interface, method, args, named)
        except TimeoutError as late:
            if isinstance(late, AnswersLate):
                raise
            raise AnswersLate(f"{method!r} was not done in {timeout:g} s: give it more time") from None
        return found if results == ALL else [_first(found, how, interface, receiver)]

    async def _outcomes(
        self,
        word: Invocation | None,
        how: str,
        receiver: str,
        results: str,
        own: list[Resident],
        interface: str,
        method: str,
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> list[Outcome]:
        """Results of this process and of the others, which work at the same time."""
        if how == UNI:
            if word is None:
                if not own:
                    raise Refused(f"{receiver} may not be called through a uni handle of {interface} by this member")
                return await self._here(own, interface, method, args, named, FIRST)
            member, _ = await self._post.places.one(receiver)
            try:
                answer = await self._post.ask_one(member, word, None)
            except NoObject:
                self._post.places.lost(receiver)
                if not self._post.places.forget(receiver):
                    raise
                member, _ = await self._post.places.one(receiver)  # it was remembered; nobody has done the call
                answer = await self._post.ask_one(member, word, None)
            return _outcomes_in(answer)
        here = asyncio.ensure_future(self._here(own, interface, method, args, named, results))
        there = asyncio.ensure_future(self._there(word, results))
        waiting = {here, there}
        found: list[Outcome] = []
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in (here, there):
                    if one in done:
                        found += one.result()
                if results == FIRST and any(outcome == GOOD for _, outcome, _ in found):
                    break
        finally:
            for task in waiting:
                task.cancel()
        return found

    async def _there(self, word: Invocation | None, results: str) -> list[Outcome]:
        if not self._post.members() or word is None:
            return []
        group = await self._post.group()
        try:
            answers = await group.ask(word, replies="one" if results == FIRST else "all", timeout=None)
        except (NoMembers, Unanswered) as failed:  # too few good results
            answers = Answers(failed.answers)
        return [
            outcome
            for answer in answers
            for outcome in (_outcomes_in(answer.value) if answer.error is None else [("", FAILED, answer.error)])
        ]

    async def _here(
        self,
        residents: list[Resident],
        interface: str,
        method: str,
        args: Sequence[Any],
        named: Mapping[str, Any],
        results: str,
        bridges: int | None = None,
    ) -> list[Outcome]:
        """Results of the objects of this process; with ``first`` when one call succeeded, or all have failed."""
        found: list[Outcome] = []
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(delivery: Delivery, result: Any, error: Exception | None) -> None:
            id = delivery.resident.id
            found.append((id, GOOD, result) if error is None else (id, FAILED, error))
            enough = len(found) == len(residents) or (results == FIRST and error is None)
            if enough and not over.done():
                over.set_result(None)

        for resident in residents:
            self._run(resident, interface, method, args, named, ended, bridges)
        if residents:
            await over
        return found

    async def here(
        self, resident: Resident, method: str, args: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[int, Wrapped]:
        """The result of an object of this process, encoded to travel."""
        found = await self._here([resident], "", method, args, named, FIRST)
        return _travelling(found[0])[1:]

    def _run(
        self,
        resident: Resident,
        interface: str,
        name: str,
        args: Sequence[Any],
        named: Mapping[str, Any],
        over: Over,
        bridges: int | None = None,
    ) -> None:
        """Run a call. ``bridges``: how many the call has crossed; those of the calling task, if it is of this
        process."""
        try:
            if interface:
                export = resident.exports[interface]
                if name not in export.methods:
                    raise BadInput(f"{interface} has no method {name!r} here: there are {', '.join(export.methods)}")
                args, named = checked_arguments(export.methods[name], args, named)
                method: Callable[..., Any] = getattr(resident.served, name)
            else:
                found = resident.methods.get(name)
                if found is None:
                    listed = ", ".join(sorted(resident.methods)) or "none"
                    raise BadInput(f"no method {name!r} is exposed by {resident!r}: there are {listed}")
                method = found
        except BadInput as error:
            over(Delivery([(resident, False)], ObjectMessage(name), over), None, error)
            return
        came_by = crossed.get() if bridges is None else bridges
        handler = Handler(partial(_called, came_by, method, args, named), False, inspect.iscoroutinefunction(method))
        self._post.communicator.run(resident, handler, name, over)

    # Being called

    def _allowed(self, how: str, interface: str, receiver: str, caller: str) -> tuple[list[Resident], list[Resident]]:
        """The objects that a member of this name may call so, and the objects that it may not."""
        directory = self._post.directory
        if how == UNI:
            one = directory.residents.get(receiver)
            found = [] if one is None or (interface and interface not in one.exports) else [one]
        else:
            found = directory.with_interface(interface, receiver)
        if not interface:
            return found, []
        may = [resident for resident in found if resident.exports[interface].allows(how, receiver, caller)]
        return may, [resident for resident in found if resident not in may]

    def _invoked(self, message: Message) -> None:
        word: Invocation = message.body
        may, refused = self._allowed(word.how, word.interface, word.receiver, self._post.name_of(message.sender))
        if not may:
            self._post.counts["filtered"] += 1
            if message.asks:
                self._post.spawn(self._nobody(message, word, refused), sends=True)
            return
        try:
            call = word.call
            args, named = arguments_of(call)
            self._post.counts["decoded"] += 1
        except PluribusError as error:
            self._post.malformed(message, BadInput(f"a call that cannot be read: {error}"))
            if message.asks:
                self._post.spawn(self._fail(message, BadInput(f"a call that cannot be read: {error}")), sends=True)
            return
        if message.asks and word.how == UNI:

            def over(delivery: Delivery, result: Any, error: Exception | None) -> None:
                outcome = (word.receiver, GOOD, result) if error is None else (word.receiver, FAILED, error)
                self._post.follow(delivery, self._post.reply(message, Outcomes([_travelling(outcome)])))

            self._run(may[0], word.interface, call.method, args, named, over, word.bridges)
        elif message.asks:
            self._post.spawn(self._answered(message, word, may, call.method, args, named))
        else:
            for resident in may:
                self._run(resident, word.interface, call.method, args, named, _log_failure, word.bridges)

    async def _answered(
        self, message: Message, word: Invocation, may: list[Resident], method: str, args: Sequence[Any], named: Any
    ) -> None:
        found = await self._here(may, word.interface, method, args, named, word.results, word.bridges)
        if word.results == FIRST:
            good = [outcome for outcome in found if outcome[1] == GOOD]
            if not good:
                await self._fail(message, found[0][2])
                return
            found = good[:1]
        await self._post.reply(message, Outcomes([_travelling(outcome) for outcome in found]))

    async def _nobody(self, message: Message, word: Invocation, refused: list[Resident]) -> None:
        """No object here takes the call. With ``first``, the caller is told if the reason is that it may not call one;
        with ``all``, it gets the results that it may have."""
        if refused and word.results == FIRST:
            await self._fail(message, Refused(f"an object with {word.interface} may not be called so by this member"))
        elif word.how == UNI:
            await self._fail(message, NoObject(f"no object here is {word.receiver!r}: find it again"))
        else:
            assert isinstance(message, Question)
            group = await self._post.group()
            message.answered = True
            await group._asker.give(message.sender, Answered(message.number, ABSENT))

    async def _fail(self, message: Message, error: BaseException) -> None:
        group = await self._post.group()
        await group._asker.fail(message, error)


def _first(found: list[Outcome], how: str, interface: str, receiver: str) -> Outcome:
    good = next((outcome for outcome in found if outcome[1] == GOOD), None)
    if good is not None:
        return good
    if found:
        raise _raised(found[0][2])
    what = f"{interface} in the group {receiver!r}" if receiver else interface
    raise NoObject(f"no object on this bus can be called through this {how} handle of {what}: export it first")


def _raised(error: Any) -> Exception:
    """An exception of this process, in the form of one from another process."""
    if isinstance(error, PluribusError):
        return error
    return RemoteError(f"{type(error).__name__}: {error}", type(error).__name__)


def _travelling(outcome: Outcome) -> tuple[str, int, Wrapped]:
    id, how, value = outcome
    if how == GOOD:
        try:
            return (id, GOOD, wrapped(value))
        except BadInput as error:
            value = error
    kind, text = type(value).__name__, str(value)
    if isinstance(value, RemoteError) and value.kind:  # forwarded by a bridge
        kind, text = value.kind, text.removeprefix(f"{value.kind}: ")
    return (id, FAILED, wrapped([kind, text[:ERROR_CHARS_MAX]]))


def _outcomes_in(answer: Any) -> list[Outcome]:
    if not isinstance(answer, Outcomes):
        raise RemoteError("an answer that is none: install the same release on both sides", "MalformedFrame")
    found: list[Outcome] = []
    for id, how, body in answer.of:
        value = unwrapped(body)
        if how != GOOD:
            kind, text = value if isinstance(value, list) and len(value) == 2 else ("Exception", str(value))
            value = RemoteError(f"{kind}: {text}", str(kind))
        found.append((id, how, value))
    return found


def _called(bridges: int, method: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any], said: Any) -> Any:
    crossed.set(bridges)  # in the task that runs the call
    return method(*args, **named)


def _log_failure(delivery: Delivery, result: Any, error: Exception | None) -> None:
    if error is not None:
        kind = type(error).__name__
        log.warning("a call of %r that awaits no result failed: %s: %s", delivery.resident, kind, error)
