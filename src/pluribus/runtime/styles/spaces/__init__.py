"""Tuple spaces on the bus: ``space`` is what programs hold, ``replicated`` and ``crew`` are the ways to the tuples."""
