"""The software bus: programs occupy *slots*, slots have *ports*, and a map connects ports.

Source: J. R. Callahan and T. Montgomery, *A Decentralized Software Bus based on IP Multicasting* (NASA/WVU, 1994); they
call it the MULTIBUS. ``plan.py`` has the contents of an interconnection file as data, ``language.py`` reads and writes
such files, ``check.py`` finds their mistakes, ``drawing.py`` draws it, ``keys.py`` proves passphrases. ``words.py`` is
the vocabulary on the wire, ``map.py`` the interconnection map while the bus runs, ``router.py`` the process that
answers questions about it, ``occupant.py`` a program in a slot. None of it does I/O: ``runtime/styles/slots`` does.
"""
