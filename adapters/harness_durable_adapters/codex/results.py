"""Results of built-in tools, as text for the log and for the model. Pure.

The harness tells what became of a call before it tells its model. What is written here looks as the harness
would say it; where its own words are known (in its next request), those are used instead."""

from __future__ import annotations

import msgspec

from ..common.shapes import Json, mapping, objects, word

MOST = 40_000
"""Characters of an output: the harness itself shows about as much to its model, the middle left out."""


class Ended(msgspec.Struct, frozen=True):
    """A call that ran to its end."""

    call: str
    ok: bool
    text: str


def ended(item: Json) -> Ended | None:
    """From an ``item/completed``; ``None`` for what is no built-in call that ran."""
    status, call = item.get("status"), word(item.get("id"))
    if status not in ("completed", "failed") or not call:
        return None
    match item.get("type"):
        case "commandExecution" if isinstance(item.get("exitCode"), int):
            return Ended(call, item.get("exitCode") == 0, _command(item))
        case "fileChange":
            return Ended(call, status == "completed", _patch(item, ok=status == "completed"))
        case _:
            return None


def succeeded(output: str) -> bool:
    """Does a result, as the model reads it, tell of a success?"""
    head, _, _ = output.partition("\nOutput:")
    for line in head.splitlines():
        for begins in ("Process exited with code ", "Exit code: "):
            if line.startswith(begins):
                return line.removeprefix(begins).strip() == "0"
    return "Process running with session ID" in head


def _command(item: Json) -> str:
    took = item.get("durationMs")
    seconds = took / 1000 if isinstance(took, int | float) else 0.0
    head = f"Wall time: {seconds:.4f} seconds\nProcess exited with code {item.get('exitCode')}"
    return f"{head}\nOutput:\n{_shortened(word(item.get('aggregatedOutput')))}"


def _patch(item: Json, *, ok: bool) -> str:
    if not ok:
        return "Exit code: 1\nOutput:\nThe patch could not be applied."
    marks = {"add": "A", "delete": "D"}
    lines = [
        f"{marks.get(word(mapping(change.get('kind')).get('type')), 'M')} {word(change.get('path'))}"
        for change in objects(item.get("changes"))
    ]
    told = "\n".join(["Success. Updated the following files:", *lines])
    return f"Exit code: 0\nOutput:\n{told}\n"


def _shortened(text: str) -> str:
    if len(text) <= MOST:
        return text
    left_out = len(text) - MOST
    return f"{text[: MOST // 2]}\n…{left_out} characters left out…\n{text[-MOST // 2 :]}"
