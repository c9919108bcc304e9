"""Message queues on a bus: ``face.py`` opens them, ``queue.py`` is one, ``sender.py`` and ``consumer.py`` are its two
sides, ``receiving.py`` the ways to receive, ``message.py`` what comes out."""
