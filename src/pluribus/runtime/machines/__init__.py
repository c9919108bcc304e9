"""Machines on a log, as a style on the bus uses them: the same on the keepers' log and on the safe order of a group."""
