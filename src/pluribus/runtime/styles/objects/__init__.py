"""Objects that exchange messages, on a bus. ``face`` has the methods of the bus, ``post`` carries messages between
processes."""
