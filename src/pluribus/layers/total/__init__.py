"""Total and safe order; see ``layer``."""

from .layer import Total

__all__ = ["Total"]
