"""State transfer: a new member of a group gets its state, exactly at one point between messages, while the group goes
on."""

from .serving import State
from .transfer import Transfer
from .words import WORDS

__all__ = ["WORDS", "State", "Transfer"]
