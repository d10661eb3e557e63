"""Session files of Pi: real ones where they are at hand, and made-up ones with the same oddities."""

from __future__ import annotations

import json
from pathlib import Path

FILES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "files" / "pi"


def real() -> dict[str, list[bytes]]:
    """By file name, without empty lines; none where there are no files."""
    found = {path.name: path.read_bytes().split(b"\n") for path in sorted(FILES.glob("*.jsonl"))}
    return {name: [line for line in lines if line.strip()] for name, lines in found.items()}


def line(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


DEEP = b'{"x":' + b"[" * 300 + b"]" * 300 + b"}"
HEADER = line({"type": "session", "version": 3, "id": "s", "timestamp": "t", "cwd": "/old"})


def message(name: str, parent: str | None, body: dict[str, object]) -> bytes:
    return line({"type": "message", "id": name, "parentId": parent, "timestamp": "t", "message": body})


def user(name: str, parent: str | None, text: str, number: str = "") -> bytes:
    body: dict[str, object] = {"role": "user", "content": [{"type": "text", "text": text}]}
    return message(name, parent, {**body, "durable": number} if number else body)


def assistant(name: str, parent: str, *calls: str, stop: str = "", text: str = "") -> bytes:
    blocks: list[object] = [{"type": "text", "text": text}] if text else []
    blocks += [{"type": "toolCall", "id": call, "name": "bash", "arguments": None} for call in calls]
    reason = stop or ("toolUse" if calls else "stop")
    return message(name, parent, {"role": "assistant", "content": blocks, "stopReason": reason})


def result(name: str, parent: str, call: str) -> bytes:
    content = [{"type": "text", "text": "done"}]
    body: dict[str, object] = {
        "role": "toolResult",
        "toolCallId": call,
        "toolName": "bash",
        "content": content,
    }
    return message(name, parent, {**body, "isError": False})


def invented() -> dict[str, list[bytes]]:
    """What can go wrong with a file, one oddity each."""
    first: dict[str, object] = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    hook: dict[str, object] = {"role": "hookMessage", "customType": "x", "content": "said", "display": False}
    old = {"type": "message", "timestamp": "t"}
    said, asks = user("a", None, "hi"), assistant("b", "a", "toolu_old")
    return {
        "a sound one": [HEADER, said, asks, result("c", "b", "toolu_old")],
        "no header": [said, assistant("b", "a", text="hello")],
        "torn at its end": [HEADER, said, asks[:20]],
        "torn in its middle": [HEADER, said, asks[:20], result("c", "b", "toolu_old")],
        "zero bytes": [HEADER, said, b"\0" * 64],
        "an id again": [HEADER, said, said, assistant("b", "a", text="hello")],
        "a parent that is nowhere": [HEADER, said, assistant("b", "gone", text="hello")],
        "a call without a result": [HEADER, said, asks],
        "a first version": [
            line({"type": "session", "id": "s", "cwd": "/"}),
            line({**old, "message": first}),
        ],
        "a hook's message": [
            line({"type": "session", "id": "s", "cwd": "/"}),
            line({**old, "message": first}),
            line({**old, "message": hook}),
        ],
        "nothing but odd lines": [b"7", b"[]", b"{}", line({"type": 7}), line({"type": "message"})],
        "a result without its call": [HEADER, said, result("c", "a", "toolu_gone")],
        "deep": [HEADER, said, asks.replace(b"null", DEEP), result("c", "b", "toolu_old")],
        "deep, and hung anew": [HEADER, said, asks.replace(b"null", DEEP).replace(b'"a"', b'"gone"')],
    }
