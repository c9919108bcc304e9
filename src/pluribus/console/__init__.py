"""A bus in the browser, for people: ``pluribus console``. It listens on 127.0.0.1 alone.

``server.py`` joins the bus and serves pages; ``software_buses.py`` is what the first page knows and does, ``page.py``
what it looks like. ``chat/`` is the page of ``pluribus chat``, one person each. NiceGUI is loaded only here.
"""
