"""Reliability, flow control and stability: one window. ``layer`` is the protocol, the rest its parts."""

from .layer import Reliable

__all__ = ["Reliable"]
