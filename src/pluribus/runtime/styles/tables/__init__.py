"""Queues and durable topics as tables on a bus: ``tables.py`` answers queries, ``copying.py`` copies columns."""
