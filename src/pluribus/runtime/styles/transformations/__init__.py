"""Transformations on a bus: ``face.py`` adds ``bus.transformer``, ``transformer.py`` is one, ``sync.py`` the same
without ``await``. What a queue does with its own arrivals is in ``queues/arriving.py``."""
