"""Reliability, flow control and stability by one window. ``layer`` is the protocol, the other files are its parts."""

from .layer import Reliable

__all__ = ["Reliable"]
