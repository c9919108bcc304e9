"""The simulator: a second runtime with virtual time, a seeded network, faults and checkers. Public: test your own
application in it."""

from .network import Link
from .world import World, run, world

__all__ = ["Link", "World", "run", "world"]
