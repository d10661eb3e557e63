"""What the provider was asked for and what it delivered: the judge over "paid once".

A JSONL file that is only appended to, one whole line per write, so that it can be read while the
provider runs and after it was killed. Keys of users are kept only as a hash. ``delivered`` means that
the last byte was given to the kernel for a client that had not hung up; a client that is killed at
that very moment has still been charged, as with the real API. The line is written just after that
byte, so a judge in another process waits until ``open()`` is empty.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from harness_durable import clock

Kind = Literal["requested", "delivered", "client_gone", "faulted", "refused", "abandoned"]


class Line(Struct, frozen=True, omit_defaults=True):
    """One line. ``n`` is the request's number, ``t`` seconds on the monotonic clock of this boot.

    ``requested`` opens a request; exactly one of the others ends it: ``delivered``, ``client_gone``,
    ``faulted`` (an ordered fault), ``refused`` (a bad request, or a policy that failed),
    ``abandoned`` (the provider was closed).
    """

    kind: Kind
    n: int
    t: float
    key: str
    model: str = ""
    messages: int = 0
    stream: bool = False
    path: str = ""
    api_key: str = ""
    headers: dict[str, str] = {}
    message_id: str = ""
    note: str = ""


class Tally(Struct, frozen=True):
    """The lines of a ledger. ``damaged``: lines that could not be read (cut by a kill)."""

    lines: tuple[Line, ...]
    damaged: int = 0

    def counts(self, kind: Kind) -> Counter[str]:
        """How many lines of this kind there are, by key."""
        return Counter(line.key for line in self.lines if line.kind == kind)

    @property
    def requested(self) -> Counter[str]:
        """Requests by key."""
        return self.counts("requested")

    @property
    def delivered(self) -> Counter[str]:
        """Paid answers by key."""
        return self.counts("delivered")

    def paid_twice(self) -> dict[str, int]:
        """Keys that were delivered more than once, with the count."""
        return {key: count for key, count in self.delivered.items() if count > 1}

    def open(self) -> list[int]:
        """Numbers of requests that have no end yet."""
        ended = {line.n for line in self.lines if line.kind != "requested"}
        return [line.n for line in self.lines if line.kind == "requested" and line.n not in ended]


def fingerprint(secret: str) -> str:
    """How a key is named in the ledger: the first 16 hex digits of its sha256; empty for none."""
    return hashlib.sha256(secret.encode()).hexdigest()[:16] if secret else ""


class Ledger:
    """The writer. With a path, numbers go on where an earlier provider on the same file stopped."""

    def __init__(self, path: Path | None = None) -> None:
        before = self.read(path) if path is not None and path.exists() else Tally(())
        self._lines = list(before.lines)
        self._last = max((line.n for line in before.lines), default=0)
        self._asked = before.requested
        self._file = None if path is None else path.open("ab", buffering=0)
        if path is not None and self._file is not None and _ends_torn(path):
            self._file.write(b"\n")

    @staticmethod
    def read(path: Path | str) -> Tally:
        """All whole lines of a ledger file; may be called while a provider writes to it."""
        lines: list[Line] = []
        damaged = 0
        for raw in Path(path).read_bytes().splitlines():
            try:
                lines.append(msgspec.json.decode(raw, type=Line))
            except msgspec.MsgspecError:
                damaged += 1
        return Tally(tuple(lines), damaged)

    def tally(self) -> Tally:
        """What was written so far, from memory."""
        return Tally(tuple(self._lines))

    def requested(self, key: str, **facts: object) -> tuple[int, int]:
        """Note an arrival; returns its number, and how often this key was asked for before."""
        self._last += 1
        before = self._asked[key]
        self._asked[key] += 1
        self._write({"kind": "requested", "n": self._last, "key": key, **facts})
        return self._last, before

    def ended(self, n: int, key: str, kind: Kind, *, message_id: str = "", note: str = "") -> None:
        """Note how a request ended."""
        self._write({"kind": kind, "n": n, "key": key, "message_id": message_id, "note": note})

    def close(self) -> None:
        """Close the file; reading from memory goes on working."""
        if self._file is not None:
            self._file.close()

    def _write(self, facts: dict[str, object]) -> None:
        line = msgspec.convert(facts | {"t": clock.monotonic()}, Line)
        self._lines.append(line)
        if self._file is not None:
            self._file.write(msgspec.json.encode(line) + b"\n")


def _ends_torn(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
