"""One protocol a file. A layer knows the stack's vocabulary and nothing of its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..stack.layer import Layer
from ..stack.trace import Trace
from .causal import Causal
from .compress import Compress
from .detector import Detector
from .faults import Corrupt, Delay, Drop, Duplicate, Reorder
from .fragment import Fragment
from .inquiry import Inquiry
from .introductions import Introductions
from .membership import Membership
from .presence import Presence
from .reliable import Reliable
from .semantic import Semantic
from .spread import Crowd, Spread
from .total import Total
from .transport import Transport
from .window import Window


def _secure(**options: Any) -> Layer:
    """Loaded when a stack names it: it brings cryptography, which takes its time."""
    from .secure import Secure

    return Secure(**options)


CATALOGUE: dict[str, Callable[..., Layer]] = {
    layer.name: layer
    for layer in (
        Transport,
        Fragment,
        Compress,
        Introductions,
        Inquiry,
        Presence,
        Window,
        Detector,
        Spread,
        Crowd,
        Reliable,
        Membership,
        Causal,
        Semantic,
        Total,
        Trace,
        Drop,
        Duplicate,
        Delay,
        Reorder,
        Corrupt,
    )
} | {"secure": _secure}
"""Every layer that a specification may name; add your own by its name."""
