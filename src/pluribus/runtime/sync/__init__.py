"""The same faces without ``await``, on a loop in a thread of its own."""
