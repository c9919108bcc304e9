"""Scenarios: the actions of a world's members while faults strike, and the promises that must hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module

import msgspec

from ...core.errors import BadInput
from ..checkers.delivery import Checker
from ..machinery.history import History
from ..machinery.network import Medium
from ..machinery.world import World


class Scenario(msgspec.Struct, frozen=True):
    """``play`` acts on a world and records what happens; ``checkers`` read the record when the world is over."""

    name: str
    about: str
    stack: str | Callable[[int, int], str]
    """The stack of every member; or a function of the seed and the number of members that returns it."""
    play: Callable[[World, History], Awaitable[None]]
    checkers: dict[str, Checker]
    faults: tuple[str, ...]
    """Faults that a campaign of this scenario must have struck."""
    members_min: int = 2
    members_max: int = 6
    media: tuple[Medium, ...] = (Medium(),)
    """The media on which the scenario is played; seeds take them in turn."""
    promises: tuple[str, ...] = ()
    """The promises of groups in this scenario, on each of the media: the cells of its matrix. A campaign of such a
    scenario must also have changed views while messages were under way."""

    def stack_of(self, seed: int, members: int) -> str:
        return self.stack if isinstance(self.stack, str) else self.stack(seed, members)


def scenario(name: str) -> Scenario:
    """The scenario with this name; the error lists all names. ``module:NAME`` is a scenario of your own."""
    if ":" in name:
        return _of_a_module(name)
    from . import (
        adhoc,
        asks,
        boundaries,
        compaction,
        consumer_groups,
        conversations,
        crowd,
        deaf,
        disk,
        durable_replica,
        durable_topics,
        flood,
        founding,
        group_hosts,
        groups,
        hosts,
        keepers,
        objects,
        queues,
        relays,
        replica,
        shatter,
        slots,
        spaces,
        spread,
        spread_views,
        states,
        topics,
        transactions,
        transformations,
        waking,
    )

    views = (groups.GROUPS, deaf.DEAF, shatter.SHATTER, waking.WAKING, topics.TOPICS, founding.FOUNDING)
    blocks = (asks.ASKS, relays.RELAYS, replica.REPLICA, durable_replica.DURABLE_REPLICA, states.STATES)
    machines = (hosts.HOSTS, group_hosts.GROUP_HOSTS)
    plain = (flood.FLOOD, disk.DISK, keepers.KEEPERS, durable_topics.DURABLE_TOPICS, adhoc.ADHOC_GROUPS)
    styles = (
        queues.QUEUES,
        transactions.TRANSACTIONS,
        transformations.TRANSFORMATIONS,
        slots.SLOTS,
        slots.SLOTS_REPLICA,
        objects.OBJECTS,
        conversations.CONVERSATIONS,
        spaces.SPACES,
        consumer_groups.CONSUMER_GROUPS,
        compaction.COMPACTION,
    )
    shipped = (
        *plain,
        *machines,
        *views,
        *blocks,
        *styles,
        spread.SPREAD,
        boundaries.BOUNDARIES,
        spread_views.SPREAD_VIEWS,
        crowd.CROWD,
    )
    known = {found.name: found for found in shipped}
    if name not in known:
        listed = "; ".join(f"{found.name} ({found.about})" for found in known.values())
        raise BadInput(f"there is no scenario {name!r}: use {listed}; or module:NAME for one of your own")
    return known[name]


def _of_a_module(name: str) -> Scenario:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"there is no scenario {name!r} ({error}): write module:NAME, as Python imports it") from None
    if not isinstance(found, Scenario):
        raise BadInput(f"{name!r} is of type {type(found).__name__}: make it a pluribus.sim.Scenario")
    return found
