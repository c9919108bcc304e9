"""Which process may found a bus's first primary: ``connect(founders=)``, and a lock that one machine's processes share.

Theory of operation
-------------------
Two chains of primaries cannot be joined: if two meet, one is given up with all that it had acknowledged. So no process
may found a second chain while a member of the first lives, even if all those members are stopped (SIGSTOP, a debugger,
a laptop that sleeps) and cannot be heard.

On one machine a file lock decides. Every member shares the lock, from before it enters its first primary until its
process ends; the kernel releases the lock when the process ends, for whatever reason, and not before. A founder needs
the lock exclusively for a moment, and then shares it; from then on no other process can have it exclusively.

*The file* is named after everything that keeps two buses apart on one machine: the bus, the fingerprint of the stack,
the engine, the place where members look for each other, and the network namespace. A URL with several places has a lock
for each, so that two URLs with one place in common share a lock. An exclusive lock cannot be turned into a shared one
in one step (flock(2)); a process that loses it in between has not founded. The last holder of a file removes it; a
process that finds its file removed opens another.

*Limits.* The lock is for processes of one user that share a folder: ``$XDG_RUNTIME_DIR``, else the user's own folder in
the temporary directory. Processes of other users, and of containers with folders of their own, count like processes on
other machines. Removing the files while members run takes their lock away. Where there are no such locks (Windows), or
the folder cannot be used (which is logged), a new member listens for as long as the engine says, also on loopback.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import weakref
from hashlib import blake2b
from pathlib import Path

from ...core.errors import BadInput
from ...core.limits import VIEW_MEMBERS_MAX
from ...core.ports import Engine
from ...core.url import BusUrl, whole_number

try:
    import fcntl

    HAS_LOCKS = True
except ImportError:  # Windows
    HAS_LOCKS = False

log = logging.getLogger(__name__)

VARIABLE = "PLURIBUS_FOUNDERS"
LAYER = "membership"
OPENED_MAX = 100
"""A file that was removed each time before it could be locked, so often, is a folder that does not work."""


def founders_from(wanted: int | None, url: BusUrl) -> int | None:
    """The caller's number, else the URL's, else that of ``$PLURIBUS_FOUNDERS``; None if there is none."""
    if wanted is not None:
        if not 1 <= wanted <= VIEW_MEMBERS_MAX:
            raise BadInput(f"founders={wanted} cannot found a primary: use 1 to {VIEW_MEMBERS_MAX}")
        return wanted
    if url.founders is not None:
        return url.founders
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    number = whole_number(text)
    if number is None or not 1 <= number <= VIEW_MEMBERS_MAX:
        raise BadInput(f"{VARIABLE}={text} is out of range: use 1 to {VIEW_MEMBERS_MAX}")
    return number


def founded_by(specification: str, founders: int | None, *, asked: bool) -> str:
    """The same stack with so many founders. A stack without agreed views has no primary: if the caller ``asked`` for
    founders there, that is refused."""
    if founders is None:
        return specification
    parts = [part.strip() for part in specification.split("|")]
    names = [part.partition("(")[0] for part in parts]
    if LAYER not in names or parts[names.index(LAYER)] != LAYER:
        if not asked:
            return specification
        if LAYER in names:
            raise BadInput(f"founders={founders} is said twice: the stack has {parts[names.index(LAYER)]!r}")
        raise BadInput(f"founders={founders} needs agreed views: connect with stack='views'")
    parts[names.index(LAYER)] = f"{LAYER}(founders={founders})"
    return " | ".join(parts)


class MachineLock:
    """The port ``Founding`` of one member. ``shape`` is the fingerprint of its stack, set when that is built."""

    def __init__(self, bus: str, engine: Engine) -> None:
        self.shape = ""
        self._bus = bus
        self._engine = engine
        self._files: dict[str, int] = {}
        """Open files by path, each of them locked."""
        self._claimed = False
        self._folder: Path | None = None
        self._broken = False
        _open.add(self)

    @property
    def listen_s(self) -> float:
        return 0.0 if self._engine.local and self._works() else self._engine.heard_s

    def claim(self) -> bool:
        if self._claimed or not self._works():
            return True
        if self._files:  # it shares the lock, and would lose that by asking for more
            return False
        self._claimed = self._lock(exclusively=True) and self._lock(exclusively=False)
        if not self._claimed:
            self.forget()
        return self._claimed or self._broken

    def share(self) -> bool:
        return self._claimed or not self._works() or self._lock(exclusively=False) or self._broken

    def release(self) -> None:
        """Release the lock; the last holder removes the files."""
        files, self._files = self._files, {}
        self._claimed = False
        for path, file in files.items():
            try:
                if _locked(file, exclusively=True):
                    os.unlink(path)
            except OSError as error:
                log.debug("%s is left behind (%s)", path, error.strerror)
            finally:
                os.close(file)

    def forget(self) -> None:
        """Close the files without unlocking them: in a forked child the locks are the parent's."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _works(self) -> bool:
        if self._folder is None and not self._broken:
            if not HAS_LOCKS:
                self._broken = True
                return False
            try:
                self._folder = lock_folder()
            except OSError as error:
                self._give_up(str(error))
        return not self._broken

    def _give_up(self, why: str) -> None:
        self._broken = True
        log.warning(
            "no lock for bus %r (%s): a process that starts while others are paused may found a second primary; "
            "connect with founders=, or give the process a folder of its own as $XDG_RUNTIME_DIR",
            self._bus,
            why,
        )

    def _paths(self) -> list[str]:
        assert self._folder is not None, "asked for only where it works"
        kept_apart = (self._bus, self.shape, self._engine.name, _network_namespace())
        return sorted(
            str(self._folder / f"{blake2b(repr((*kept_apart, place)).encode(), digest_size=16).hexdigest()}.lock")
            for place in self._engine.places
        )

    def _lock(self, *, exclusively: bool) -> bool:
        """All of the locks, or none of those that were not held before."""
        before = set(self._files)
        try:
            if all(self._lock_one(path, exclusively=exclusively) for path in self._paths()):
                return True
        except OSError as error:
            self._give_up(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        for path in set(self._files) - before:
            os.close(self._files.pop(path))
        return False

    def _lock_one(self, path: str, *, exclusively: bool) -> bool:
        if path in self._files:
            if _locked(self._files[path], exclusively=exclusively):
                return True
            os.close(self._files.pop(path))  # flock(2): a lock that could not be changed is gone
            return False
        for _ in range(OPENED_MAX):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            if not _locked(file, exclusively=exclusively):
                os.close(file)
                return False
            if os.fstat(file).st_nlink:
                self._files[path] = file
                return True
            os.close(file)  # the process that held it last has removed it
        raise OSError(f"{path} is removed again and again")


_open: weakref.WeakSet[MachineLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_open):
        lock.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _locked(file: int, *, exclusively: bool) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if exclusively else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_folder() -> Path:
    """A folder that this user alone can write, made if need be. ``OSError`` if somebody else was there first."""
    user = os.getuid()
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")
    own, shared = runtime / "pluribus", Path(tempfile.gettempdir()) / f"pluribus-{user}"
    folder = own if _is_own(runtime) else shared
    folder.mkdir(mode=0o700, exist_ok=True)
    if not _is_own(folder) or folder.lstat().st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone: remove it, or chmod 700 {folder}")
    return folder


def _is_own(folder: Path) -> bool:
    """A folder of this user, and no link to one."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _network_namespace() -> str:
    """The network namespace: programs in different ones may use the same address and not hear each other."""
    try:
        return os.readlink("/proc/self/ns/net")
    except OSError:
        return ""
