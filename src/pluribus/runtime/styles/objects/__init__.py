"""Objects that talk, on a bus. ``face`` has what it adds to the bus, ``post`` carries messages between processes."""
