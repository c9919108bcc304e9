"""The code that every message passes through: always in Python, and in C where that was compiled. ``README.md`` says
which Python file is the twin of which C file, and how tests hold the two to the same answers.

Nothing else in the package is in C. Import from ``quick``, ``packing``, ``waiting`` and ``wires``: they choose the
faster of the two.
"""
