"""Queues with one mistake each, such as a programmer makes. Campaigns must find them."""

import asyncio
from contextlib import suppress

import msgspec

import pluribus.queues.machine as machine
import pluribus.queues.messages as messages
import pluribus.sim.scenarios.queues as scenario
from pluribus.core.errors import PluribusError
from pluribus.group.host.demand import Demands
from pluribus.queues import words
from pluribus.queues.keys import KeyLines
from pluribus.queues.machine import Queue
from pluribus.queues.messages import MessageTable
from pluribus.queues.segments import Segment, Segments


class Hasty(scenario.Play):
    """Tells a consumer that its message is settled before that is committed."""

    replaces = (scenario, "Play")

    async def settle(self, command):
        def submit(life, answered):
            hosted = life.hosting.named("orders")
            if hosted is not None:
                life.keeper.submit_many([words.encode(command)], answered, hosted.number)

        async def once():
            with suppress(PluribusError):
                await self.ask(submit)

        self.settling = asyncio.ensure_future(once())
        return words.Outcome(words.DONE)


class Forgetful:
    """Forgets the lease: what a consumer held stays with it when its owner is gone."""

    of = Queue

    def expire(self, owners):
        self.parts.touch("totals")


_attach = Queue._attach


class Generous:
    """Hands what a consumer holds to others when it attaches again, and leaves it with it."""

    of = Queue

    def _attach(self, command):
        outcome = _attach(self, command)
        if outcome.status == words.DONE:
            for thing, _ in outcome.things:
                segment, at = self.messages.segments.find(thing)
                self.parts.touch(segment.part)
                segment.held &= ~(1 << at)
                self.messages.held -= 1
                self.messages.again(segment, at)
        return outcome


class Punctual(Segment):
    """Loses the delay of messages when it is restored from a snapshot."""

    replaces = (machine, "Segment")

    @staticmethod
    def restored(saved):
        found = Segment.restored(saved)
        found.due = None
        return found


class Open(KeyLines):
    """Hands out a message of a key while another of the key is held."""

    replaces = (messages, "KeyLines")

    def first(self, key):
        line = self._lines.get(key)
        if line is None:
            return -1
        return next((thing for thing in line.things if thing != line.busy), -1)

    def block(self, key, thing):
        self._lines[key].busy = thing


class Stingy(Demands):
    """Does not give the credit back when a message is acknowledged."""

    replaces = (machine, "Demands")

    def settle_many(self, number, epoch, first, count, delivery=0):
        consumer = self.consumers.get(number)
        before = 0 if consumer is None else consumer.turn
        things = super().settle_many(number, epoch, first, count, delivery)
        if consumer is not None and things and not before and consumer.turn:
            self._leave_line(consumer)
        return things


class Repeating(MessageTable):
    """Takes a message that outlived its time back into the queue when its consumer gives it back."""

    replaces = (machine, "MessageTable")

    def outlived(self, segment, at):
        self.totals.expired += 1
        self.again(segment, at)


class Upside(Segments):
    """Hands out the lowest priority first."""

    replaces = (messages, "Segments")

    def first_ready(self):
        found = None
        for priority in range(words.PRIORITIES):
            before, self.ready = self.ready, [count * (at == priority) for at, count in enumerate(self.ready)]
            found = found or super().first_ready()
            self.ready = before
        return found


_pause = Queue._pause


class Belated:
    """A copy of a command to pause that comes late pauses the queue again."""

    of = Queue

    def _pause(self, command):
        return _pause(self, words.Pause(command.paused, self.messages.totals.changes))


_settle = Queue._settle


class Credulous:
    """Gives a consumer what a search found for it, without another look."""

    of = Queue

    def _offer(self, command):
        consumer = self.demands.consumers.get(command.consumer)
        if consumer is None or consumer.epoch != command.epoch:
            return words.Outcome(words.ENDED)
        for thing in command.things:
            found = self.messages.segments.find(thing)
            if found is not None and consumer.turn:
                self._assign(consumer, *found)
        return words.Outcome(words.DONE)


class Trusting:
    """Takes the settlement of a delivery that ended for one of the delivery that the consumer holds now."""

    of = Queue

    def _settle(self, command):
        return _settle(self, msgspec.structs.replace(command, deliveries=[]))


FOUND = {
    # The seed that finds the mutant, and what it finds.
    Hasty: (0, "acknowledged again"),
    Forgetful: (3, "clients still wait"),
    Generous: (0, "AssertionError"),
    Punctual: (3, "was set back"),
    Open: (0, "AssertionError"),
    Stingy: (0, "AssertionError"),
    Repeating: (0, "clients still wait"),
    Credulous: (1, "clients still wait"),
    Upside: (0, "which is before it"),
    Belated: (20_000_210, "clients still wait"),
    Trusting: (30_000_925, "was delivered again"),
}
