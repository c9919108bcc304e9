"""Partitioned spaces, as in the York kernel: each tuple is at one server, which a hash of it picks."""
