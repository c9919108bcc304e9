"""Semantic order: an answer after what it answers. ``layer`` is the protocol, the rest its parts."""

from .layer import Semantic

__all__ = ["Semantic"]
