"""Each synchronous face has the methods of its asynchronous one, with the same parameters, defaults and types.

So an editor completes them, ``mypy`` finds a misspelt one, and a program changes its import and no more. ``FACES``
names every pair; ``FOR_EXTENDERS`` has what programs do not call, ``OF_ITS_OWN`` what only the synchronous face has,
and ``OTHER_TYPES`` the few places where the two must differ.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import get_overloads

import pytest

import pluribus
from pluribus import sync
from pluribus.runtime.clients import doorman
from pluribus.runtime.clients import sync as sync_doors
from pluribus.runtime.group import cache as real_cache
from pluribus.runtime.group import notifications, relay, replica
from pluribus.runtime.group import objects as real_objects
from pluribus.runtime.keepers import durable_replica, keepers
from pluribus.runtime.keepers import sync as sync_keepers
from pluribus.runtime.styles.access import access
from pluribus.runtime.styles.access import sync as sync_access
from pluribus.runtime.styles.conversations import application, lobby, room
from pluribus.runtime.styles.conversations import sync as sync_conversations
from pluribus.runtime.styles.objects import communicator, directory, handles, networks, shadows
from pluribus.runtime.styles.objects import queue as call_queue
from pluribus.runtime.styles.objects import sync as sync_objects
from pluribus.runtime.styles.queues import message, queue, receiving
from pluribus.runtime.styles.queues import sync as sync_queues
from pluribus.runtime.styles.slots import communications, hosts, slot
from pluribus.runtime.styles.slots import sync as sync_slots
from pluribus.runtime.styles.spaces import space
from pluribus.runtime.styles.spaces import sync as sync_spaces
from pluribus.runtime.styles.style import Style
from pluribus.runtime.styles.topics import durable, follower, observed, patterns, shared, subscription
from pluribus.runtime.styles.transactions import sync as sync_transactions
from pluribus.runtime.styles.transactions import transaction
from pluribus.runtime.styles.transformations import sync as sync_transformations
from pluribus.runtime.styles.transformations import transformer
from pluribus.runtime.sync import bus as sync_bus
from pluribus.runtime.sync import durable as sync_durable
from pluribus.runtime.sync import face as sync_face
from pluribus.runtime.sync import groups as sync_groups
from pluribus.runtime.sync import subscriptions as sync_subscriptions
from pluribus.runtime.sync import topics as sync_topics

FACES: dict[type, type] = {
    sync_bus.Bus: pluribus.Bus,
    sync_groups.Group: pluribus.Group,
    sync_groups.Cache: real_cache.Cache,
    sync_groups.Notifications: notifications.Notifications,
    sync_groups.Relayed: relay.Relayed,
    sync_groups.Replica: replica.Replica,
    sync_groups.DurableReplica: durable_replica.DurableReplica,
    sync_subscriptions.Subscription: subscription.Subscription,
    sync_subscriptions.DurableSubscription: follower.DurableSubscription,
    sync_subscriptions.SharedSubscription: shared.SharedSubscription,
    sync_subscriptions.Mailbox: follower.Mailbox,
    sync_subscriptions.Matches: patterns.Matches,
    sync_durable.Durable: durable.Durable,
    sync_durable.Log: durable.Log,
    sync_keepers.SyncKeepers: keepers.Keepers,
    sync_doors.SyncDoorman: doorman.Doorman,
    sync_access.SyncAccess: access.Access,
    sync_conversations.SyncRoom: room.Room,
    sync_conversations.SyncConversations: lobby.Conversations,
    sync_objects.SyncShadow: shadows.Shadow,
    sync_objects.SyncDirectory: directory.ObjectDirectory,
    sync_objects.SyncCommunicator: communicator.ObjectCommunicator,
    sync_objects.SyncWaiting: communicator.Waiting,
    sync_objects.SyncUpdates: communicator.Updates,
    sync_objects.SyncWatching: communicator.Watching,
    sync_objects.SyncNetwork: networks.VirtualNetwork,
    sync_objects.SyncQueue: call_queue.CallQueue,
    sync_queues.SyncMessageQueue: queue.MessageQueue,
    sync_queues.SyncMessages: receiving.Messages,
    sync_queues.SyncMessage: message.QueueMessage,
    sync_slots.SyncEnrolledSlot: slot.EnrolledSlot,
    sync_slots.SyncSlotPort: slot.SlotPort,
    sync_slots.SyncSlotMessage: slot.SlotMessage,
    sync_slots.SyncSent: slot.Sent,
    sync_slots.SyncSlotsHost: hosts.SlotsHost,
    sync_slots.SyncCommunicationsManager: communications.CommunicationsManager,
    sync_spaces.SyncSpace: space.Space,
    sync_spaces.SyncLease: space.Lease,
    sync_spaces.SyncRegistration: space.Registration,
    sync_transactions.SyncTransaction: transaction.Transaction,
    sync_transformations.SyncTransformer: transformer.Transformer,
}

NO_FACES = {
    *(sync_face.StandIn, sync_face.Closing, sync_face.OwnStyle, sync_topics.TopicsSync, sync_subscriptions.Reader),
    sync_slots.SyncTool,
}
"""What faces are made of, and a process of ``asyncio``."""

PROXIES: dict[type, type] = {
    sync_conversations.SyncGroupManager: application.GroupManager,
    sync_groups.Objects: real_objects.Objects,
    sync_objects.SyncHandle: handles.Handle,
    sync_subscriptions.Observed: observed.Observed,
}
"""Methods of these are those of the program's own objects, or programs derive classes from them; only the others are
compared."""

FOR_EXTENDERS: dict[type, set[str]] = {
    pluribus.Bus: {
        "abandon",
        "answer",
        "clock",
        "eager",
        "guard",
        "guest",
        "keeping",
        "kept",
        "open",
        "pubsub",
        "store",
    },
    pluribus.Group: {"abandon", "has_unread", "joined", "restored", "replied_by", "opening"},
    relay.Relayed: {"abandon", "drained"},
    replica.Replica: {"abandon", "opening", "ready", "validate"},
    durable_replica.DurableReplica: {"abandon", "open", "validate"},
    subscription.Subscription: {
        *(
            "arrived",
            "end",
            "open",
            "open_quietly",
            "backlog",
            "given",
            "hand_over",
        ),
        *("interest", "order", "ready", "retain", "shared", "deadline", "near", "where"),
    },
    follower.DurableSubscription: {"abandon", "not_read", "open"},
    shared.SharedSubscription: {"abandon", "not_read", "open"},
    follower.Mailbox: {"abandon", "not_read", "open"},
    patterns.Matches: {"open", "matcher", "subscription"},
    durable.Durable: {"abandon", "ask", "close", "closed", "do", "drain", "forgotten", "new_number", "wall"},
    doorman.Doorman: {"abandon", "start"},
    room.Room: {"abandon", "changed", "validate"},
    lobby.Conversations: {"close", "forget", "group", "issued", "number", "numbers_anew", "open", "requests", "bus"}
    | {name for name in dir(Style) if not name.startswith("_")},
    communicator.ObjectCommunicator: {"check_multicast"},
    communicator.Waiting: {"put"},
    communicator.Updates: {"aclose", "open", "put"},
    communicator.Watching: {"put"},
    call_queue.CallQueue: {"call", "changed", "close", "open_in", "validate"},
    queue.MessageQueue: {
        *("abandon", "chain", "configured", "drain", "ends_with_it", "forget_chain", "held_by", "kept", "line_name"),
        *("pass_on", "stage"),
    },
    message.QueueMessage: {"assignment", "of"},
    slot.EnrolledSlot: {"abandon", "change", "leave"},
    hosts.SlotsHost: {"programs"},
    space.Space: {"abandon", "validate"},
    transaction.Transaction: {"abandon", "give_up", "leave", "pass_on"},
    transformer.Transformer: {"abandon"},
}
"""What programs do not call."""

OF_ITS_OWN: dict[type, set[str]] = {
    sync_queues.SyncMessageQueue: {"receiving"},
}
"""``async with q.receive()`` awaits, or enters; one function cannot do both without ``await``."""

OTHER_TYPES: dict[tuple[type, str], str] = {
    (sync_queues.SyncMessageQueue, "receive"): "SyncMessage | None",
    (sync_queues.SyncMessageQueue, "call"): "Callable[[], None]",
    (sync_bus.Bus, "events"): "Iterator[Event]",
    (sync_bus.Bus, "style"): "OwnStyle",
    (sync_bus.Bus, "style(kind)"): "type[Style]",
    (sync_groups.Group, "send_many(bodies)"): "Iterable[Any]",
}
"""There is nothing to await, and no task to cancel; a list is made anyway, so anything may be iterated."""

ALIKE = {
    **{real.__name__: face.__name__ for face, real in FACES.items()},
    "AsyncIterator": "Iterator",
    "Calling": "Objects",
    "Acts": "SyncTransaction",
    "Listener": "Callable[[Event], object]",
    "ObjectsFace": "Bus",
    "QueueMessage[Any]": "SyncMessage",
    "Receiver": "SyncShadow | str",
    "Handler": "Callable[[SyncMessage], object]",
    "Handle": "SyncHandle",
    "asyncio.subprocess.Process": "SyncTool",
}
"""By the word of the asynchronous face, the word of the synchronous one."""


@cache
def own_attributes(real: type) -> set[str]:
    """Public names that ``__init__`` gives to every object."""
    names: set[str] = set(getattr(real, "__annotations__", {}))
    if "__init__" in vars(real) and inspect.isfunction(real.__init__):
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(real.__init__)))):
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names |= {
                one.attr
                for one in targets
                if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
            }
    return names


def public(real: type) -> set[str]:
    names = set(dir(real)).union(*(own_attributes(one) for one in real.__mro__))
    return {name for name in names if not name.startswith("_")} - FOR_EXTENDERS.get(real, set())


def translated(given: str | type) -> str:
    """What the synchronous face says for this type."""
    annotation = given if isinstance(given, str) else given.__name__
    words = "|".join(sorted(map(re.escape, ALIKE), key=len, reverse=True))
    text = re.sub(rf"(?<![\w.])({words})(?!\w)", lambda found: ALIKE[found[1]], annotation)
    return ast.unparse(ast.parse(text.replace("real_", ""), mode="eval"))


PAIRS = [pytest.param(face, real, id=face.__name__) for face, real in (FACES | PROXIES).items()]


def test_every_face_is_named_here():
    def below(face: type) -> set[type]:
        return {face}.union(*(below(one) for one in face.__subclasses__()))

    assert below(sync_face.StandIn) - NO_FACES == set(FACES)


@pytest.mark.parametrize(("face", "real"), PAIRS)
def test_a_face_has_the_names_of_its_object(face: type, real: type):
    names, here = public(real), {name for name in dir(face) if not name.startswith("_")}
    assert not names - here, "these are missing"
    more = here - names - OF_ITS_OWN.get(face, set())
    assert more <= {"close", "closed"}, "these the object does not have"
    assert FOR_EXTENDERS.get(real, set()) <= set(dir(real)).union(*(own_attributes(one) for one in real.__mro__))


def compared(face: type, real: type, name: str) -> Iterator[tuple[str, object, object]]:
    """By place: what the synchronous face says, and what it should say."""
    method = inspect.getattr_static(real, name, None)
    here = inspect.getattr_static(face, name)
    if isinstance(method, property):
        yield name, type(here), property
        if isinstance(here, property):
            there = method.fget.__annotations__["return"]
            yield name, here.fget.__annotations__["return"], OTHER_TYPES.get((face, name), translated(there))
    elif inspect.isfunction(method):
        yield f"{name}: overloads", *[len(get_overloads(one)) for one in (here, method)]
        for number, (our, their) in enumerate(zip(get_overloads(here), get_overloads(method), strict=False)):
            yield from signed(face, f"{name}, overload {number}", our, their)
        yield from signed(face, name, here, method)


def signed(face: type, name: str, our: Callable, their: Callable) -> Iterator[tuple[str, object, object]]:
    ours, theirs = inspect.signature(our), inspect.signature(their)
    shapes = [[(one.name, one.kind, one.default) for one in of.parameters.values()] for of in (ours, theirs)]
    yield f"{name}: parameters", *shapes
    for one in theirs.parameters.values():
        if one.name in ours.parameters and one.name != "self" and one.annotation is not one.empty:
            place = f"{name}({one.name})"
            wanted = OTHER_TYPES.get((face, place), translated(one.annotation))
            yield place, translated(ours.parameters[one.name].annotation), wanted
    result = theirs.return_annotation
    yield name, ours.return_annotation, OTHER_TYPES.get((face, name), translated(result))


@pytest.mark.parametrize(("face", "real"), PAIRS)
def test_a_method_has_the_parameters_defaults_and_types_of_the_asynchronous_one(face: type, real: type):
    complaints = [
        f"{place} is {here!r} and should be {wanted!r}"
        for name in sorted(public(real))
        for place, here, wanted in compared(face, real, name)
        if here != wanted
    ]
    assert not complaints, "\n".join(complaints)


def test_what_pluribus_names_has_its_name_here():
    """``pluribus.sync.MessageQueue`` is the face of ``pluribus.MessageQueue``, for annotations."""
    for face, real in (FACES | PROXIES).items():
        assert real.__name__ in sync.__all__ and getattr(sync, real.__name__) is face, real.__name__
    assert sorted(sync.__all__) == sync.__all__ and all(hasattr(sync, name) for name in sync.__all__)


def test_what_a_method_returns_can_be_named():
    """Each class of the runtime that a public method or property returns is in ``pluribus`` or ``pluribus.types``."""
    named = {*pluribus.__all__, *pluribus.types.__all__}
    missing = {
        f"{word}, of {real.__name__}.{name}"
        for real in FACES.values()
        for name in public(real)
        for word in re.findall(r"\w+", result_of(real, name))
        if word in runtime_classes() - named
    }
    assert not missing, "\n".join(sorted(missing))
    assert not {real.__name__ for real in (*FACES.values(), *PROXIES.values())} - named, "programs hold these"
    assert len(pluribus.types.__all__) > 30 and sorted(pluribus.types.__all__) == pluribus.types.__all__
    assert all(hasattr(pluribus.types, name) for name in pluribus.types.__all__)


def result_of(real: type, name: str) -> str:
    """What a method, or a property, says that it returns."""
    method = inspect.getattr_static(real, name, None)
    function = method.fget if isinstance(method, property) else method
    return str(getattr(function, "__annotations__", {}).get("return", ""))


@cache
def runtime_classes() -> set[str]:
    """The names of all public classes of the asynchronous runtime; each has one meaning (``test_house.py``)."""
    found = set()
    for path in sorted(Path(pluribus.__file__).parent.joinpath("runtime").rglob("*.py")):
        found |= {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)}
    return {name for name in found if not name.startswith(("_", "Sync"))}
