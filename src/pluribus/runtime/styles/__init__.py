"""The styles of communication on a bus, a folder each. ``style.py`` says what a style is.
``Faces`` has the methods of all of them.

To add one: write ``runtime/styles/NAME/face.py`` with a class of typed methods and a ``Style``, and add that class to
the bases of ``Faces``. Nothing else of the bus changes.
"""

from __future__ import annotations

from .conversations.face import ConversationsFace
from .objects.face import ObjectsFace
from .queues.face import QueuesFace
from .slots.face import SlotsFace


class Faces(ConversationsFace, ObjectsFace, QueuesFace, SlotsFace):
    """What the styles add to a bus."""
