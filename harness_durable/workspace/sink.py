"""Where a snapshot's new content goes: batch by batch to the World, the last of it with the event.

An event never names a blob that is missing. Blobs that were stored for an event that never came are used by
the next try, or swept by retention."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence

from harness_durable.payload import compress
from harness_durable.workspace.limits import OverLimit

BATCH = 8 << 20
"""Raw bytes after which the World is asked what it lacks, and gets that."""
WITH_EVENT = 16 << 20
"""Raw bytes at most that are left for the append that holds the event."""


class Sink:
    """``missing`` gives those of some names that the World lacks, ``put`` stores blobs. Both block.

    ``unsaid``: blobs that an earlier try stored which then was over the limit; they count as new again, so
    that trying often does not lead past the limit. ``most`` is that limit, in new raw bytes; 0 for none."""

    def __init__(
        self,
        missing: Callable[[Sequence[str]], Sequence[str]],
        put: Callable[[Mapping[str, bytes]], None],
        *,
        most: int = 0,
        unsaid: set[str] | None = None,
    ) -> None:
        self._missing, self._put, self._most = missing, put, most
        self.unsaid = set[str]() if unsaid is None else unsaid
        self._seen: set[str] = set()
        self._raw: dict[str, bytes] = {}
        self._raw_bytes = 0
        self._held: dict[str, bytes] = {}
        self._held_bytes = 0
        self.new_bytes = self.stored_bytes = 0

    def add(self, raw: bytes) -> str:
        """Take a content; gives its name. Raises ``OverLimit``, and what the World raises."""
        name = hashlib.sha256(raw).hexdigest()
        if name not in self._seen:
            self._seen.add(name)
            self._raw[name] = raw
            self._raw_bytes += len(raw)
            if self._raw_bytes >= BATCH:
                self._flush()
        return name

    def finish(self) -> dict[str, bytes]:
        """What goes with the event, compressed."""
        self._flush()
        return self._held

    def _flush(self) -> None:
        if not self._raw:
            return
        lacking = set(self._missing(list(self._raw)))
        for name, raw in self._raw.items():
            if name in lacking:
                self._hold(name, raw)
            elif name in self.unsaid:
                self.new_bytes += len(raw)
        self._raw, self._raw_bytes = {}, 0
        if self._most and self.new_bytes > self._most:
            raise OverLimit(
                "max_step",
                f"more than {self._most >> 20} MiB of new content since the last snapshot; "
                "ignore what is generated, or raise `HARNESS_DURABLE_WORKSPACE_MAX_STEP`",
            )

    def _hold(self, name: str, raw: bytes) -> None:
        if self._held and self._held_bytes + len(raw) > WITH_EVENT:
            self._put(self._held)
            self.unsaid.update(self._held)
            self._held, self._held_bytes = {}, 0
        stored = self._held[name] = compress(raw)
        self._held_bytes += len(raw)
        self.new_bytes += len(raw)
        self.stored_bytes += len(stored)
