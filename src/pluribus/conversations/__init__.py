"""Conversations: threaded talk between members that come and go, without a server. Source: M2MC, chapters 3 to 8.

``history`` is the forest of messages of one conversation, ``joining`` the protocol by which members learn of
conversations, join and leave them (GJLP), ``synchronising`` the one by which a member gets missed messages (MSP).
``words`` has the words of both, ``kept`` the form of a history in a store. All of it is pure: time is an argument.

A *person* is the name of a member (``connect(name=)``): it comes back, and is the same. A *member* is one incarnation
of a process, and messages are numbered by it, so that a restart never uses a number again.
"""

from .history import History, Node
from .joining import Joining
from .synchronising import Synchronising
from .words import Entry, GroupInfo

__all__ = ["Entry", "GroupInfo", "History", "Joining", "Node", "Synchronising"]
