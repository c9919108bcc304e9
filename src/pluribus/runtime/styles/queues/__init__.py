"""Message queues on a bus: ``face.py`` opens them, ``queue.py`` is one queue, ``sender.py`` and ``consumer.py`` are its
two sides, ``receiving.py`` has the ways to receive, ``message.py`` the messages that are received."""
