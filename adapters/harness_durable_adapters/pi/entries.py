"""The harness's session file: a header, then entries, each with the id of the one before it. Pure.

It is a tree, and what the model sees is the path that leads to the last line. Lines are read whatever they
hold; of each only what a rebuild must know is kept, since a file may be large."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from ..common.lost import Place, place
from ..common.shapes import Json, decode, mapping, objects, outline, text_of, word
from .naming import LOST

VERSION = 3
"""Of the format; the harness makes files of older ones into it."""

Trouble = Literal["unreadable", "foreign", "duplicate", "orphan", "dangling", "old"]
"""``unreadable``: no JSON object. ``foreign``: it is no entry of a session. ``duplicate``: its id again.
``orphan``: a result whose call is nowhere before it, which the provider would refuse.
``dangling``: its parent is nowhere before it, and the harness would lose all that is above. ``old``: it has
no id, as in the first version of the format."""


class Entry(msgspec.Struct, frozen=True):
    """A line as it is understood; ``line`` is its number from 0. ``calls`` are the tool calls that it asks
    for, ``result`` is the one that it answers; ``stop`` is why an assistant's message ended, ``number`` the
    message of ours that it is. ``error`` is what the provider, or the harness, had to say;
    ``is_whole``: a message has a role and something to say. ``lost``: of an entry of ours that keeps what the
    model is to be told of damage, the words."""

    line: int
    kind: str
    id: str
    parent: str
    role: str = ""
    calls: tuple[str, ...] = ()
    result: str = ""
    stop: str = ""
    number: str = ""
    text: str = ""
    error: str = ""
    is_whole: bool = True
    lost: str = ""

    @property
    def is_header(self) -> bool:
        return self.kind == "session"

    @property
    def is_talk(self) -> bool:
        """Does the model see it as a message?"""
        return self.role in ("user", "assistant", "toolResult")

    @property
    def is_dropped(self) -> bool:
        """Does the harness leave it out of what it asks?"""
        return self.role == "assistant" and self.stop in ("aborted", "error")


class Finding(msgspec.Struct, frozen=True):
    """A trouble with a line, which is numbered from 0, and where that line is in the file."""

    trouble: Trouble
    line: int
    place: Place


def readable(raw: bytes) -> Json | None:
    """The object in a line, as deep as it can be read; ``None`` if it holds none."""
    trimmed = raw.strip(b"\0 \t\r\n")
    found = decode(trimmed)
    return found if found is not None else outline(trimmed)


def read(raw: bytes, line: int = -1) -> Entry | None:
    """An entry, or the header; ``None`` for what is neither."""
    found = readable(raw)
    kind = word(found.get("type")) if found is not None else ""
    if found is None or not kind:
        return None
    message = mapping(found.get("message"))
    role = word(message.get("role"))
    blocks = objects(message.get("content")) if role == "assistant" else []
    return Entry(
        line,
        kind,
        word(found.get("id")),
        word(found.get("parentId")),
        role,
        tuple(word(block.get("id")) for block in blocks if block.get("type") == "toolCall"),
        word(message.get("toolCallId")) if role == "toolResult" else "",
        word(message.get("stopReason")),
        word(message.get("durable")),
        text_of(message.get("content")) if role == "assistant" else "",
        word(message.get("errorMessage")),
        bool(role) and isinstance(message.get("content", ""), str | list),
        word(mapping(found.get("data")).get("lost")) if found.get("customType") == LOST else "",
    )


class Parser:
    """Reads a file line by line. ``entries`` are those that can stay, the header first if there is one."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.findings: list[Finding] = []
        self.count = self._offset = 0
        self._ids: set[str] = set()
        self._calls: set[str] = set()

    def take(self, raw: bytes) -> None:
        """The next line."""
        line, self.count = self.count, self.count + 1
        offset, self._offset = self._offset, self._offset + len(raw) + 1
        if not raw.strip():
            return
        entry = read(raw, line)
        trouble = self._trouble(raw, entry)
        if trouble is not None:
            self.findings.append(Finding(trouble, line, place(raw, offset)))
        if entry is not None and trouble not in ("foreign", "duplicate", "orphan"):
            self.entries.append(msgspec.structs.replace(entry, text=""))
            self._ids.add(entry.id)
            self._calls.update(entry.calls)

    def _trouble(self, raw: bytes, entry: Entry | None) -> Trouble | None:
        if entry is None:
            return "unreadable" if readable(raw) is None else "foreign"
        if entry.is_header:
            return "foreign" if self.entries else None
        if entry.kind in _EVENTS or (entry.kind == "message" and not entry.is_whole):
            return "foreign"
        if entry.id and entry.id in self._ids:
            return "duplicate"
        if entry.result and entry.result not in self._calls:
            return "orphan"
        if not entry.id:
            return "old"
        return "dangling" if entry.parent and entry.parent not in self._ids else None

    @property
    def sound(self) -> bool:
        """Can the harness read the file as it is?"""
        return not self.findings and (not self.entries or self.entries[0].is_header)


_EVENTS = frozenset(
    (
        *("agent_start", "agent_end", "agent_settled", "turn_start", "turn_end"),
        *("message_start", "message_update", "message_end"),
        *("tool_execution_start", "tool_execution_update", "tool_execution_end"),
    )
)
"""Lines of the harness's output, which look much like entries."""


def parse(lines: Iterable[bytes]) -> Parser:
    """The same at once, for what is in memory."""
    parser = Parser()
    for raw in lines:
        parser.take(raw)
    return parser


def path(entries: Sequence[Entry]) -> list[Entry]:
    """What leads to the last entry, oldest first."""
    known = {entry.id: entry for entry in entries if not entry.is_header}
    found: list[Entry] = []
    at = entries[-1] if entries and not entries[-1].is_header else None
    while at is not None:
        found.append(at)
        at = known.pop(at.parent, None)
    return found[::-1]
