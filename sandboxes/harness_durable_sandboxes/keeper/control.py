"""What comes in through ctl.sock: the first line of each connection, and the attached worker's commands.

The protocol, lines of JSON. A connection's first line is ``{v, token, op, epoch, ...}``:

    attach          becomes the worker's hold on the life; its end is the worker's death
    take {id}       becomes that relay connection: the request from its start, then raw both ways
    dial {port}     becomes a connection to 127.0.0.1:port inside the sandbox
    ping            answered at once; needs no epoch
    shutdown        ends the life; with an epoch, only if no newer worker has attached

Commands on an attached connection are ``{op, id, ...}``, answered by ``{re: id, ok, ...}``; a command
with ``size`` is followed by that many raw bytes. Events to the worker: ``size``, ``conn``, ``exit``,
``superseded``.
"""

from __future__ import annotations

import json
import os
import socket
import struct

from . import FRAME_CAP, PROTOCOL, QUEUE_HIGH
from .streams import Loop, Stream

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Message = dict[str, Any]

_LINE_CAP = 1 << 16
_HELLO_TIME = 10.0  # seconds that a connection has for its first line


class Lines:
    """Splits a stream into JSON messages, each with its raw bytes; whole ones only."""

    def __init__(self, first: bytes, heard: Callable[[Message, bytes], None]) -> None:
        self.rest = bytearray(first)
        self._heard = heard
        self._message: Message | None = None

    def feed(self, data: bytes) -> None:
        """Raises ValueError for what is not in the protocol."""
        self.rest += data
        while True:
            message = self._message
            if message is None:
                end = self.rest.find(b"\n")
                if end < 0:
                    if len(self.rest) > _LINE_CAP:
                        raise ValueError("a line that is too long")
                    return
                message = self._message = dict(json.loads(self.rest[:end]))
                del self.rest[: end + 1]
            size = int(message.get("size", 0))
            if not 0 <= size <= FRAME_CAP:
                raise ValueError("a frame that is too large")
            if len(self.rest) < size:
                return
            body = bytes(self.rest[:size])
            del self.rest[:size]
            self._message = None
            self._heard(message, body)


class Door:
    """Accepts connections to ctl.sock and hands each to ``greet`` with its first line."""

    def __init__(
        self, loop: Loop, path: str, greet: Callable[[Stream, Message, bytes], None], outside: bool
    ) -> None:
        self._loop, self._greet, self._outside = loop, greet, outside
        self._listener = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        self._listener.bind(path)
        os.umask(before)
        self._listener.listen(128)
        self._listener.setblocking(False)
        loop.watch(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # gone again
            return
        if self._outside and _peer(sock) != 0:
            sock.close()  # from inside our own PID namespace: the harness, not a worker
            return
        stream, line = Stream(self._loop, sock), bytearray()

        def heard(data: bytes) -> None:
            nonlocal line
            line += data
            head, found, rest = line.partition(b"\n")
            if not found:
                if len(line) > _LINE_CAP:
                    stream.close()
                return
            waiting.clear()
            stream.on_end = stream.close
            try:
                self._greet(stream, json.loads(head), bytes(rest))
            except Exception as error:  # nothing that a caller says may end the life
                refuse(stream, f"not in the protocol: {error!r}")

        def too_late() -> None:
            for one in waiting:
                one.close()

        waiting = [stream]
        stream.on_data, stream.on_end = heard, stream.close
        self._loop.later(_HELLO_TIME, too_late)


def _peer(sock: socket.socket) -> int:
    """The caller's pid, 0 if it is outside of our PID namespace."""
    size = struct.calcsize("3i")
    return int(struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0])


def refuse(stream: Stream, error: str, **more: object) -> None:
    stream.send_line(ok=False, v=PROTOCOL, error=error, **more)
    stream.finish()


def dial(loop: Loop, caller: Stream, port: int, early: bytes) -> Stream:
    """Join the caller with a port inside; refused there means an end here."""
    sock = socket.socket()
    sock.setblocking(False)
    sock.connect_ex(("127.0.0.1", port))
    inner = Stream(loop, sock)

    def pour(source: Stream, sink: Stream) -> None:
        def data(chunk: bytes) -> None:
            sink.send(chunk)
            source.read(sink.queued < QUEUE_HIGH)

        def end() -> None:
            ended.append(source)
            if len(ended) == 2:
                caller.finish()
                inner.finish()
            elif not sink.queued:
                sink.shut()

        def drain() -> None:
            source.read(True)
            if source in ended:
                sink.shut()

        source.on_data, source.on_end, sink.on_drain = data, end, drain

    ended: list[Stream] = []
    pour(caller, inner)
    pour(inner, caller)
    inner.send(early)
    return inner
