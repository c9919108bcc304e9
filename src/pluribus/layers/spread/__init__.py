"""How a frame for everybody gets to everybody: one interface, several ways; ``layer`` chooses among them."""

from .crowd import Crowd
from .layer import Spread

__all__ = ["Crowd", "Spread"]
