"""Conversations on a bus: ``face`` is what the bus offers, ``room`` one conversation, ``lobby`` all of them,
``carrier`` the tasks between a pure protocol and the group that carries its words."""
