"""The simulator: a second runtime with virtual time, a seeded network, faults and checkers. Public: test your own
application in it."""

from . import checkers
from .chaos import torment
from .history import Happening, History
from .network import Link, Medium
from .observer import Observer
from .scenarios import Scenario
from .world import World, run, world

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
