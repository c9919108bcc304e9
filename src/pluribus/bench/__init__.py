"""Benchmarks: commands of the product, each printing one JSON object. Peers and limits are measured in the same run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..core.errors import BadInput

BENCHES = {
    "engines": "throughput and round trips on every engine, beside the raw socket",
    "group": "agreed views, every order, encryption, beside limits and peers",
    "views": "what joins, leaves and crashes cost, many starts at once, members at rest",
    "tree": "the doubling tree and the pipelined one against one by one, on network namespaces",
    "host": "machines on the keepers' log: opening, holds of the loop, and space under churn",
    "log": "durable publishing beside others that keep events, and what a long log costs",
    "queue": "message queues: sent, on disk, received and acknowledged, beside other systems; what depth costs",
    "transactions": "a receive and a send in one transaction, beside the same without one",
    "pubsub": "topics beside the group that carries them, and beside other systems",
    "objects": "KQML and object messages on every engine, calls beside Pyro5, one multicast against n unicasts",
    "slots": "messages per send of a software bus: with a router, without one, centralised",
    "space": "tuple spaces beside a list of Redis; how a partitioned one spreads",
    "match": "events against the filters of very many subscriptions, beside a linear scan",
    "patterns": "complex events, in a process and on Spark",
    "spread": "every way for a message to get to all: on this machine, and simulated to 100,000 hosts",
    "pipeline": "Spark on durable topics: reading, writing, standing queries, alerts; traces checked",
    "backbone": "a backbone on Spark end to end: published events to answers",
    "adhoc": "multicast among moving nodes on a shared radio medium: floodings, trees, a mesh, gossip, conversations",
    "topics-many": "the same rows in one topic and in ten thousand, as Spark reads and writes them",
    "sim": "events and frames a second in the simulator",
    "semantic": "what a message costs in the semantic order, up to a million messages",
    "conversations": "a joiner gets a long history; the delay of orders on a network that loses",
    "chat": "the page in a real browser: a long room opens, a message comes to another browser",
    "fuzz": "mutated frames against a live node",
}


def bench(name: str) -> Callable[..., dict[str, Any]]:
    """The function ``run`` of a bench; imported only when it is called for."""
    if name not in BENCHES:
        listed = "; ".join(f"{known} ({about})" for known, about in BENCHES.items())
        raise BadInput(f"there is no bench {name!r}: use {listed}")
    run: Callable[..., dict[str, Any]] = import_module(f"{__name__}.{name.replace('-', '_')}").run
    return run
