"""Transactions over several machines of one log: the list of transactions, with their states."""
