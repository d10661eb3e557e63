"""Which workers of this host are alive: one lock file per worker, for the Worlds that live on a disk.

A worker holds an ``flock`` on its file for as long as its process lives; the kernel frees it at any death, so
nothing is judged by a pid. What surprises: the file is JSON that is renewed in place, a number of fixed width
at its start, and a freed lock means dead at once, whatever the number says. A process that was stopped
(SIGSTOP) keeps its lock, so it is the number, a deadline on the monotonic clock, that ends its lease.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Generator
from pathlib import Path

import msgspec

from harness_durable import clock
from harness_durable.errors import LeaseLost, NotFound, StorageUnavailable
from harness_durable.world import LEASE_SECONDS, Owner

_SUFFIX = ".lock"
_WIDTH = 20
_TRIES = 200
_HEAD = b'{"deadline":'


class _Entry(msgspec.Struct, frozen=True):
    """What a lock file says. ``deadline`` is in seconds of the monotonic clock of ``boot``."""

    deadline: float
    worker: str
    host: str
    pid: int
    boot: str
    lease: float


class _Held:
    """A lock of this process, shared by the Worlds that registered the same worker in the same folder."""

    def __init__(self, fd: int, lease: float) -> None:
        self.fd, self.lease, self.users = fd, lease, 0


_decoder = msgspec.json.Decoder(_Entry)
_held: dict[Path, _Held] = {}
_guard = threading.RLock()


def _forget_in_child() -> None:
    """A forked child shares the lock with its parent; it must not keep a dead worker alive."""
    global _guard
    _guard = threading.RLock()
    for held in _held.values():
        with contextlib.suppress(OSError):
            os.close(held.fd)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def boot_id() -> str:
    """The kernel's name for this boot; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class HostLiveness:
    """The lock files of one folder, which is created on first use. All calls are short and blocking.

    Raises ``StorageUnavailable`` where the folder cannot be used.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._mine: set[Path] = set()
        self._boot = boot_id()
        self._watched: dict[str, tuple[float, float]] = {}

    def register(self, owner: Owner, lease: float = LEASE_SECONDS) -> None:
        """Make ``owner``, a worker of this process, live for ``lease`` seconds. Again is a renewal."""
        path = self._path(owner.worker)
        with _guard, self._failures():
            held = _held.get(path)
            if held is None:
                held = _held[path] = _Held(self._create(path), lease)
            if path not in self._mine:
                self._mine.add(path)
                held.users += 1
            held.lease = lease
            self._write(held, owner)

    def renew(self, owner: Owner) -> None:
        """Prolong the lease, also after it has run out. Raises ``LeaseLost`` for a worker that this object
        did not register, or that has left."""
        path = self._path(owner.worker)
        with _guard, self._failures():
            held = _held.get(path)
            if held is None or path not in self._mine:
                raise LeaseLost(f"{owner} is not registered here; register as another worker and go on")
            if os.fstat(held.fd).st_nlink == 0:  # somebody deleted the folder under us
                fresh = self._create(path)
                os.close(held.fd)
                held.fd = fresh
                self._write(held, owner)
            else:
                os.pwrite(held.fd, self._deadline(held.lease), len(_HEAD))

    def unregister(self, owner: Owner) -> None:
        """The worker leaves: dead at once. No error if it was not registered."""
        path = self._path(owner.worker)
        with _guard, self._failures():
            if path in self._mine:
                path.unlink(missing_ok=True)
                self._drop(path)

    def close(self) -> None:
        """Let go of all that this object registered; those workers are dead unless registered elsewhere."""
        with _guard:
            for path in list(self._mine):
                self._drop(path)

    def alive(self, worker: str) -> bool:
        """Whether the worker's process lives and its lease has not ended."""
        left = self.lease_left(worker)
        return left is not None and left > 0

    def lease_left(self, worker: str) -> float | None:
        """Seconds until the lease ends, negative if it has; ``None`` if the worker is dead or unknown.

        A file that cannot be read as ours proves nothing, even if it is locked: ``None``, too.
        """
        with self._failures():
            entry = self._locked_entry(self._path(worker))
        if entry is None:
            self._watched.pop(worker, None)
            return None
        if entry.boot == self._boot:
            return entry.deadline - clock.monotonic()
        # Locked from another machine, over a network: its clock says nothing here. Its lease is as old
        # as the number that we have been looking at.
        seen, since = self._watched.get(worker, (None, 0.0))
        if seen != entry.deadline:
            since = clock.monotonic()
            self._watched[worker] = (entry.deadline, since)
        return since + entry.lease - clock.monotonic()

    def living(self) -> frozenset[str]:
        """Ids of all workers that are alive."""
        names = self._folder.glob(f"*{_SUFFIX}") if self._folder.is_dir() else ()
        return frozenset(path.stem for path in names if self.alive(path.stem))

    def sweep(self) -> int:
        """Remove the files of dead workers; how many. Safe at any time, since a worker's id never comes
        back and a missing file means the same as a freed one."""
        removed = 0
        with self._failures():
            for path in sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder.is_dir() else ():
                with _opened(path) as fd:
                    if fd is not None and _lock(fd, fcntl.LOCK_EX):
                        path.unlink(missing_ok=True)
                        removed += 1
        return removed

    def _path(self, worker: str) -> Path:
        if not worker or "/" in worker or worker.startswith("."):
            raise NotFound(f"{worker!r} cannot name a worker; use a fresh UUID for each boot of a process")
        return self._folder / f"{worker}{_SUFFIX}"

    def _create(self, path: Path) -> int:
        """A locked file of ours. A sweep may remove it before we hold its lock: then once more."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for _ in range(_TRIES):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if _lock(fd, fcntl.LOCK_EX) and os.fstat(fd).st_nlink:
                return fd
            os.close(fd)
            threading.Event().wait(0.005)  # a look by alive() or sweep() takes microseconds
        raise StorageUnavailable(
            f"another process holds {path.name}: a worker's id belongs to one process; "
            "make a fresh UUID for each boot of a worker"
        )

    def _write(self, held: _Held, owner: Owner) -> None:
        entry = {
            "worker": owner.worker,
            "host": owner.host,
            "pid": owner.pid,
            "boot": self._boot,
            "lease": held.lease,
        }
        text = _HEAD + self._deadline(held.lease) + b"," + msgspec.json.encode(entry)[1:] + b"\n"
        os.pwrite(held.fd, text, 0)
        os.ftruncate(held.fd, len(text))

    def _deadline(self, lease: float) -> bytes:
        return b"%*.6f" % (_WIDTH, clock.monotonic() + lease)

    def _locked_entry(self, path: Path) -> _Entry | None:
        """What the file says, if it is locked and whole. Read until two looks agree: a renewal may be
        half done, and nobody may be declared dead by a torn number."""
        with _opened(path) as fd:
            if fd is None or _lock(fd, fcntl.LOCK_SH):
                return None
            before, text = b"", os.pread(fd, 4096, 0)
            while before != text:
                before, text = text, os.pread(fd, 4096, 0)
            try:
                return _decoder.decode(text)
            except msgspec.MsgspecError:
                return None

    def _drop(self, path: Path) -> None:
        self._mine.discard(path)
        held = _held.get(path)
        if held is None:
            return
        held.users -= 1
        if held.users <= 0:
            del _held[path]
            os.close(held.fd)

    @contextlib.contextmanager
    def _failures(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            raise StorageUnavailable(
                f"cannot use the workers' lock files in {self._folder}: {error}; "
                "make the folder writable, with room and with file descriptors left"
            ) from error


@contextlib.contextmanager
def _opened(path: Path) -> Generator[int | None, None, None]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield fd
    finally:
        os.close(fd)


def _lock(fd: int, mode: int) -> bool:
    try:
        fcntl.flock(fd, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
