"""The one filter language: SQL-92 conditions, as in JMS selectors, parsed once and compiled to where they are needed.

::

    text ── grammar (sqlglot) ──► tree ──┬─► predicate   a Python function
            kinds, schema                ├─► index       all subscriptions at once, events in batches
                                         ├─► sql         a WHERE clause for SQLite or PostgreSQL
                                         └─► spark       a column

``tree.py`` is the language, ``events.py`` the view of an event that filters have, ``numbers.py`` the arithmetic. The
four give the same answer for the same event, unknown included; one test-suite holds them to it.

For rooms that have conditions of their own (row patterns): ``grammar.parse_tree(text, navigation={"PREV": None,
"COUNT": Kind.NUMBER})`` takes functions that say *which* row a field is of. They end up in ``Field.via``, the outermost
first (``None`` keeps the field's kind; a kind is the kind of the result). Then ``predicate.compile_predicate(tree,
resolve=...)`` asks for each distinct field once, when it compiles: ``resolve(field)`` gives a function from whatever
the predicate will be called with to the field's value, of any kind that ``events.py`` knows, ``None`` for null.
"""

from __future__ import annotations

from .filter import Filter, Template, parse

__all__ = ["Filter", "Template", "parse"]
