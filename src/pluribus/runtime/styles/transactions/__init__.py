"""Transactions on a bus: changes of several queues, topics and spaces are all made, or none is."""
