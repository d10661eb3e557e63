"""The harness's transcript as lines: read them whatever they hold, and make a clean file of them. Pure.

``parse`` loses nothing and only reports; ``repair`` is what the harness gets to read. Lines that need no
change stay byte for byte what they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from .naming import RESUME_SENTINEL
from .shapes import Json, decode, encode, mapping, objects, text_of, word

Trouble = Literal["unreadable", "torn", "duplicate", "dangling", "foreign"]
"""``unreadable``: no JSON object. ``torn``: the same at the very end. ``duplicate``: a uuid again.
``dangling``: its parent is nowhere in the file. ``foreign``: it names another session."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with a line: its number from 0, its place and length in bytes."""

    trouble: Trouble
    line: int
    offset: int
    length: int


class Line(msgspec.Struct, frozen=True):
    """A readable line, as it is written and as it is understood."""

    raw: bytes
    value: Json

    @property
    def uuid(self) -> str:
        return word(self.value.get("uuid"))

    @property
    def parent(self) -> str:
        return word(self.value.get("parentUuid"))

    @property
    def kind(self) -> str:
        return word(self.value.get("type"))

    @property
    def message(self) -> Json:
        return mapping(self.value.get("message"))

    @property
    def blocks(self) -> list[Json]:
        return objects(self.message.get("content"))

    @property
    def response(self) -> str:
        """Which response it is a part of; empty unless the model said it."""
        return word(self.message.get("id")) if self.kind == "assistant" else ""

    @property
    def asks(self) -> list[str]:
        """Ids of the tool calls that it asks for."""
        if self.kind != "assistant":
            return []
        calls = [word(block.get("id")) for block in self.blocks if block.get("type") == "tool_use"]
        return [call for call in calls if call]

    @property
    def results(self) -> list[Json]:
        """The tool results that it brings."""
        if self.kind != "user":
            return []
        return [block for block in self.blocks if block.get("type") == "tool_result"]

    @property
    def delivered(self) -> str:
        """The uuid of the user's message that it shows to be delivered, or nothing."""
        attachment = mapping(self.value.get("attachment"))
        if attachment.get("type") == "queued_command":
            return word(attachment.get("source_uuid"))
        return self.uuid if self.kind == "user" and not self.results else ""

    def changed(self, **members: object) -> Line:
        """The same line with other members."""
        return made({**self.value, **members})


def made(value: Json) -> Line:
    """A line of our own."""
    return Line(encode(value), value)


def parse(lines: Sequence[bytes], native: str = "") -> tuple[list[Line], list[Finding]]:
    """Every readable line in order, and what is wrong. ``native``: whose transcript it should be."""
    found: list[Line] = []
    findings: list[Finding] = []
    parents: list[tuple[str, Finding]] = []
    known: set[str] = set()
    offset = 0
    for number, raw in enumerate(lines):
        here = offset
        offset += len(raw) + 1

        def note(trouble: Trouble, number: int = number, here: int = here, length: int = len(raw)) -> Finding:
            return Finding(trouble, number, here, length)

        line = _read(raw)
        if line is None:
            if raw.strip():
                findings.append(note("torn" if number == len(lines) - 1 else "unreadable"))
            continue
        found.append(line)
        if line.uuid and line.uuid in known:
            findings.append(note("duplicate"))
        known.add(line.uuid)
        parents.append((line.parent, note("dangling")))
        if native and word(line.value.get("sessionId")) not in ("", native):
            findings.append(note("foreign"))
    findings += [finding for parent, finding in parents if parent and parent not in known]
    return found, sorted(findings, key=lambda finding: finding.line)


def _read(raw: bytes) -> Line | None:
    trimmed = raw.strip(b"\0 \t\r\n")
    value = decode(trimmed) if trimmed else None
    return Line(trimmed, value) if value is not None else None


def repair(lines: Sequence[Line]) -> list[Line]:
    """What the harness can read: no line twice, none of its own notes that it was resumed, and each line's
    parent within the file. A parent that is nowhere is taken to be the line before."""
    once: list[Line] = []
    known: set[str] = set()
    for line in lines:
        if not line.uuid or line.uuid not in known:
            once.append(line)
            known.add(line.uuid)
    gone = {line.uuid: line.parent for line in once if _is_sentinel(line)}
    kept: list[Line] = []
    before = ""
    for line in once:
        if line.uuid in gone:
            continue
        parent = line.parent
        while parent in gone:
            parent = gone[parent]
        if parent and parent not in known:
            parent = before
        kept.append(line if parent == line.parent else line.changed(parentUuid=parent or None))
        before = line.uuid or before
    return kept


def _is_sentinel(line: Line) -> bool:
    return line.kind == "user" and text_of(line.message.get("content")).strip() == RESUME_SENTINEL


def is_conversation(line: Line) -> bool:
    """Does the model see it as a message? A file without any such line is none that can be resumed."""
    return line.kind in ("user", "assistant") and not line.value.get("isSidechain")


def tail(lines: Sequence[Line]) -> Line | None:
    """The last message of the conversation."""
    return next((line for line in reversed(lines) if is_conversation(line)), None)


def usage(lines: Sequence[Line]) -> dict[str, Json]:
    """Tokens by response. Each line of a response repeats them, so they must not be added up by line."""
    return {line.response: mapping(line.message.get("usage")) for line in lines if line.response}
