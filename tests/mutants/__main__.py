"""``python -m tests.mutants [NAME ...]``: hunt for every mutant again, and say where it was found."""

import logging
import sys

from tests.mutants import asking, orders, views
from tests.mutants.hunt import SEEDS_MAX, hunt

logging.disable(logging.CRITICAL)
for mutant in {**orders.FOUND, **views.FOUND, **asking.FOUND}:
    if mutant.__name__ in sys.argv[1:] or not sys.argv[1:]:
        found = hunt(mutant, scenario="asks" if mutant in asking.FOUND else "groups")
        where = f"seed {found.seed}: {found.failure.splitlines()[-1]}" if found else f"not in {SEEDS_MAX} seeds"
        print(f"{mutant.__name__:<12} {where}", flush=True)
