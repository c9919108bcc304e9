"""``python -m tests.mutants [NAME ...]``: play the seed of every mutant, and hunt for those that it does not find now.

A new seed is written down where the old one was. A mutant that is found by another sentence is shown, for a human to
record.
"""

import logging
import re
import sys
from pathlib import Path

from tests.mutants import (
    asking,
    compaction,
    consumer_groups,
    conversations,
    deaf,
    durable,
    founding,
    group_hosts,
    hosts,
    keepers,
    limbo,
    objects,
    orders,
    queues,
    regrouping,
    relays,
    replicas,
    slots,
    spread,
    topics,
    transactions,
    transformations,
    views,
    waking,
    wholeness,
)
from tests.mutants.hunt import SEEDS_MAX, hunt

logging.disable(logging.CRITICAL)
SCENARIOS = [
    (scenario, found)
    for scenario, tables in {
        "groups": [orders.FOUND, views.FOUND, regrouping.FOUND, wholeness.FOUND],
        "asks": [asking.FOUND],
        "compaction": [compaction.FOUND],
        "consumer-groups": [consumer_groups.FOUND],
        "conversations": [conversations.FOUND],
        "crowd": [spread.CROWD_FOUND],
        "deaf": [deaf.FOUND],
        "durable-replica": [hosts.DURABLE_REPLICA],
        "durable-topics": [durable.FOUND],
        "founding": [founding.FOUND],
        "group-hosts": [group_hosts.FOUND],
        "hosts": [hosts.FOUND],
        "keepers": [keepers.FOUND],
        "objects": [objects.FOUND],
        "queues": [queues.FOUND],
        "relays": [relays.FOUND],
        "replica": [replicas.FOUND],
        "shatter": [limbo.FOUND],
        "slots": [slots.FOUND],
        "slots-replica": [slots.FOUND_WITHOUT_ROUTER],
        "spread": [spread.FOUND],
        "spread-views": [spread.SUMS_FOUND],
        "topics": [topics.FOUND],
        "transactions": [transactions.FOUND],
        "transformations": [transformations.FOUND],
        "waking": [waking.FOUND],
    }.items()
    for found in tables
]


def write_down(mutant: type, seed: int) -> None:
    """In the table of the module that the mutant is in."""
    file = Path(sys.modules[mutant.__module__].__file__ or "")
    text = file.read_text(encoding="utf-8")
    file.write_text(
        re.sub(rf"^    {mutant.__name__}: \([\d_]+, ", f"    {mutant.__name__}: ({seed}, ", text, flags=re.M), "utf-8"
    )


for scenario, table in SCENARIOS:
    for mutant, (seed, sentence) in table.items():
        if mutant.__name__ in sys.argv[1:] or not sys.argv[1:]:
            told = f"{scenario:<14} {mutant.__name__:<12}"
            found = hunt(mutant, [seed], scenario)
            if found is not None and sentence in found.failure:
                print(f"{told} seed {seed}, as before", flush=True)
                continue
            found = hunt(mutant, scenario=scenario, sentence=sentence)
            if found is None:
                print(f"{told} not in {SEEDS_MAX} seeds", flush=True)
                continue
            print(f"{told} seed {found.seed}: {found.failure.splitlines()[-1]}", flush=True)
            if sentence in found.failure:
                write_down(mutant, found.seed)
