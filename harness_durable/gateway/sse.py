"""Server-sent events, framed in bytes: a character that is cut between two chunks is nobody's problem.

``raw`` of all frames and then ``rest`` are exactly what was fed, so a stream can be put together again with
one frame exchanged."""

from __future__ import annotations

import re

import msgspec

_LINE_END = re.compile(rb"\n|\r\n|\r(?=[^\n])")
_BOM = b"\xef\xbb\xbf"


class Frame(msgspec.Struct, frozen=True):
    """One event that has data. ``raw`` includes comments before it and the blank line after it."""

    event: str
    data: bytes
    raw: bytes


class Framer:
    """Cuts a stream into frames. Lines end with LF, CRLF or CR."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._line = 0
        """Where the current line begins in the buffer."""
        self._seen = 0
        """No line ends before this place, so that a long line is searched once."""
        self._first = True
        self._event = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> list[Frame]:
        """The frames that are whole now. A CR at the very end waits for what follows it."""
        self._buffer += chunk
        frames: list[Frame] = []
        done = 0
        while (end := _LINE_END.search(self._buffer, self._seen)) is not None:
            line = bytes(self._buffer[self._line : end.start()])
            self._line = self._seen = end.end()
            if line or not self._data:
                self._field(line)
                continue
            raw = bytes(self._buffer[done : self._line])
            frames.append(Frame(self._event, b"\n".join(self._data), raw))
            self._event, self._data, done = "", [], self._line
        self._seen = max(self._line, len(self._buffer) - 1)
        del self._buffer[:done]
        self._line, self._seen = self._line - done, self._seen - done
        return frames

    def finish(self) -> list[Frame]:
        """At the end of the stream, where a CR that was waited for ends its line."""
        if not self._buffer.endswith(b"\r"):
            return []
        frames = self.feed(b"\n")
        if not frames:
            del self._buffer[-1:]
        return [msgspec.structs.replace(frame, raw=frame.raw[:-1]) for frame in frames]

    @property
    def rest(self) -> bytes:
        """What was fed and belongs to no whole frame."""
        return bytes(self._buffer)

    def _field(self, line: bytes) -> None:
        if self._first:
            self._first, line = False, line.removeprefix(_BOM)
        if not line:
            self._event = ""
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")


def event(data: bytes, name: str = "") -> bytes:
    """One event. JSON may hold line breaks between its tokens (never within a string); each needs a field of
    its own."""
    lines = data.replace(b"\r", b" ").split(b"\n")
    head = b"event: %s\n" % name.encode() if name else b""
    return head + b"".join(b"data: %s\n" % line for line in lines) + b"\n"
