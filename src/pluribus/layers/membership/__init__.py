"""Agreed views: one heavy view a member and bus, groups on it. ``layer`` is the protocol, the rest its parts."""

from .layer import Membership

__all__ = ["Membership"]
