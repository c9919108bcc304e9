"""Conversations on a bus: ``face`` has the methods of the bus, ``room`` one conversation, ``lobby`` all of them,
``carrier`` the tasks between a pure protocol and the group that carries its words."""
