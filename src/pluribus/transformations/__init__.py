"""Message transformation: a body in one format becomes a body in another. Source: the chapter on indirect
communication, section 6.4.1, "message transformation".

``chain.py`` reads ``csv > clean > json`` and applies it; ``steps.py`` says what a format is; ``documents.py`` (JSON,
MessagePack, plain data), ``markup.py`` (XML), ``rows.py`` (CSV), ``records.py`` (binary structs) and ``texts.py`` (text
encodings) are the formats; ``registry.py`` has the user's own functions. Nothing here does input or output: chains are
run in ``runtime/styles/transformations/`` and in the sender of a queue.
"""

from .chain import Chain
from .registry import transformation

__all__ = ["Chain", "transformation"]
