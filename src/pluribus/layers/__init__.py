"""One protocol a file. A layer knows the stack's vocabulary and nothing of its neighbours."""

from __future__ import annotations

from collections.abc import Callable

from ..stack.layer import Layer
from ..stack.trace import Trace
from .detector import Detector
from .faults import Corrupt, Delay, Drop, Duplicate, Reorder
from .membership import Membership
from .presence import Presence
from .reliable import Reliable
from .transport import Transport
from .window import Window

CATALOGUE: dict[str, Callable[..., Layer]] = {
    layer.name: layer
    for layer in (
        Transport,
        Presence,
        Window,
        Detector,
        Reliable,
        Membership,
        Trace,
        Drop,
        Duplicate,
        Delay,
        Reorder,
        Corrupt,
    )
}
"""Every layer that a specification may name; add your own by its name."""
