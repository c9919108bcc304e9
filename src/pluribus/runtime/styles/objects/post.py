"""The post office of one process: carries messages between its objects and those of others, and runs handlers.

One group carries everything. The pure parts in ``pluribus.objects`` decide which object gets a message, which object
preempts it, how many messages are handled at a time, and to which question an answer belongs; here are the tasks, the
group and the clock. A message to an object of the same process goes from its sender to its handler without the group.

*Finding objects.* A process knows its own objects. For others it asks (``places``), and remembers the answer until a
process says that a name has changed (``Changed``), or the members of the bus change. If a ``Changed`` comes while a
question is under way, its answer is not remembered: so no order of the two leaves a stale answer behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ....core.errors import (
    AnswersLate,
    BadInput,
    Closed,
    MalformedFrame,
    NoMembers,
    NoObject,
    PluribusError,
    Refused,
    RemoteError,
    Unanswered,
)
from ....core.frame import Message
from ....core.limits import SLOW_S
from ....group.asking import Answers
from ....objects.communicator import Communicator, Delivery
from ....objects.directory import Directory
from ....objects.handlers import Handler
from ....objects.messages import (
    ObjectMessage,
    Said,
    addressed,
    answer_of,
    answers_token,
    error_of,
    failure_of,
    token_of,
)
from ....objects.names import new_id
from ....objects.replies import Replies
from ....objects.residents import Resident
from ....objects.words import (
    ALL,
    ONE,
    Changed,
    Found,
    Letter,
    Listing,
    Sought,
    is_ours,
)
from ....wire.kqml import Kqml
from ...loop.futures import has_come, in_a_thread
from ..style import Style
from .calls import ObjectCalls
from .collecting import Collecting
from .letters import letter_of, opened
from .places import HERE, Places
from .queue import CallQueue
from .shadows import Shadow

if TYPE_CHECKING:
    from ...bus import Bus
    from ...group.group import Group

log = logging.getLogger(__name__)

GROUP = "objects/talk"
RETRIES_MAX = 3
"""Objects of an alias that are tried when the remembered ones are gone."""


class ProcessItself:
    """The object that stands for the program itself: it gets messages that are sent to the program and to no other
    object."""

    async def say(self, message: Said) -> None:
        log.warning("nobody takes a message to this process: %s", message)


class Post(Style):
    """The objects that one bus has open. On a client it is the same, in a group in which the client is a guest."""

    on_clients = "pluribus.runtime.styles.objects.post:Post"

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.directory = Directory(self._names_changed)
        self.places = Places(self.directory, self.ask_all, self.members)
        self.communicator = Communicator(self._start, bus._now)
        mark = new_id(bus._random)
        self.replies = Replies(mark[-8:])
        self.collecting = Collecting(self)
        self.counts = {"filtered": 0, "malformed": 0, "undeliverable": 0, "decoded": 0, "sent": 0}
        self.taps: list[Callable[[Said], None]] = []
        """Programs that watch every message that reaches an object here."""
        self.services: dict[type, Callable[[Message], None]] = {}
        """By word: the handlers of further parts of this style."""
        self.on_members: list[Callable[[tuple[int, ...]], None]] = []
        self.calls = ObjectCalls(self)
        self.queue = CallQueue(self)
        self._group: Group | None = None
        self._joining: asyncio.Future[Group] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}
        """In their order, which a set does not keep: a world must do the same every time."""
        self._posting: dict[asyncio.Task[Any], None] = {}
        self._changes: list[str] = []
        self._current: Delivery | None = None
        """The delivery whose handler has just ended; the task of the handler sends the answer."""
        self._slow_timer: asyncio.TimerHandle | None = None
        self.over = False
        self.itself = self.directory.add(ProcessItself(), mark)
        self._changes.clear()  # no other process knows it

    # The group

    async def group(self) -> Group:
        """The group of all processes with objects, joined."""
        if self._group is not None:
            return self._group
        if self._joining is None:
            self._joining = asyncio.ensure_future(self._join())
        try:
            return await asyncio.shield(self._joining)
        except BaseException:
            if self._joining.done():
                self._joining = None
            raise

    async def _join(self) -> Group:
        group: Group = await self.bus.group(GROUP, own=False)
        self._group = group
        self.spawn(self._pump(group))
        self.spawn(self._watch(group))
        return group

    async def _pump(self, group: Group) -> None:
        async for message in group:
            try:
                self._arrived(message)
            except MalformedFrame as error:
                self.malformed(message, error)
            except Exception:  # a bug of ours, which must not end all messages
                self.counts["malformed"] += 1
                log.exception("a message of %r could not be taken", message.sender)

    async def _watch(self, group: Group) -> None:
        """Watch the view: tell tasks that wait for a process that is gone, and forget the places of objects."""
        async for view in group.views():
            there = tuple(int(member) for member in view.members)
            self.places.members_changed(there)
            self.replies.members(there)
            for resident in self.directory.residents.values():
                for subscriber, token in list(resident.subscribers):
                    if not self.places.seen(subscriber) and subscriber not in self.directory.residents:
                        resident.subscribers.pop((subscriber, token), None)
            for tell in self.on_members:
                tell(there)

    def members(self) -> tuple[int, ...]:
        """The other processes, the eldest first."""
        group = self._group
        if group is None:
            return ()
        return tuple(int(member) for member in group.view.members if member != group.me)

    def name_of(self, member: int) -> str:
        group = self._group
        return "" if group is None else group.view.names.get(member, "")

    # Arrivals

    def _arrived(self, message: Message) -> None:
        body = message.body
        if type(body) is Letter:
            self.places.saw(body.sender, message.sender)
            if message.asks:
                self.collecting.take(message, body)
            else:
                self._letter(body, message.sender)
        elif type(body) is Changed:
            for name in body.names:
                self.places.forget(name)
            self.queue.changed()
        elif type(body) is Sought and message.asks:
            found = self.directory.with_interface(body.name) if body.interface else self.directory.all_of(body.name)
            self.spawn(self.reply(message, Found([resident.id for resident in found])), sends=True)
        elif type(body) is Listing and message.asks:
            self.spawn(self.reply(message, self.listing()), sends=True)
        elif is_ours(body) and type(body) in self.services:
            self.services[type(body)](message)
        else:
            raise MalformedFrame(f"no word of objects: {type(body).__name__}")

    def _letter(self, letter: Letter, member: int) -> None:
        """A message for an object of this process, or for all objects of an alias."""
        if letter.how == ALL:
            targets = self.directory.all_of(letter.receiver)
            if not targets:
                self.counts["filtered"] += 1
                return
        else:
            target = self.directory.one_of(letter.receiver)
            targets = [] if target is None else [target]
        try:
            message = self.opened(letter)
        except (BadInput, MalformedFrame) as error:
            self._returned(letter, member, error)
            return
        if letter.how == ONE and self.replies.answered(letter.receiver, message):
            return
        if answers_token(message) and self.replies.is_late(message):
            return
        if not targets:
            self.counts["undeliverable"] += 1
            self._returned(letter, member, NoObject(f"no object here is {letter.receiver!r}: find it again"))
        for target in targets:
            self.tap(message)
            self.communicator.deliver(target, message, partial(self._handled, member))

    def opened(self, letter: Letter) -> Said:
        self.counts["decoded"] += 1
        return opened(letter)

    def _returned(self, letter: Letter, member: int, error: PluribusError) -> None:
        """Return a message that cannot be delivered to its sender as an error, unless it is an answer itself."""
        envelope = ObjectMessage(None, letter.sender, letter.receiver, letter.reply_with)
        if letter.in_reply_to:
            log.warning("an answer to %s could not be delivered: %s", letter.receiver, error)
            return
        answer = failure_of(envelope, error, self.itself.id)
        if answer is not None:
            self.spawn(self._post(member, letter.sender, answer), sends=True)

    def _handled(self, member: int, delivery: Delivery, result: Any, error: Exception | None) -> None:
        """A message was handled: answer it, if an answer is wanted."""
        answer = self.answer(delivery, result, error)
        if answer is None:
            return
        to = str(answer.get("receiver")) if isinstance(answer, Kqml) else answer.receiver
        if member != HERE:
            self.follow(delivery, self._post(member, to, answer))
        else:
            asker = self.directory.residents.get(to)
            if asker is not None:
                self._deliver_here(asker, answer)

    def answer(self, delivery: Delivery, result: Any, error: Exception | None) -> Said | None:
        said, by = delivery.said, delivery.resident.id
        if error is None:
            try:
                return answer_of(said, result, by)
            except PluribusError as unfit:  # a result that cannot be encoded
                error = unfit
        else:
            log.debug("a handler of %r failed", delivery.resident, exc_info=error)
        answer = failure_of(said, error, by)
        if answer is None and not (isinstance(said, Kqml) and said.performative in ("error", "sorry")):
            log.warning("%r could not handle %s: %s", delivery.resident, said, error)
        return answer

    # Sending

    def sender(self, who: object | None) -> Resident:
        return self.itself if who is None else self.directory.resident(who.id if isinstance(who, Shadow) else who)

    def send_here(self, id: str, message: Said, sender: object | None) -> bool:
        """Send to an object of this process; false if there is none with this id."""
        resident = self.directory.residents.get(id)
        if resident is None:
            return False
        by = self.itself if sender is None else self.sender(sender)
        self._deliver_here(resident, addressed(message, by.id, id))
        return True

    async def send(self, receiver: str, message: Said, sender: object | None, token: str = "") -> int:
        """Send to the object with an id, or to the next in turn of an alias; returns the object's process. ``NoObject``
        if there is none."""
        by = self.sender(sender)
        resident = self.directory.residents.get(receiver)
        if resident is not None:
            self._deliver_here(resident, addressed(message, by.id, receiver, token))
            return HERE
        member, id = await self.places.one(receiver)
        said = addressed(message, by.id, receiver, token)
        if member == HERE:
            self._deliver_here(self.directory.resident(id), said)
        else:
            await self._post(member, id, said)
        return member

    def _deliver_here(self, resident: Resident, message: Said) -> None:
        if type(message) is Kqml:
            names = message.parameters
            if "in-reply-to" not in names and "reply-with" not in names and not self.taps:
                try:
                    if self.communicator.tell_quickly(resident, message):
                        return
                except Exception as error:  # noqa: BLE001 - it is the sender's to handle
                    self._handled(HERE, Delivery([(resident, False)], message, _nobody), None, error)
                    return
        if answers_token(message) and (self.replies.answered(resident.id, message) or self.replies.is_late(message)):
            return
        if self.taps:
            self.tap(message)
        self.communicator.deliver(resident, message, partial(self._handled, HERE))

    async def _post(self, member: int, receiver: str, message: Said) -> None:
        """Send to an object of another process."""
        group = await self.group()
        try:
            letter = letter_of(message, receiver, ONE)
            if member not in group.view:
                raise NoObject(f"the process of {receiver} is gone: find the object again")
            self.counts["sent"] += 1
            await group.send(letter, to=member)
        except BadInput:
            if member in group.view:
                raise
            self.places.forget(receiver)
            self.places.lost(receiver)
            raise NoObject(f"the process of {receiver} is gone: find the object again") from None

    async def broadcast(self, alias: str, message: Said, sender: object | None) -> None:
        """Send to all objects of an alias, in this process and others."""
        said = self.multicastable(alias, message, sender)
        for resident in self.directory.all_of(alias):
            self._deliver_here(resident, said)
        group = await self.group()
        self.counts["sent"] += 1
        await group.send(letter_of(said, alias, ALL))

    def multicastable(self, alias: str, message: Said, sender: object | None, token: str = "") -> Said:
        """Add the sender's unicast address to a message, so that it can be answered."""
        said = addressed(message, self.sender(sender).id, alias, token)
        if isinstance(said, Kqml):
            host, port = self.bus._engine.address
            return said.changed(sender_unicast_address=f"{host}:{port}")
        return said

    async def ask(self, receiver: str, message: Said, sender: object | None, timeout: float | None) -> Said:
        """Send, and await the answer. An answer that is an error is raised."""
        by, loop = self.sender(sender), asyncio.get_running_loop()
        for attempt in range(RETRIES_MAX):
            token = token_of(message) or self.replies.new_token()
            told: asyncio.Future[Said | PluribusError] = loop.create_future()
            self.replies.begin(by.id, token, HERE, partial(_tell, told))
            try:
                async with asyncio.timeout(timeout):
                    member = await self.send(receiver, message, by, token)
                    if not told.done():
                        self.replies.moved(by.id, token, member)
                    answer = await told
            except TimeoutError:
                if not has_come(told):
                    raise AnswersLate(f"{receiver!r} did not answer in {timeout:g} s: give it more time") from None
                answer = told.result()
            finally:
                self.replies.forget(by.id, token)
            if isinstance(answer, PluribusError):
                raise answer
            error = error_of(answer)
            if error is None:
                return answer
            gone = error.kind == NoObject.__name__ and answer_by(answer) not in self.directory.residents
            if gone and attempt < RETRIES_MAX - 1 and self.places.forget(receiver):
                continue  # the object was there when its place was asked for; no object has handled the message
            raise error
        raise AssertionError("the last attempt returns or raises")

    async def ask_all(self, word: Any, timeout: float | None, replies: str = "all") -> Answers:
        """Ask every other process; that there is none is no error."""
        group = await self.group()
        if not self.members():
            return Answers()
        try:
            return await group.ask(word, replies=replies, timeout=timeout)
        except AnswersLate:
            raise
        except (NoMembers, Unanswered) as failed:
            return Answers(failed.answers)

    async def ask_one(self, member: int, word: Any, timeout: float | None) -> Any:
        """Ask another process. ``NoObject`` if the process is gone, ``RemoteError`` for an exception of its handler."""
        group = await self.group()
        try:
            answers = await group.ask(word, replies="one", to=member, timeout=timeout)
        except NoMembers:
            raise NoObject("the process of the object is gone: find the object again") from None
        except AnswersLate:
            raise
        except Unanswered as failed:
            raise as_here(next(answer.error for answer in failed.answers if answer.error is not None)) from None
        return answers[0].body

    # Names

    def _names_changed(self, names: list[str]) -> None:
        """Names have changed here: tell the other processes."""
        for name in names:
            self.places.forget(name)
        self.queue.changed()
        self._changes += names
        if self._group is not None and len(self._changes) == len(names):
            self.spawn(self.announced(), sends=True)

    async def announced(self) -> None:
        """Returns when the other processes were told of every change of names."""
        group = await self.group()
        names, self._changes = self._changes, []
        if names:
            await group.send(Changed(list(dict.fromkeys(names))))

    def listing(self) -> Listing:
        return Listing(
            [
                (resident.id, type(resident.served).__name__, list(resident.aliases), list(resident.exports))
                for resident in self.directory.residents.values()
                if resident is not self.itself
            ]
        )

    # Running

    def _start(self, delivery: Delivery) -> None:
        self.spawn(self._run(delivery))
        if self._slow_timer is None:
            self._slow_timer = asyncio.get_running_loop().call_later(SLOW_S, self._look_for_slow)

    async def _run(self, delivery: Delivery) -> None:
        handler = delivery.handler
        assert handler is not None, "a delivery that was started has a handler"
        result, failure = None, None
        try:
            result = await handled(handler, delivery.said)
        except Exception as error:  # noqa: BLE001 - it is the sender's to handle
            failure = error
        self._current = delivery
        try:
            self.communicator.ended(delivery, result, failure)
        finally:
            self._current = None
        answer, delivery.answer = delivery.answer, None
        if answer is not None:
            task = asyncio.current_task()
            assert task is not None
            self._posting[task] = None
            try:
                await answer
            finally:
                del self._posting[task]

    def follow(self, delivery: Delivery, answer: Coroutine[Any, Any, None]) -> None:
        """Send the answer to a delivery: in the task that handled it, if that task is still running, which costs no
        further task."""
        if self._current is delivery:
            delivery.answer = answer
        else:
            self.spawn(answer, sends=True)

    def _look_for_slow(self) -> None:
        self._slow_timer = None
        for delivery in self.communicator.slow():
            log.warning("%r takes longer than %g s for %.200s", delivery.resident, SLOW_S, delivery.said)
        if self.communicator.running:
            self._slow_timer = asyncio.get_running_loop().call_later(SLOW_S / 2, self._look_for_slow)

    def tap(self, message: Said) -> None:
        for tap in self.taps:
            tap(message)

    def malformed(self, message: Message, error: PluribusError) -> None:
        self.counts["malformed"] += 1
        log.warning("%r sent what no object can take: %s", message.sender, error)

    async def reply(self, message: Message, word: Any) -> None:
        try:
            await message.reply(word)
        except Closed:
            pass  # no process is left that could have been told
        except BadInput as error:  # too large for this stack, for example
            log.warning("an answer could not be sent: %s", error)

    def spawn(self, work: Coroutine[Any, Any, None], *, sends: bool = False) -> asyncio.Task[None] | None:
        """Run a task of this style; with ``sends`` closing the bus waits for it. None if the bus is closed."""
        if self.over:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        tasks = self._posting if sends else self._tasks
        tasks[task] = None
        task.add_done_callback(partial(_ended, tasks))
        return task

    # The style

    async def drain(self, timeout: float) -> None:
        if self._posting:
            await asyncio.wait(list(self._posting), timeout=timeout)

    async def close(self) -> None:
        self.abandon()

    def abandon(self) -> None:
        self.over = True
        if self._slow_timer is not None:
            self._slow_timer.cancel()
        self.replies.close(Closed("the bus was closed before its object was answered"))
        self.queue.close()
        try:
            current = asyncio.current_task()
        except RuntimeError:  # no loop runs, so none of our tasks does
            return
        for task in (*self._tasks, *self._posting):
            if task is not current:
                task.cancel()

    def validate(self) -> None:
        self.directory.validate()
        self.communicator.validate()
        self.replies.validate()
        self.places.validate()
        self.queue.validate()

    def stats(self) -> dict[str, int]:
        """Counters of this process."""
        communicator = self.communicator
        return {
            **self.counts,
            "objects": len(self.directory.residents) - 1,
            "delivered": communicator.delivered,
            "refused": communicator.refused,
            "slow": communicator.reported,
            "running": communicator.running,
            "asked": len(self.replies),
            "late": self.replies.late,
        }


