"""Bytes to disk: blocking backends, each a small file. ``runtime.writer`` makes a ``Store`` port of one."""
