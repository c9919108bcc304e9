"""A radio world: nodes that move, hear each other within a range, and share one medium. Source: M2MC, section 2.4.

A light world beside the simulator. No stack of layers runs here; a node is one multicast protocol of a few hundred
lines, so that hundreds of runs of two virtual minutes take minutes.

``places``      where nodes are, and who is in range: random waypoint, or a graph that a test draws
``air``         the shared medium: air time, carrier sense, collisions, loss, acknowledged frames, energy
``node``        what every protocol has: words, what was seen, what is delivered
``neighbours``  who is near, by hello
``flooding``    plain flooding; ``scoped``, ``hyper`` and ``adaptive`` are variants of it
``amris``       a tree of nodes with increasing numbers
``amroute``     a tree of members over a mesh of tunnels, on ``unicast``, a routing on demand
``odmrp``       a mesh: the forwarding group
``gossip``      our gossip: by chance, then by comparing digests
``talk``        conversations (``pluribus.conversations``) on any of them
``run``         one run with its traffic, and what is counted

Everything is decided by a seed. Time is virtual; a protocol sees it, chance and the medium through ``Air`` alone.
"""

from .run import PROTOCOLS, Outcome, Setting, play
from .talk import Talked, talk

__all__ = ["PROTOCOLS", "Outcome", "Setting", "Talked", "play", "talk"]
