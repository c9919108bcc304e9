"""The command line: one verb a file.

A verb is a module of this folder with the verb's name and an attribute ``command``, which is either a typed function or
a ``typer.Typer`` with verbs of its own, and one line in ``VERBS`` of ``app.py``. Verbs load when they are called, so
that ``pluribus --help`` stays quick. Every verb takes ``--json`` (see ``output.py``).
"""
