"""Durable topics: logs of events with offsets, kept by keepers. Read ``batch`` first, then ``machine``, ``reading``."""
