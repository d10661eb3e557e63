"""A transcript's lines as the items of a conversation. Pure.

Ours hold one item each, in the form of the harness's own rollout files, so that such a file, of any version,
can be a session's transcript as well. What is no item (events, contexts, counts) is passed over; what cannot
be read is reported."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..common.shapes import Json, decode, encode, mapping, objects, word
from .items import is_call, is_output, is_user, text_in

_OTHERS = frozenset(
    {
        "compacted",
        "event_msg",
        "response_item",
        "session_meta",
        "thread_settings_applied",
        "token_usage_record",
        "turn_context",
        "world_state",
    }
)


class Finding(msgspec.Struct, frozen=True):
    """A line, counted from 1, that could not be used, and why."""

    line: int
    length: int
    trouble: str


def line_of(item: Json) -> bytes:
    """An item as a line of a transcript."""
    return encode({"type": "response_item", "payload": item})


class Parser:
    """Takes a transcript line by line, ``end`` is the last. Holds the items of the last compaction and those
    after it, and lines of an object that somebody printed over many."""

    def __init__(self) -> None:
        self.items: list[Json] = []
        self.findings: list[Finding] = []
        self.count = 0
        self._heard: list[tuple[int, str]] = []
        self._parts: list[bytes] = []

    def take(self, raw: bytes) -> None:
        self.count += 1
        if self._parts:
            self._parts.append(raw)
            if raw.rstrip() == b"}":
                whole, self._parts = b"\n".join(self._parts), []
                self._line(whole)
        elif raw.strip() == b"{":
            self._parts.append(raw)
        elif raw.strip():
            self._line(raw)

    def end(self) -> None:
        """What people said in old or damaged files stands only in events there."""
        if self._parts:
            self._report(b"\n".join(self._parts), "is no JSON object")
        there = {text_in(item) for item in self.items if is_user(item)}
        for place, text in reversed(self._heard):
            if text not in there and place <= len(self.items):
                self.items.insert(place, _message("user", [{"type": "input_text", "text": text}]))

    def _line(self, raw: bytes) -> None:
        line = decode(raw)
        if line is None:
            self._report(raw, "is no JSON object")
            return
        kind, payload = word(line.get("type")), mapping(line.get("payload"))
        if kind == "compacted" and isinstance(payload.get("replacement_history"), list):
            self.items, self._heard = objects(payload["replacement_history"]), []
        elif kind == "response_item" and (payload.get("type") or payload.get("role")):
            self.items.append(_whole(payload))
        elif kind == "event_msg" and payload.get("type") == "user_message":
            self._heard.append((len(self.items), word(payload.get("message"))))
        elif kind in ("message", "reasoning") or is_call(line) or is_output(line):
            self.items.append(_whole(line))  # the oldest versions wrote the items without an envelope
        elif kind not in _OTHERS and "id" not in line and "record_type" not in line:
            self._report(raw, f"is of no kind that is known ({kind or 'none'})")

    def _report(self, raw: bytes, trouble: str) -> None:
        self.findings.append(Finding(self.count, len(raw), trouble))


def _whole(item: Json) -> Json:
    """A message says whose it is, and what an assistant says is output."""
    if item.get("type", "message") != "message":
        return item
    wrong = "input_text" if item.get("role") == "assistant" else "output_text"
    parts = objects(item.get("content"))
    if item.get("type") and not any(part.get("type") == wrong for part in parts):
        return item
    right = {"input_text": "output_text", "output_text": "input_text"}[wrong]
    kept = [{**part, "type": right} if part.get("type") == wrong else part for part in parts]
    return {**item, **_message(word(item.get("role")), kept)}


def _message(role: str, content: list[Json]) -> Json:
    return {"type": "message", "role": role, "content": content}


def parse(lines: Iterable[bytes]) -> tuple[list[Json], list[Finding]]:
    """All of it at once."""
    parser = Parser()
    for line in lines:
        parser.take(line)
    parser.end()
    return parser.items, parser.findings


def paired(items: list[Json]) -> list[Json]:
    """A conversation that a provider accepts: no result without its call, and each call's result once."""
    calls = {word(item.get("call_id")) for item in items if is_call(item)}
    kept: list[Json] = []
    answered: set[str] = set()
    for item in items:
        name = word(item.get("call_id"))
        if is_output(item) and (name not in calls or name in answered):
            continue
        if is_output(item):
            answered.add(name)
        kept.append(item)
    return kept
