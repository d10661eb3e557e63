"""The harness tells what it says twice: on its output, and in its transcript. If the transcript falls silent,
the output is the truth, and the log gets its lines from there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from msgspec import Raw

from harness_durable import clock
from harness_durable.gateway import rawjson

from ..common.shapes import Json, encode, word
from .transcript import Line


class Gap:
    """Messages of the main conversation that were seen on the output and not yet in the mirror."""

    def __init__(self, native: str) -> None:
        self._native = native
        self._unwritten: dict[str, Json] = {}
        self._written: set[str] = set()
        self._last = ""

    def streamed(self, frame: Json) -> None:
        """An ``assistant`` or ``user`` frame."""
        uuid = word(frame.get("uuid"))
        ours = not frame.get("parent_tool_use_id") and not frame.get("isReplay")
        if uuid and ours and uuid not in self._written:
            self._unwritten[uuid] = frame

    def mirrored(self, lines: Sequence[Line]) -> None:
        """Lines of a ``transcript_mirror`` frame."""
        for line in lines:
            self._unwritten.pop(line.uuid, None)
            if line.uuid and not line.value.get("isSidechain"):
                self._written.add(line.uuid)
                self._last = line.uuid

    def lines(self) -> list[bytes]:
        """What the transcript lacks, as the harness would have written it. Empty if all is well."""
        found: list[bytes] = []
        parent = self._last
        for uuid, frame in self._unwritten.items():
            found.append(self._line(uuid, frame, parent))
            parent = uuid
        self._unwritten.clear()
        return found

    def _line(self, uuid: str, frame: Json, parent: str) -> bytes:
        message = frame.get("message")
        line: Json = {
            "parentUuid": parent or None,
            "isSidechain": False,
            "type": frame.get("type"),
            "message": None,
            "uuid": uuid,
            "timestamp": frame.get("timestamp") or _now(),
            "userType": "external",
            "sessionId": self._native,
        }
        # Too deep to be read, it is passed on as it came.
        spelled = {name: Raw(encode(member)) for name, member in line.items()}
        spelled["message"] = Raw(message if isinstance(message, bytes) else encode(message))
        return rawjson.encode_object(spelled)


def _now() -> str:
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC).isoformat(timespec="milliseconds")
