"""Access lists on a bus: the face, the guard that decides at doors, and the audit log."""
