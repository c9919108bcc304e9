"""Keepers as processes: a member's own keeper and its store, its desk, the way to the keepers of others, their care."""
