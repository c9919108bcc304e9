"""An index over the filters of all subscriptions: which of them does an event match?

Theory of operation
-------------------
A filter is taken apart into *conjunctions* of equalities and intervals, and a rest (``conjunctions.py``). Equal filters
are kept once, however many subscriptions have them; so are equal rests. A conjunction is kept in a *slot*, among those
that ask for the same value of the same field (``slots.py``). For a batch of events:

1. *Equality by hash.* For each field that clusters are kept by, one look-up finds the cluster of an event's value.
2. *Ranges by sorted thresholds.* For the words of those clusters, the bitmaps of the event's buckets are ANDed, 64
   conjunctions at a time (``bitmaps.py``).
3. *Exactly.* The intervals of the candidates that are left are compared with the event's numbers.
4. *The rest*, where there is one, is evaluated by its predicate, once for each event and distinct rest.

All four steps are a few numpy calls for the whole batch, whatever the number of subscriptions; Python runs once for
each event and field that is asked for (``batch.py``), and once for each evaluated rest. Counting how many conditions
of each subscription hold, the usual way, touches every condition that holds, of every subscription; ANDing words
touches a bit of those in the event's clusters only. ``docs/design/filters.md`` has the figures.

Promise: ``match`` gives exactly the keys whose filters' predicates are true. Nothing here waits, and nothing is random:
the same calls give the same answers in the same order.
"""

from .conjunctions import explain
from .index import Index

__all__ = ["Index", "explain"]
