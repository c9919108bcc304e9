"""Message queues: a message waits until one consumer has taken it and has settled it.

::

    words.py      what a queue is told, and what it answers
    batch.py      many messages of one sender, packed once
    machine.py    the queue itself, a machine on the log host
    segments.py   where the messages are: runs of plain batches, columns of all others
    times.py      which messages are to be looked at when: delays, expiry, leases
    keys.py       messages of one key, in order
    window.py     identities that were sent lately, so that none is taken twice
    selectors.py  consumers that want some messages only
    columns.py    columns of messages, copied for queries
    finder.py     searches for them in a long queue, outside of ``apply``

Source: message queues, section 6.4 of the chapter on indirect communication.
"""
