"""``python -m tests.mutants [NAME ...]``: hunt for every mutant again, and say where it was found."""

import logging
import sys

from tests.mutants import (
    asking,
    conversations,
    deaf,
    durable,
    founding,
    hosts,
    keepers,
    limbo,
    objects,
    orders,
    regrouping,
    relays,
    replicas,
    slots,
    spread,
    views,
    waking,
    wholeness,
)
from tests.mutants.hunt import SEEDS_MAX, hunt

logging.disable(logging.CRITICAL)
SCENARIOS = {
    **dict.fromkeys([*orders.FOUND, *views.FOUND, *regrouping.FOUND, *wholeness.FOUND], "groups"),
    **dict.fromkeys(asking.FOUND, "asks"),
    **dict.fromkeys(conversations.FOUND, "conversations"),
    **dict.fromkeys(deaf.FOUND, "deaf"),
    **dict.fromkeys(objects.FOUND, "objects"),
    **dict.fromkeys(relays.FOUND, "relays"),
    **dict.fromkeys(limbo.FOUND, "shatter"),
    **dict.fromkeys(founding.FOUND, "founding"),
    **dict.fromkeys(waking.FOUND, "waking"),
    **dict.fromkeys(replicas.FOUND, "replica"),
    **dict.fromkeys(slots.FOUND, "slots"),
    **dict.fromkeys(spread.FOUND, "spread"),
    **dict.fromkeys(keepers.FOUND, "keepers"),
    **dict.fromkeys(hosts.FOUND, "hosts"),
    **dict.fromkeys(durable.FOUND, "durable-topics"),
    **dict.fromkeys(spread.CROWD_FOUND, "crowd"),
    **dict.fromkeys(spread.SUMS_FOUND, "spread-views"),
}
for mutant, scenario in SCENARIOS.items():
    if mutant.__name__ in sys.argv[1:] or not sys.argv[1:]:
        found = hunt(mutant, scenario=scenario)
        where = f"seed {found.seed}: {found.failure.splitlines()[-1]}" if found else f"not in {SEEDS_MAX} seeds"
        print(f"{mutant.__name__:<12} {where}", flush=True)