def as_here(error: RemoteError) -> PluribusError:
    """An error of another process about its objects, as this process would raise it."""
    known: dict[str, type[PluribusError]] = {"NoObject": NoObject, "Refused": Refused}
    return known[error.kind](str(error)) if error.kind in known else error


def answer_by(answer: Said) -> str:
    return str(answer.get("sender", "")) if isinstance(answer, Kqml) else answer.sender


async def handled(handler: Handler, said: Any) -> Any:
    """The result of a handler: coroutines are awaited, quick functions are called, others run in threads."""
    if handler.waits:
        return await handler.call(said)
    return handler.call(said) if handler.quick else await in_a_thread(handler.call, said)


def _nobody(delivery: Delivery, result: Any, error: Exception | None) -> None:
    """The delivery is over already: nothing to do."""


def _tell(told: asyncio.Future[Said | PluribusError], answer: Said | PluribusError) -> None:
    if not told.done():
        told.set_result(answer)


def _ended(tasks: dict[asyncio.Task[Any], None], task: asyncio.Task[Any]) -> None:
    tasks.pop(task, None)
    if not task.cancelled() and (error := task.exception()) is not None:
        if isinstance(error, NoObject | NoMembers | Closed | RemoteError):
            log.debug("what was to be sent has nobody to go to: %s", error)
        else:
            log.error("a task of objects failed", exc_info=error)
