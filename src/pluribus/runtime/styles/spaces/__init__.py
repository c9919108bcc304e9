"""Tuple spaces on the bus: ``space`` is the face for programs, ``replicated`` and ``crew`` are the two ways to the
tuples."""
