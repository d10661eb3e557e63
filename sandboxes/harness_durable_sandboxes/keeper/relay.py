"""The relay: the harness's way out. A request waits here until a worker takes it.

As long as no byte of an answer has gone out, the harness cannot tell one worker from the next: so the
request's bytes are kept, and offered again after a worker's death. Once an answer has begun there is
only one honest end without its rest: a reset.
"""

from __future__ import annotations

import socket

from . import CHUNK, MAX_CONNECTIONS, QUEUE_HIGH
from .streams import Loop, Stream

_CHUNK_COST = 128  # bytes that keeping a chunk costs besides its content
_READ_COST = CHUNK + _CHUNK_COST
_ABANDONED = 1.0  # seconds in which "done" may still follow the end of an answer


class Connection:
    """One connection of the harness to the relay: held, or taken by the attached worker."""

    def __init__(self, relay: Relay, number: int, sock: socket.socket) -> None:
        self.id = number
        self.announced = False
        self.kept: list[bytes] | None = []  # None: too large to be kept, or answered
        self.cost = 0
        self.worker: Stream | None = None
        self._relay = relay
        self._answered = self._done = False
        self._client = Stream(relay.loop, sock)
        self._client.on_data, self._client.on_end = self._asked, self._drop
        self._client.on_drain = self.balance

    def _asked(self, data: bytes) -> None:
        if self.kept is not None:
            self.kept.append(data)
            self._charge(len(data) + _CHUNK_COST)
        if self.worker:
            if self._relay.full(self):
                self._forget()  # it can be finished, but not be offered again
            self.worker.send(data)
        if self._relay.crowded():
            self._relay.balance()
        else:
            self.balance()

    def take(self, stream: Stream) -> None:
        self.worker = stream
        stream.on_data, stream.on_end, stream.on_drain = self._replied, self._ended, self.balance
        for chunk in self.kept or ():
            stream.send(chunk)
        self.balance()

    def balance(self) -> None:
        """Read from each side only what the other, or the memory, has room for."""
        if self.worker is None:
            self._client.read(not self._relay.full(self))
            return
        self._client.read(self.worker.queued < QUEUE_HIGH)
        self.worker.read(self._client.queued < QUEUE_HIGH)

    def _replied(self, data: bytes) -> None:
        if not self._answered:
            self._answered = True
            self._forget()
        self._client.send(data)
        self.balance()

    def done(self) -> None:
        self._done = True
        if self.worker and not self.worker.open:
            self._complete()

    def _ended(self) -> None:
        """The worker closed. Its "done" comes on another socket, and may be a moment later."""
        stream = self.worker
        if stream is None:
            return
        stream.close()
        if self._done:
            self._complete()
        else:
            self._relay.loop.later(_ABANDONED, lambda: self._abandoned(stream))

    def _abandoned(self, stream: Stream) -> None:
        """The worker lives, and gave the request up without an answer."""
        if self.worker is stream and not self._done:
            self._drop(reset=True)

    def detach(self) -> None:
        """The worker is dead, or superseded."""
        if self.worker is None:
            return
        if self._done:
            self.worker.shut(both=True)  # what it had sent before is still read, to the end
        elif self._answered or self.kept is None:
            self._drop(reset=True)
        else:
            self.worker.close()
            self.worker = None
            self.balance()

    def _complete(self) -> None:
        self._client.finish()
        self._drop()

    def _drop(self, reset: bool = False) -> None:
        self._relay.connections.pop(self.id, None)
        if not self._client.finishing:
            self._client.close(reset)
        if self.worker:
            self.worker.close()
        self._forget()
        self._relay.balance()

    def _forget(self) -> None:
        self._charge(-self.cost)
        self.kept = None

    def _charge(self, cost: int) -> None:
        self.cost += cost
        self._relay.total += cost


class Relay:
    """The listening socket and all its connections, with the limits on what they may cost."""

    def __init__(self, loop: Loop, listener: socket.socket, caps: tuple[int, int]) -> None:
        self.loop, self.caps, self.total = loop, caps, 0
        self.connections: dict[int, Connection] = {}
        self._count = 0
        self._listener = listener
        listener.setblocking(False)
        loop.watch(listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # gone again
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._count += 1
        connection = self.connections[self._count] = Connection(self, self._count, sock)
        connection.balance()
        if len(self.connections) >= MAX_CONNECTIONS:
            self.loop.watch(self._listener.fileno(), None)

    def full(self, connection: Connection) -> bool:
        return connection.cost + _READ_COST > self.caps[0] or self.crowded()

    def crowded(self) -> bool:
        """One more read, by whichever connection, could be too much."""
        return self.total + _READ_COST > self.caps[1]

    def balance(self) -> None:
        """There is less room, or more: for all connections."""
        for connection in self.connections.values():
            connection.balance()
        if len(self.connections) < MAX_CONNECTIONS:
            self.loop.watch(self._listener.fileno(), self._accept)

    def detach(self) -> None:
        for connection in list(self.connections.values()):
            connection.announced = False
            connection.detach()
