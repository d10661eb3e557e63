"""The three standard streams of the harness, each with an append-only file beside it."""

from __future__ import annotations

import os
import time

from . import CHUNK, RETRY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .streams import Loop

_INDEX_EVERY = 0.1  # seconds
_DRAIN_READS = 64


def _append(name: str) -> int:
    return os.open(name, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)


class Spool:
    """Copies a pipe into NAME.log. While the file cannot be written the pipe is not read: the
    harness waits, and no byte is dropped."""

    def __init__(self, loop: Loop, name: str, pipe: int, grown: Callable[[], None]) -> None:
        self._loop, self._pipe, self._grown = loop, pipe, grown
        self._file = _append(name + ".log")
        self._index = _append(name + ".idx")
        self._indexed_at = 0.0
        self._rest = memoryview(b"")
        self.size = os.fstat(self._file).st_size
        self.blocked = ""  # why the file cannot be written just now
        os.set_blocking(pipe, False)
        loop.watch(pipe, self._readable)

    def _read(self) -> bool:
        """One read; False if there was nothing to read."""
        if self._pipe < 0 or self._rest:
            return False
        try:
            data = os.read(self._pipe, CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        if data:
            self._note_time()
            self._rest = memoryview(data)
            self._store()
            return True
        self._loop.watch(self._pipe, None)
        os.close(self._pipe)
        self._pipe = -1
        return False

    def _store(self) -> None:
        try:
            while self._rest:
                written = os.write(self._file, self._rest)
                self._rest = self._rest[written:]
                self.size += written
            self.blocked = ""
            self._loop.watch(self._pipe, self._readable)
        except OSError as error:
            self.blocked = str(error)
            self._loop.watch(self._pipe, None)
            self._loop.later(RETRY, self._store)
        self._grown()

    def _readable(self) -> None:
        self._read()

    def drained(self) -> bool:
        """After the harness's end: take what is in the pipe; True if all of it is in the file."""
        for _ in range(_DRAIN_READS):  # somebody else may still be writing, for ever
            if not self._read():
                break
        return not self._rest

    def _note_time(self) -> None:
        now = time.time()
        if now - self._indexed_at < _INDEX_EVERY:
            return
        self._indexed_at = now
        line, before = b"%d %d\n" % (self.size, now * 1000), os.fstat(self._index).st_size
        try:
            whole = os.write(self._index, line) == len(line)
        except OSError:
            whole = False
        if not whole:  # only a hint: better no line than half a line
            os.ftruncate(self._index, before)

    def forget(self, offset: int) -> None:
        """Give the disk back what lies before ``offset``; the offsets stay as they are."""
        import ctypes  # loaded already, by isolation

        punch = ctypes.CDLL(None).fallocate
        punch.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
        punch(self._file, 0x03, 0, min(offset, self.size))  # refused: then the file stays larger


class Stdin:
    """in.log and the pipe behind it. A frame is in the file before the pipe gets its first byte,
    so that the next worker knows what was said, and half a frame is never said."""

    def __init__(self, loop: Loop, pipe: int) -> None:
        self._loop, self._pipe = loop, pipe
        self._file = _append("in.log")
        self.size = os.fstat(self._file).st_size
        self.fed = self.size
        self._ending = False
        os.set_blocking(pipe, False)

    def append(self, frame: bytes) -> str:
        """Empty, or why nothing of the frame was taken."""
        if self._pipe < 0 or self._ending:
            return "closed"
        rest = memoryview(frame)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError as error:
            os.ftruncate(self._file, self.size)
            return str(error)
        self.size += len(frame)
        self._feed()
        return ""

    def end(self) -> None:
        """Close the harness's stdin once it has everything."""
        self._ending = True
        self._feed()

    def close(self) -> None:
        if self._pipe >= 0:
            self._loop.watch(self._pipe, None)
            os.close(self._pipe)
            self._pipe = -1

    def _feed(self) -> None:
        if self._pipe < 0:
            return None
        while self.fed < self.size:
            data = os.pread(self._file, 1 << 16, self.fed)
            try:
                self.fed += os.write(self._pipe, data)
            except (BlockingIOError, InterruptedError):
                return self._loop.watch(self._pipe, None, self._feed)
            except OSError:  # the harness closed its end
                return self.close()
        self._loop.watch(self._pipe, None)
        if self._ending:
            self.close()
        return None
