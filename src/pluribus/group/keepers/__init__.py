"""The keepers' log: a durable ``LogPort``. Read ``keeper`` first, then ``follower``, ``candidate``, ``leader``."""

from .keeper import Keeper
from .seat import Settings
from .words import Courier

__all__ = ["Courier", "Keeper", "Settings"]
