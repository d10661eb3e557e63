"""Transcripts of real sessions where they are at hand, and made-up ones with the same oddities everywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

FILES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "files"


def real() -> dict[str, list[bytes]]:
    """By file name, without empty lines. Every one that the list names, or none where there is no list."""
    manifest = FILES / "manifest.tsv"
    rows = [row.split("\t") for row in manifest.read_text().splitlines()] if manifest.is_file() else []
    names = [row[1] for row in rows if row[0] == "claude-code"]
    assert bool(names) == FILES.is_dir(), "there are files, and a list that names none of them"
    found = {name: (FILES / "claude-code" / name).read_bytes().split(b"\n") for name in names}
    return {name: [line for line in lines if line.strip()] for name, lines in found.items()}


def invented() -> dict[str, list[bytes]]:
    """What the real ones are odd in, one oddity each; all of it can be resumed from."""
    say = {"role": "assistant", "model": "m", "stop_reason": "tool_use"}
    use = {"type": "tool_use", "id": "toolu_old", "name": "Bash", "input": {"command": "x"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_old", "content": "done", "is_error": True}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    hi = _line("user", "a", None, {"role": "user", "content": "hi"})
    asking = _line("assistant", "b", "a", {**say, "id": "msg_old", "content": [use]})
    answer = _line("user", "c", "b", {"role": "user", "content": [result]})
    note = {"type": "summary", "summary": "of another session", "leafUuid": "elsewhere"}
    queue = {"type": "queue-operation", "operation": "enqueue", "sessionId": "s"}
    aside = {**_line("user", "d", "a", {"role": "user", "content": "aside"}), "isSidechain": True}
    snapshot: dict[str, object] = {"type": "file-history-snapshot", "messageId": "a", "snapshot": {}}
    odd = {"type": 7, "uuid": ["a"], "parentUuid": 3, "message": "none", "timestamp": None}
    words = {"role": "user", "content": "👩\u200d👩\u200d👧 \u202eשלום e\u0301 漢字"}
    pasted = {"role": "user", "content": [image, {"type": "text", "text": "see"}]}
    lines: dict[str, Sequence[object]] = {
        "pending call": [hi, asking],
        "answered call": [hi, asking, answer],
        "parent never written": [hi, {**asking, "parentUuid": "gone"}],
        "ids twice": [hi, asking, asking, answer],
        "notes first": [*[note] * 16, queue, hi],
        "aside and snapshot": [hi, snapshot, aside, asking, answer],
        "wrong types": [odd, hi, odd],
        "no objects": [hi, 7, "text", [], None, asking],
        "many scripts": [_line("user", "a", None, words)],
        "image": [_line("user", "a", None, pasted), {**asking, "toolUseResult": "y" * 91_000}],
        "times go back": [hi, {**asking, "timestamp": "2025-01-01T00:00:00.000Z"}, answer],
    }
    whole = {name: [json.dumps(line).encode() for line in script] for name, script in lines.items()}
    torn = whole["answered call"]
    return {**whole, "torn": [torn[0], b'{"torn', *torn[1:], torn[1][:-9]]}


def _line(kind: str, uuid: str, parent: str | None, message: Mapping[str, object]) -> dict[str, object]:
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "isSidechain": False,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "sessionId": "s",
        "message": message,
    }


EVERY = {**real(), **invented()}
