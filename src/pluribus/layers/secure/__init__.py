"""Sealed frames and proven members. ``layer`` is the protocol, the other files are its parts."""

from .layer import Secure

__all__ = ["Secure"]
