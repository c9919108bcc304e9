"""Complex events: row patterns of SQL (MATCH_RECOGNIZE) over streams of events.

::

    text ── grammar ──► clauses ──► automaton ──► steps      one partition, a value that can be kept anywhere
            (filters)               pattern        ├─► matcher            in a process
                                                   └─► pipeline.patterns  on Spark, state in its store

``tree.py`` is the language, ``references.py`` finds the row of a field, ``events.py`` makes rows of events. The
conditions are those of ``filters``, one storey below.
"""

from __future__ import annotations

from .matcher import Match, Matcher, Problem
from .pattern import Pattern, parse

__all__ = ["Match", "Matcher", "Pattern", "Problem", "parse"]
