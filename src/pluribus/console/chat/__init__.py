"""Threaded chat in a browser: ``pluribus chat``. It listens on 127.0.0.1 alone.

A *person* (``person.py``) is the member of the bus with its rooms (``open_room.py``); it needs no browser. A *screen*
(``screen.py``) is one browser that looks at it: they talk in the words of ``words.py``. What a browser runs is in
``browser/``: ``forest.js`` the trees, ``text.js`` what text of others may become, ``threads.js`` the scrolling.
``server.py`` serves the page.
"""
