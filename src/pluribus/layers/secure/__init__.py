"""Sealed frames and proven members. ``layer`` is the protocol, the rest its parts."""

from .layer import Secure

__all__ = ["Secure"]
