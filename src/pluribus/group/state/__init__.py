"""State transfer: who joins a group gets its state, exactly at a point of what it delivers, while the group goes on."""

from .serving import State
from .transfer import Transfer
from .words import WORDS

__all__ = ["WORDS", "State", "Transfer"]
