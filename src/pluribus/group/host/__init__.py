"""The log host: many named state machines on one log. ``host.py`` is where to start reading."""

from .host import Host
from .machine import Effects, Ground, Machine, Refusal

__all__ = ["Effects", "Ground", "Host", "Machine", "Refusal"]
