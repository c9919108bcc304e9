"""The styles of communication on a bus, a folder each. ``style.py`` says what a style is, ``docs/design/styles.md`` how
to write one. ``Faces`` has the methods of all styles, ``ANSWERED`` says which style answers which questions.

To add one: write ``runtime/styles/NAME/face.py`` with a class of typed methods and a ``Style``, and add that class to
the bases of ``Faces``; if it answers questions, add it to ``ANSWERED``. Its methods are written down once more without
``await``, in ``runtime/sync/bus.py`` and ``NAME/sync.py``. Nothing else of the bus changes.
"""

from __future__ import annotations

from importlib import import_module

from ...wire import asking
from ...wire.asking import Words
from ..keepers.face import KeepersFace
from .access.face import AccessFace
from .conversations.face import ConversationsFace
from .objects.face import ObjectsFace
from .queues.face import QueuesFace
from .slots.face import SlotsFace
from .spaces.face import SpacesFace
from .style import Style
from .tables.face import TablesFace
from .topics.face import TopicsFace
from .transactions.face import TransactionsFace
from .transformations.face import TransformationsFace


class Faces(
    TopicsFace,
    KeepersFace,
    AccessFace,
    ConversationsFace,
    ObjectsFace,
    QueuesFace,
    SlotsFace,
    SpacesFace,
    TransactionsFace,
    TransformationsFace,
    TablesFace,
):
    """The methods that the styles add to a bus."""

    def _begin(self) -> None:
        """Set up the faces on a new bus, before any question comes."""
        self._publish_later()


ANSWERED: dict[str, str | type[Style]] = {
    "access": "pluribus.runtime.styles.access.access:AccessStyle",
    "guests": "pluribus.runtime.clients.guests:Guests",
    "groups": "pluribus.runtime.group.outsiders:Outsiders",
    "slots": "pluribus.runtime.styles.slots.buses:Slots",
    "spaces": "pluribus.runtime.styles.spaces.spaces:Spaces",
    "topics": "pluribus.runtime.styles.topics.style:TopicsStyle",
    "durable-topics": "pluribus.runtime.keepers.keeping:Keeping",
    "machines": "pluribus.runtime.keepers.keeping:Keeping",
    "keepers": "pluribus.runtime.keepers.keeping:Keeping",
}
"""By vocabulary: the style that answers its questions; loaded when the first question comes."""


def answering(words: Words, style: type[Style]) -> None:
    """Register a ``Style`` that answers the questions of a vocabulary, on every bus of this process; for styles of your
    own."""
    ANSWERED[words.style] = style


def style_at(place: str | type[Style]) -> type[Style]:
    """The class that ``module:Class`` names."""
    if not isinstance(place, str):
        return place
    module, _, name = place.partition(":")
    found = getattr(import_module(module), name)
    assert isinstance(found, type) and issubclass(found, Style)
    return found


def _load(style: str) -> None:
    if style in ANSWERED:
        style_at(ANSWERED[style])


asking.loading.append(_load)
