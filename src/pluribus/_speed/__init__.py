"""What is on the way of every message, in C where that was compiled, and in Python always. ``README.md`` says which
file is the twin of which, and what holds the two to the same answers.

Nothing else in the package is in C. Import from ``quick``, ``packing``, ``waiting`` and ``wires``: they have the better
of the two.
"""
