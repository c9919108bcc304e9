"""What a client needs for what it asks about durable topics, where there is an access list (``docs/access.md``)."""

from __future__ import annotations

from collections.abc import Iterable

from ...group.host.rights import MachineRights
from ...wire.asking import MEMBERS_ONLY, Need
from . import commands
from .batch import head_of, is_batch, topic_of


def published(batches: Iterable[bytes]) -> set[Need]:
    """To publish these packed batches; ``MalformedFrame`` if one is none."""
    return {("topic", topic_of(packed, head_of(packed)).decode("utf-8", "replace"), "publish") for packed in batches}


def done(data: bytes) -> set[Need]:
    """To have one command done, or one batch appended; ``MalformedFrame`` if it is neither."""
    if is_batch(data):
        return published([data])
    command = commands.command_of(data)
    if isinstance(command, commands.Attach):
        read: set[Need] = {("topic", pattern, "subscribe") for pattern in command.patterns}
        return read | {("subscription", command.name, "use")}
    if isinstance(command, commands.Commit | commands.Detach):
        return {("subscription", command.name, "use")}
    if isinstance(command, commands.Retain | commands.Forget):
        return {("topic", command.topic, "manage")}
    if isinstance(command, commands.Stage):
        return published([command.packed]) | {("writer", command.writer, "use")}
    if isinstance(command, commands.Publish):
        return {("writer", command.writer, "use")}
    if isinstance(command, commands.Drop) and command.writer:
        return {("writer", command.writer, "use")}
    return {MEMBERS_ONLY}


RIGHTS = MachineRights(
    "topic",
    "topics",
    "topics",
    {word: lambda data, name: done(data) for word in commands.Command.__args__},
    {},
    batch=lambda data, name: done(data),
    makes=None,
    single="all",
)
"""The machine of all durable topics, where a transaction publishes."""
