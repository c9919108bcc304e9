"""Transactions over several machines of one log: which there are, and what became of them."""
