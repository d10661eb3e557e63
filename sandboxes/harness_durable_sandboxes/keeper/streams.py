"""Descriptors, timers and non-blocking sockets: the little that the keeper needs of an event loop.

asyncio would be two thirds of the start time and a third of the memory.
"""

from __future__ import annotations

import heapq
import json
import selectors
import socket
import struct
import time
from collections import deque
from contextlib import suppress

from . import CHUNK, QUEUE_HIGH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Loop:
    """One thread: call-backs for descriptors and for timers."""

    def __init__(self) -> None:
        self.stopped = False
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def watch(
        self, fd: int, read: Callable[[], None] | None, write: Callable[[], None] | None = None
    ) -> None:
        """Replaces what was watched on ``fd``; with neither, forgets it."""
        events = (selectors.EVENT_READ if read else 0) | (selectors.EVENT_WRITE if write else 0)
        known = fd in self._selector.get_map()
        if events and known:
            self._selector.modify(fd, events, (read, write))
        elif events:
            self._selector.register(fd, events, (read, write))
        elif known:
            self._selector.unregister(fd)

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, call))

    def run(self, before_waiting: Callable[[], None]) -> None:
        while not self.stopped:
            before_waiting()
            wait = max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None
            for key, mask in self._selector.select(wait):
                read, write = key.data
                if mask & selectors.EVENT_READ and read and self._current(key):
                    read()
                if mask & selectors.EVENT_WRITE and write and self._current(key):
                    write()
            while self._timers and self._timers[0][0] <= time.monotonic():
                heapq.heappop(self._timers)[2]()

    def _current(self, key: selectors.SelectorKey) -> bool:
        """An earlier call-back of this round may have closed the descriptor, or given it away."""
        now = self._selector.get_map().get(key.fd)
        return now is not None and now.data is key.data


class Stream:
    """A non-blocking socket. What cannot be sent now is queued, without being copied."""

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.on_data: Callable[[bytes], None] = lambda data: None
        self.on_end: Callable[[], None] = lambda: None  # once: the other side will send no more
        self.on_drain: Callable[[], None] = lambda: None
        self.queued = 0
        self.open = True
        self._loop, self._sock = loop, sock
        self._queue: deque[memoryview] = deque()
        self.finishing = False
        self._reading, self._ended = True, False
        self._watch()

    def read(self, on: bool) -> None:
        """Go on or stop reading; the other side then feels that we do not."""
        if on != self._reading:
            self._reading = on
            self._watch()

    def send(self, data: bytes) -> None:
        if self.open and data:
            self._queue.append(memoryview(data))
            self.queued += len(data)
            if len(self._queue) == 1:
                self._writable()

    def send_line(self, **fields: object) -> None:
        self.send(json.dumps(fields).encode() + b"\n")

    def finish(self) -> None:
        """Send what is queued, then close; nothing is read any more."""
        self.finishing = self._ended = True
        self._watch()
        if not self._queue:
            self.close()

    def shut(self, both: bool = False) -> None:
        """Let the other side read the end. What it sent before can still be read here; with
        ``both`` it can send nothing more."""
        with suppress(OSError):  # gone already
            self._sock.shutdown(socket.SHUT_RDWR if both else socket.SHUT_WR)

    def close(self, reset: bool = False) -> None:
        """At once. ``reset``: so that nobody can take half an answer for a whole one."""
        if not self.open:
            return
        self.open = False
        self._loop.watch(self._sock.fileno(), None)
        if reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._queue.clear()
        self.queued = 0
        self._sock.close()

    def _watch(self) -> None:
        if self.open:
            read = self._readable if self._reading and not self._ended else None
            self._loop.watch(self._sock.fileno(), read, self._writable if self._queue else None)

    def _readable(self) -> None:
        try:
            data = self._sock.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self.on_data(data)
        else:
            self._ended = True
            self._watch()
            self.on_end()

    def _writable(self) -> None:
        try:
            while self._queue:
                head = self._queue[0]
                sent = self._sock.send(head)
                self.queued -= sent
                if sent == len(head):
                    self._queue.popleft()
                else:
                    self._queue[0] = head[sent:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:  # the other side is gone, which reading finds, too
            self._queue.clear()
            self.queued = 0
            self._reading = True
        self._watch()
        if self.finishing and not self._queue:
            self.close()
        elif self.queued < QUEUE_HIGH:
            self.on_drain()
