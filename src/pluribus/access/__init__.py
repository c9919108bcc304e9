"""Access lists: who may do what on a bus from outside of it. ``machine.py`` is the list as the keepers have it,
``rules.py`` the same compiled for decisions, ``passwords.py`` proves users, ``words.py`` is what travels."""
