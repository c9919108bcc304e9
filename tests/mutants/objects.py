"""Objects with one mistake each, such as a programmer makes. Campaigns of the scenario ``objects`` must find them."""

from pluribus.objects import queued
from pluribus.objects.communicator import Communicator
from pluribus.objects.directory import Directory
from pluribus.objects.messages import answers_token
from pluribus.objects.queued import NEW, CallBegan, Inbox
from pluribus.objects.replies import Replies
from pluribus.runtime.styles.objects import queue as queue_of

ALL_OF, DELIVER, LOOK = Directory.all_of, Communicator.deliver, Inbox.look


class OneOfAll:
    """Hands a broadcast to one object of each process."""

    of = Directory

    def all_of(self, name):
        return ALL_OF(self, name)[:1]


class WrongAsker:
    """Looks at the token of an answer, and not at the object that it is for."""

    of = Replies

    def answered(self, receiver, message):
        token = answers_token(message)
        for key, awaited in list(self._awaited.items()):
            if token and key[1] == token:
                del self._awaited[key]
                awaited.tell(message)
                return True
        return False


class TargetFirst:
    """Lets the target have a message, and its preemptive object, too."""

    of = Communicator

    def deliver(self, target, message, over):
        guard, target.preempted_by = target.preempted_by, None
        try:
            DELIVER(self, target, message, over)
        finally:
            target.preempted_by = guard
        if guard is not None:
            DELIVER(self, guard, message, lambda *_: None)


class DoneAgain:
    """Does not remember what it did, only what it is doing."""

    of = Inbox

    def look(self, queue, number):
        how, outcome = LOOK(self, queue, number)
        if how == queued.OVER and (queue, number) not in self.__dict__.setdefault("told", set()):
            self.told.add((queue, number))
            return how, outcome
        return (NEW, None) if how == queued.OVER else (how, outcome)


class BegunAgain(Inbox):
    """Takes a call that had begun when the process ended for one that had not."""

    replaces = (queue_of, "Inbox")

    def __init__(self, site, rows=(), lost=None):
        super().__init__(site, [row for row in rows if not isinstance(row, CallBegan)], lost)


FOUND = {
    OneOfAll: (0, "handled the broadcast"),
    WrongAsker: (1, "was answered"),
    TargetFirst: (0, "before its preemptive object"),
    DoneAgain: (4, "was done 2 times"),
    BegunAgain: (0, "was done 2 times"),
}
"""By mutant: the seed in which it is found, and words of the sentence that says so."""
