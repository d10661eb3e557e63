"""The harness's transcript as lines: read them whatever they hold, and make a clean file of them. Pure.

``parse`` loses nothing and only reports; ``repair`` is what the harness gets to read. Lines that need no
change stay byte for byte what they were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import msgspec

from harness_durable.gateway import rawjson

from ..common.shapes import Json, decode, encode, has_no_number, mapping, objects, outline, text_of, word
from .naming import RESUME_SENTINEL

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


SHOWS = "harnessDurableShows"
"""A member of lines that we write; the harness reads over it."""


class Finding(msgspec.Struct, frozen=True):
    """Something wrong with a line: its number from 0, its place and length in bytes. ``zeros``: how many zero
    bytes it ends in, as a power cut leaves them. ``lost``: it cannot be read at all, and is left out."""

    trouble: Trouble
    line: int
    offset: int
    length: int
    zeros: int = 0
    lost: bool = False


class Line(msgspec.Struct, frozen=True):
    """A readable line, as it is written and as it is understood. ``outlined``: ``value`` is not all of it.
    ``number``: the log has it as this line, from 0; -1 if the log has it not, or not as it is now. Without
    ``raw`` it is a slim one; ``hung`` then says that its parent is another one by now."""

    raw: bytes
    value: Json
    outlined: bool = False
    number: int = -1
    hung: bool = False

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

    @property
    def shows(self) -> list[str]:
        """Uuids of the user's messages that it shows to be delivered: that which it is, and those whose words
        stand in a result that we wrote as the model was given it."""
        return [uuid for uuid in (self.delivered, *word(self.value.get(SHOWS)).split()) if uuid]

    def changed(self, **members: object) -> Line:
        """The same line with other members. Only the parent of a slim line can be changed."""
        if not self.raw:
            return msgspec.structs.replace(self, value={**self.value, **members}, hung=True)
        if not self.outlined:
            return made({**self.value, **members})
        spelled = {name: msgspec.Raw(encode(member)) for name, member in members.items()}
        raw = rawjson.encode_object({**rawjson.members(self.raw), **spelled})
        return Line(raw, {**self.value, **members}, outlined=True)


def made(value: Json) -> Line:
    """A line of our own."""
    return Line(encode(value), value)


class Parser:
    """Reads a transcript line by line. ``native``: whose it should be; ``keep``: what is kept of a line."""

    def __init__(self, native: str = "", keep: Callable[[Line], Line] | None = None) -> None:
        self._native, self._keep = native, keep
        self._found: list[Line] = []
        self._findings: list[Finding] = []
        self._parents: list[tuple[str, Finding]] = []
        self._known: set[str] = set()
        self._offset = 0
        self.count = 0

    def take(self, raw: bytes) -> None:
        """The next line."""
        place = Finding("torn", self.count, self._offset, len(raw), len(raw) - len(raw.rstrip(b"\0")))
        self.count += 1
        self._offset += len(raw) + 1
        line = read(raw)
        if line is not None:
            self._judge(line, place)
            if len(line.raw) == len(raw):
                line = msgspec.structs.replace(line, number=place.line)
            self._found.append(self._keep(line) if self._keep is not None else line)
        elif raw.strip():
            self._findings.append(msgspec.structs.replace(place, trouble="unreadable", lost=True))

    def _judge(self, line: Line, place: Finding) -> None:
        def note(trouble: Trouble) -> Finding:
            return msgspec.structs.replace(place, trouble=trouble)

        if place.zeros:
            self._findings.append(note("torn"))
        if line.outlined:
            self._findings.append(note("deep"))
        elif has_no_number(line.raw):
            self._findings.append(note("no_number"))
        if line.uuid and line.uuid in self._known:
            self._findings.append(note("duplicate"))
        self._known.add(line.uuid)
        if line.parent and line.parent not in self._known:
            self._parents.append((line.parent, note("dangling")))
        if self._native and word(line.value.get("sessionId")) not in ("", self._native):
            self._findings.append(note("foreign"))

    def end(self) -> tuple[list[Line], list[Finding]]:
        """Every readable line in order, and what is wrong."""
        found = self._findings + [finding for parent, finding in self._parents if parent not in self._known]
        found.sort(key=lambda finding: finding.line)
        if found and found[-1].line == self.count - 1 and found[-1].lost:
            found[-1] = msgspec.structs.replace(found[-1], trouble="torn")
        return self._found, found


def parse(lines: Iterable[bytes], native: str = "") -> tuple[list[Line], list[Finding]]:
    """The same at once, for what is in memory."""
    parser = Parser(native)
    for raw in lines:
        parser.take(raw)
    return parser.end()


def read(raw: bytes) -> Line | None:
    """A line as far as it can be read; ``None`` if it holds no object."""
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
