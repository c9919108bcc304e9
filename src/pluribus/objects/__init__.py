"""Objects that exchange messages: any Python object of a process can send and receive messages, answer questions and be
called.

Source: *Communication in Bond*. The words of this room:

- a *resident* is an object of this process that has an id and, perhaps, aliases (``residents``);
- the *directory* knows the residents by id, alias and interface (``directory``);
- a *shadow* stands for an object, here or elsewhere (``shadows``);
- the *communicator* hands each message to its receiver, a task a message (``communicator``);
- a *preemptive* object gets the messages of another one, in its place or before it;
- a *subprotocol* is a set of messages that belong together, handled by a class of its own (``subprotocols``);
- a *virtual network* is a group that its sender makes of shadows (``networks``);
- an *object message* carries a typed object instead of KQML (``graphs``);
- a *handle* stands for all objects with an interface, those of a group, or one (``interfaces``);
- a *queued call* waits on disk until its object is there (``queued``).

Everything here is pure: ``runtime/styles/objects`` runs handlers, sends and reads the clock.
"""

from ..wire.kqml import Kqml, Quoted, Word, kqml, parse
from .handlers import handles
from .interfaces import Export, export
from .messages import KEEP, LATER, ObjectMessage
from .subprotocols import Subprotocol

__all__ = [
    "KEEP",
    "LATER",
    "Export",
    "Kqml",
    "ObjectMessage",
    "Quoted",
    "Subprotocol",
    "Word",
    "export",
    "handles",
    "kqml",
    "parse",
]
