"""Queues and durable topics as tables of SQL: any SELECT over copies of their columns, in SQLite in memory.

::

    statement.py  what a SELECT reads: tables, columns, properties
    pushing.py    the conditions that the owner of a table can apply before anything is copied
    database.py   SQLite in memory, read only, with limits of rows and of time
    result.py     the answer, and how it is written: text, CSV, JSON

Source: a queue is a table, section 6.4 of the chapter on indirect communication.
"""
