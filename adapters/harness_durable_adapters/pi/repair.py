"""A session file that was brought here, and that the harness would read wrongly, made readable. Pure.

What can be read stays, byte for byte where it is in order. What cannot is left out, and the model is told so
by what ``lost_entry`` keeps: with the next message, since what it was asked before must stay as it is."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from harness_durable.gateway import rawjson

from ..common.lost import OPENING, lost
from ..common.shapes import Json, encode, mapping, word
from .entries import Finding, parse, path, readable
from .naming import LOST, entry_id


def repaired(lines: Sequence[bytes], native: str) -> list[bytes]:
    """A file without a header that the harness can read: every line that holds an entry, hung on the one
    before it where its own parent is missing. Lines that are in order stay byte for byte what they were."""
    parser = parse(lines)
    kept = [(entry, lines[entry.line]) for entry in parser.entries if not entry.is_header]
    names = {entry.line: entry.id or entry_id(native, f"line/{entry.line}") for entry, _ in kept}
    found: list[bytes] = []
    known: set[str] = set()
    before = ""
    for entry, raw in kept:
        name = names[entry.line]
        parent = entry.parent if entry.parent in known or (entry.id and not entry.parent) else before
        changed = not entry.id or parent != entry.parent
        found.append(_hung(raw, name, parent, names) if changed else raw.strip(b"\0 \t\r\n"))
        known.add(name)
        before = name
    return _opened(found, native) if any(one.trouble == "unreadable" for one in parser.findings) else found


def lost_entry(findings: Sequence[Finding], native: str, life: str, stamp: str, parent: str) -> Json | None:
    """An entry of our own that keeps what the model is to be told: no part of its conversation. None if
    nothing was left out that it would miss. ``parent``: the last entry; ``stamp``: now."""
    orphans = sum(one.trouble == "orphan" for one in findings)
    clauses = [lost([one.place for one in findings if one.trouble == "unreadable"])]
    if orphans:
        what = "the result of 1 call is" if orphans == 1 else f"the results of {orphans} calls are"
        clauses.append(f"{what} left out, since what asked for it is not on record")
    words = "; ".join(clause for clause in clauses if clause)
    if not words:
        return None
    return {
        "type": "custom",
        "id": entry_id(native, f"{life}/lost"),
        "parentId": parent or None,
        "timestamp": stamp,
        "customType": LOST,
        "data": {"lost": words},
    }


def opening_entry(native: str, parent: str, stamp: str) -> Json:
    """What a conversation begins with whose first message is lost."""
    message: Json = {"role": "user", "content": [{"type": "text", "text": OPENING}], "timestamp": 0}
    name = entry_id(native, f"opened/{parent}")
    return {"type": "message", "id": name, "parentId": parent or None, "timestamp": stamp, "message": message}


def _opened(lines: list[bytes], native: str) -> list[bytes]:
    """A conversation begins on the user's side, or with the summary of a compaction."""
    way = path(parse(lines).entries)
    first = next((entry for entry in way if entry.is_talk), None)
    if first is None or first.role == "user" or any(entry.kind == "compaction" for entry in way):
        return lines
    raw = lines[first.line]
    opening = opening_entry(native, first.parent, word((readable(raw) or {}).get("timestamp")))
    hung = _hung(raw, first.id, str(opening["id"]), {})
    return [*lines[: first.line], encode(opening), hung, *lines[first.line + 1 :]]


def _hung(raw: bytes, name: str, parent: str, names: dict[int, str]) -> bytes:
    """A line with another place. All else stays as it is spelled, however deep it is."""
    members = rawjson.members(raw.strip(b"\0 \t\r\n"))
    members |= {"id": Raw(encode(name)), "parentId": Raw(encode(parent or None))}
    first = members.pop("firstKeptEntryIndex", None)
    kept = names.get(rawjson.number(first)) if first is not None else None
    if kept is not None:
        members["firstKeptEntryId"] = Raw(encode(kept))
    if b"hookMessage" in raw and mapping((readable(raw) or {}).get("message")).get("role") == "hookMessage":
        members["message"] = Raw(
            rawjson.encode_object({**rawjson.members(members["message"]), "role": Raw(b'"custom"')})
        )
    return rawjson.encode_object(members)
