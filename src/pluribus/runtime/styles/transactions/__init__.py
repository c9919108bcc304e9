"""Transactions on a bus: several queues, topics and spaces, all of it or nothing."""
