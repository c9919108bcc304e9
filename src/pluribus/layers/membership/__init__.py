"""Agreed views: a member has one view for each bus, and groups inside it. ``layer`` is the protocol, the other files
are its parts."""

from .layer import Membership

__all__ = ["Membership"]
