"""Senders from outside: every member of the bus may send to an open group through any member of it."""

from .desk import RelayDesk as RelayDesk
from .member import Relay as Relay
from .outside import Outside as Outside
