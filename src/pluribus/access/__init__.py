"""Access lists: rights of users and clients outside of a bus. ``machine.py`` is the list as the keepers have it,
``rules.py`` the same compiled for decisions, ``passwords.py`` proves users, ``words.py`` has the commands and
questions."""
