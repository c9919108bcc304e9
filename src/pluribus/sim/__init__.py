"""The simulator: a second runtime with virtual time, a seeded network, faults and checkers. It is public: test your own
application in it."""

from . import checkers
from .machinery.chaos import torment
from .machinery.history import Happening, History
from .machinery.network import Link, Medium
from .machinery.observer import Observer
from .machinery.world import World, run, world
from .scenarios import Scenario

__all__ = [
    "Happening",
    "History",
    "Link",
    "Medium",
    "Observer",
    "Scenario",
    "World",
    "checkers",
    "run",
    "torment",
    "world",
]
