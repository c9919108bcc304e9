"""Semantic order: a message is delivered after the message that it answers. ``layer`` is the protocol, the other files
are its parts."""

from .layer import Semantic

__all__ = ["Semantic"]
