"""To write a style of communication of one's own: what ``docs/design/styles.md`` uses."""

from .group.host import Ground, Machine
from .runtime.keepers.store_writer import StoreWriter
from .runtime.machines.kinds import machine_of_style
from .runtime.machines.line import MachineLine
from .runtime.machines.machines import Machines
from .runtime.styles import answering
from .runtime.styles.style import Asker, Style
from .wire.asking import Words

__all__ = [
    "Asker",
    "Ground",
    "Machine",
    "MachineLine",
    "Machines",
    "StoreWriter",
    "Style",
    "Words",
    "answering",
    "machine_of_style",
]
