"""The communicator: hands each message to its receiver, a task a message, and reports the outcome.

Source: ``distribute`` and ``SubMessageThread`` of *Communication in Bond*, section 1.

*Promises.* A message to an object is handled once by the handler that the object has for it, or its sender is told why
not: there is no handler, too many messages wait for the object, or the handler raised. A preemptive object gets a
message in the place of its target, or before it; then its target gets it when the preemptive object has let it pass,
with that object's changes, and never earlier. A slow handler delays only its own object.

*States.* A delivery goes through its steps (preemptive objects, then the target). In each it waits for a place, runs,
and is over. An object has ``OBJECT_TASKS_MAX`` places, all objects together ``COMMUNICATOR_TASKS_MAX``; a delivery that
runs longer than ``SLOW_S`` is reported, and its place among all is given to others; it keeps the place of its own
object. Quick handlers need no place, because they are over when they return.

*Live.* A place that is given back starts the next that waits, objects in turn. Steps are finite, because preemptive
objects form no cycle (``directory``). A handler that never ends keeps one place of its object, and is reported.

*Bounded.* ``OBJECT_WAITING_MAX`` deliveries wait for an object; the next is refused with ``Overflow``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import NoObject, Overflow
from ..core.limits import COMMUNICATOR_TASKS_MAX, OBJECT_TASKS_MAX, OBJECT_WAITING_MAX, SLOW_S
from ..wire.kqml import Kqml
from .handlers import Handler
from .messages import KEEP, ObjectMessage, Said
from .residents import Resident

NESTED_MAX = 16
"""The depth to which quick handlers call quick handlers; deeper ones get a task."""


class Delivery:
    """One message on its way to one object."""

    __slots__ = ("answer", "at", "handler", "message", "over", "resident", "said", "slow", "started", "steps")

    def __init__(self, steps: list[tuple[Resident, bool]], message: Said, over: Over) -> None:
        self.steps = steps
        self.at = 0
        self.message = message
        self.said = message
        """The argument of the handler; of a broadcast, its content."""
        self.over = over
        self.resident = steps[0][0]
        self.handler: Handler | None = None
        self.started = 0.0
        self.slow = False
        self.answer: Any = None
        """Answers that the task of the handler has still to send."""


Over = Callable[[Delivery, Any, Exception | None], None]
"""Called once for each delivery: with the result of the handler, or the error."""


class Communicator:
    """``start`` runs the handler of a delivery and calls ``ended`` later, never before it returned."""

    def __init__(self, start: Callable[[Delivery], None], now: Callable[[], float]) -> None:
        self._start = start
        self._now = now
        self._under_way: dict[Delivery, None] = {}
        self._ready: dict[Resident, None] = {}
        """Objects that have a free place and a waiting delivery."""
        self._counted = 0
        self._nested = 0
        self.delivered = 0
        self.refused = 0
        self.reported = 0

    def deliver(self, target: Resident, message: Said, over: Over) -> None:
        """Let an object, or an object that preempts it, handle a message."""
        self.delivered += 1
        steps = [(target, False)] if target.preempted_by is None else target.path()
        self._step(Delivery(steps, message, over))

    def tell_quickly(self, target: Resident, message: Kqml) -> bool:
        """Let a quick handler take a message that wants no answer; false if there is none, and nothing was done. An
        exception of the handler is raised here."""
        handler = target.quick(message)
        if handler is None or self._nested >= NESTED_MAX:
            return False
        self.delivered += 1
        self._nested += 1
        try:
            handler.call(message)
        finally:
            self._nested -= 1
        return True

    def run(self, resident: Resident, handler: Handler, message: Any, over: Over) -> None:
        """Let a handler run for an object, as with a message to it; no object preempts that."""
        self.delivered += 1
        delivery = Delivery([(resident, False)], message, over)
        delivery.handler = handler
        self._place(delivery, handler)

    def ended(self, delivery: Delivery, result: Any = None, error: Exception | None = None) -> None:
        """The handler of a delivery that was started has returned or raised."""
        del self._under_way[delivery]
        resident = delivery.resident
        resident.running -= 1
        if not delivery.slow:
            self._counted -= 1
        if resident.waiting:
            self._ready[resident] = None
        self._fill()
        self._after(delivery, result, error)

    def slow(self) -> list[Delivery]:
        """Deliveries that have just become slow; their places are given to others."""
        until = self._now() - SLOW_S
        found = []
        for delivery in self._under_way:
            if delivery.started > until:
                break  # deliveries are in the order in which they began
            if not delivery.slow:
                delivery.slow = True
                self._counted -= 1
                found.append(delivery)
        self.reported += len(found)
        self._fill()
        return found

    @property
    def running(self) -> int:
        return len(self._under_way)

    def _step(self, delivery: Delivery) -> None:
        resident = delivery.resident = delivery.steps[delivery.at][0]
        handler, delivery.said = resident.handler(delivery.message)
        if handler is None:
            self.refused += 1
            delivery.over(delivery, None, NoObject(_nobody(resident, delivery.message)))
            return
        delivery.handler = handler
        self._place(delivery, handler)

    def _place(self, delivery: Delivery, handler: Handler) -> None:
        """Begin, or wait for a place."""
        resident = delivery.resident
        if handler.quick and self._nested < NESTED_MAX:
            self._nested += 1
            try:
                result = handler.call(delivery.said)
            except Exception as error:  # noqa: BLE001 - it is the sender's to handle
                self._after(delivery, None, error)
            else:
                self._after(delivery, result, None)
            finally:
                self._nested -= 1
        elif resident.running < OBJECT_TASKS_MAX and self._counted < COMMUNICATOR_TASKS_MAX and not resident.waiting:
            self._begin(delivery)
        elif len(resident.waiting) >= OBJECT_WAITING_MAX:
            self.refused += 1
            text = f"{OBJECT_WAITING_MAX} messages wait for {resident!r} already: send it fewer at a time"
            delivery.over(delivery, None, Overflow(text))
        else:
            resident.waiting.append(delivery)
            if resident.running < OBJECT_TASKS_MAX:
                self._ready[resident] = None

    def _begin(self, delivery: Delivery) -> None:
        delivery.resident.running += 1
        delivery.slow = False
        delivery.started = self._now()
        self._counted += 1
        self._under_way[delivery] = None
        self._start(delivery)

    def _fill(self) -> None:
        """Give free places to waiting deliveries, objects in turn."""
        while self._ready and self._counted < COMMUNICATOR_TASKS_MAX:
            resident = next(iter(self._ready))
            del self._ready[resident]
            if resident.waiting and resident.running < OBJECT_TASKS_MAX:
                self._begin(resident.waiting.popleft())
                if resident.waiting and resident.running < OBJECT_TASKS_MAX:
                    self._ready[resident] = None

    def _after(self, delivery: Delivery, result: Any, error: Exception | None) -> None:
        """The next step of a delivery, or its end."""
        looks_first = delivery.steps[delivery.at][1]
        if error is not None or not looks_first or result is KEEP:
            delivery.over(delivery, None if result is KEEP else result, error)
            return
        if isinstance(result, Kqml) and isinstance(delivery.message, Kqml):
            kept = {**delivery.message.parameters, **result.parameters}
            delivery.message = Kqml(result.performative, kept)
        elif isinstance(result, ObjectMessage) and isinstance(delivery.message, ObjectMessage):
            was = delivery.message
            delivery.message = ObjectMessage(
                result.body, was.sender, was.receiver, was.reply_with, was.in_reply_to, was.bridges
            )
        delivery.at += 1
        self._step(delivery)

    def validate(self) -> None:
        assert self._counted == sum(not delivery.slow for delivery in self._under_way)
        assert 0 <= self._counted <= COMMUNICATOR_TASKS_MAX
        for delivery in self._under_way:
            assert 0 < delivery.resident.running <= OBJECT_TASKS_MAX
        for resident in self._ready:
            assert len(resident.waiting) <= OBJECT_WAITING_MAX
        assert not self._nested, "asked between two stimuli"


def _nobody(resident: Resident, message: Said) -> str:
    if isinstance(message, Kqml):
        protocol = message.get("subprotocol")
        about = f" of subprotocol {str(protocol)!r}" if protocol is not None else ""
        return f"{resident!r} handles no {message.performative!r}{about}: give it a method with @handles, or say()"
    return f"{resident!r} takes no {type(message.body).__name__}: give it a method with @handles, or say()"
