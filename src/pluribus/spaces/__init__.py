"""Tuple spaces: processes write tuples into a shared space, and read or take them by their contents.

``values`` says how a tuple travels, ``templates`` what a template matches, ``index`` how a match is found without a
scan. ``machine`` is the replicated kind: one state machine on a log. ``views`` is the algorithm of Xu and Liskov.
``partitioned`` divides the tuples among the members, as the York kernel does. ``words`` has all that is said.

A *space* is a shared collection of *tuples*. A *template* stands for the tuples that it matches. An *entry* is an
object of a class in place of a tuple: it is matched by class, subclass and given fields.
"""
