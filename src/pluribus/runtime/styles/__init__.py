"""The styles of communication on a bus, a folder each. ``style.py`` says what a style is.
``Faces`` has the methods of all of them.

To add one: write ``runtime/styles/NAME/face.py`` with a class of typed methods and a ``Style``, and add that class to
the bases of ``Faces``. Nothing else of the bus changes.
"""

from __future__ import annotations

<<<<<<< HEAD
from .objects.face import ObjectsFace
from .slots.face import SlotsFace


class Faces(ObjectsFace, SlotsFace):
=======
from .conversations.face import ConversationsFace


class Faces(ConversationsFace):
>>>>>>> conversations
    """What the styles add to a bus."""
