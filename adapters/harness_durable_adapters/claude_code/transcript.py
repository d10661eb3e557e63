"""The harness's transcript as lines: read them whatever they hold, and make a clean file of them. Pure.

``parse`` loses nothing and only reports; ``repair`` is what the harness gets to read. Lines that need no
change stay byte for byte what they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from harness_durable.gateway import rawjson

from .naming import RESUME_SENTINEL
from .shapes import Json, decode, encode, has_no_number, mapping, objects, outline, text_of, word

Trouble = Literal["unreadable", "torn", "duplicate", "dangling", "foreign", "deep", "no_number"]
"""``unreadable``: no JSON object. ``torn``: the same at the very end, or zero bytes behind an object.
``duplicate``: a uuid again. ``dangling``: its parent is nowhere in the file. ``foreign``: it names another
session. ``deep``: nested too deeply to be read whole. ``no_number``: it holds ``NaN`` or ``Infinity``."""


_INTERRUPTED = ("[Request interrupted by user]", "[Request interrupted by user for tool use]")
_STOPPED = (
    "The user doesn't want to proceed with this tool use.",
    "The user doesn't want to take this action right now.",
)
"""How the harness begins the result of every call that was stopped, whether it ran or not."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with a line: its number from 0, its place and length in bytes. ``zeros``: how many zero
    bytes it ends in, as a power cut leaves them."""

    trouble: Trouble
    line: int
    offset: int
    length: int
    zeros: int = 0


class Line(msgspec.Struct, frozen=True):
    """A readable line, as it is written and as it is understood. ``outlined``: ``value`` is not all of it."""

    raw: bytes
    value: Json
    outlined: bool = False

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
    def is_interruption(self) -> bool:
        """Is it the harness's own note that it was interrupted? A message of a user is a plain string."""
        said = [word(block.get("text")) for block in self.blocks]
        return self.kind == "user" and len(said) == 1 and said[0] in _INTERRUPTED

    @property
    def delivered(self) -> str:
        """The uuid of the user's message that it shows to be delivered, or nothing."""
        attachment = mapping(self.value.get("attachment"))
        if attachment.get("type") == "queued_command":
            return word(attachment.get("source_uuid"))
        return self.uuid if self.kind == "user" and not self.results else ""

    def changed(self, **members: object) -> Line:
        """The same line with other members."""
        if not self.outlined:
            return made({**self.value, **members})
        spelled = {name: msgspec.Raw(encode(member)) for name, member in members.items()}
        raw = rawjson.encode_object({**rawjson.members(self.raw), **spelled})
        return Line(raw, {**self.value, **members}, outlined=True)


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
        place = Finding("torn", number, here, len(raw), len(raw) - len(raw.rstrip(b"\0")))

        def note(trouble: Trouble, place: Finding = place) -> Finding:
            return msgspec.structs.replace(place, trouble=trouble)

        line = _read(raw)
        if line is None:
            if raw.strip():
                findings.append(note("torn" if number == len(lines) - 1 else "unreadable"))
            continue
        found.append(line)
        if place.zeros:
            findings.append(note("torn"))
        if line.outlined:
            findings.append(note("deep"))
        elif has_no_number(line.raw):
            findings.append(note("no_number"))
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
    value = decode(trimmed)
    if value is not None:
        return Line(trimmed, value)
    value = outline(trimmed)
    return Line(trimmed, value, outlined=True) if value is not None else None


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


def is_made_up(result: Json) -> bool:
    """Is it the result that the harness gives to every call that was stopped, whether it ran or not?"""
    return text_of(result.get("content")).startswith(_STOPPED)
