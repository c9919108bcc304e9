"""A keeper's store in a real SQLite file, for a cluster that lives in a kernel's time."""

from contextlib import suppress

from pluribus.core.errors import PluribusError
from pluribus.store.sqlite import SqliteBackend

LATENCY_S = 0.005


class FileStore:
    """The store port, each write a commit of its own. ``crash`` is the end of a process; ``open`` the next one's."""

    def __init__(self, kernel, path):
        self.kernel, self.path = kernel, path
        self.life = 0
        self.backend = SqliteBackend(path)

    def write(self, changes, done):
        error = None
        try:
            self.backend.write(changes)
            self.backend.commit()
        except PluribusError as raised:
            error = raised
            with suppress(PluribusError):
                self.backend.rollback()
        life = self.life
        self.kernel.after(LATENCY_S, lambda: self.life == life and done(error))

    def append(self, log, rows, done):
        raise NotImplementedError("keepers write")

    put = append

    def read(self, log, start, stop):
        return self.backend.read(log, start, stop)

    def fetch(self, log, positions, work, done):
        rows = [(self.read(log, at, at + 1) or [None])[0] for at in positions]
        life = self.life
        self.kernel.after(LATENCY_S, lambda: self.life == life and done(work(rows), None))

    def get(self, key):
        return self.backend.get(key)

    def bounds(self, log):
        return self.backend.bounds(log)

    def end(self, log):
        return self.bounds(log).end

    def renew(self, changes):
        return self.backend.renew(changes)

    def crash(self):
        self.life += 1
        self.backend.close()

    def open(self):
        self.backend = SqliteBackend(self.path)
