"""From what was mirrored and what the log knows to a transcript that the harness continues from. Pure.

A response whose calls must run (again) in the harness is cut out: the harness asks once more, the gateway
answers from the log, and the barrier decides call by call. A response of which something has begun stays,
and every call of it gets its one result. ``rebuild`` of its own result changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from harness_durable.policy import UNKNOWN

from .naming import line_uuid
from .response import Recorded
from .shapes import Json, text_of
from .transcript import Line, is_conversation, made, repair, tail

_FALSE = (
    "The user doesn't want to proceed with this tool use.",
    "The user doesn't want to take this action right now.",
)
"""How the harness begins the result of every call that was stopped, whether it ran or not."""
INTERRUPTED = "[Request interrupted by user]"
"""The harness's own words; a turn that ends in them is over for it."""


class Answer(msgspec.Struct, frozen=True):
    """What the model is told about a call: the content of its result, and the harness's structured form."""

    content: object
    is_error: bool
    detail: object


class Response(msgspec.Struct, frozen=True):
    """A response of the main conversation that asks for ``calls``. ``open``: one of them has no outcome, so
    the harness must get to it. ``began``: one was released or has an outcome other than not_started.
    ``recorded`` is needed only if lines of it are missing."""

    id: str
    calls: tuple[str, ...]
    open: bool
    began: bool
    recorded: Recorded | None = None


class Case(msgspec.Struct, frozen=True):
    """All that counts beside the lines. ``running``: the turn is not settled. ``prompt``: uuid and text of
    its message. ``answers``: by call, for every call that has an outcome."""

    native: str
    running: bool
    prompt: tuple[str, str]
    responses: Sequence[Response]
    answers: Mapping[str, Answer]
    cwd: str
    version: str


Mode = Literal["fresh", "resume", "continue"]


class Rebuilt(msgspec.Struct, frozen=True):
    """``made_up`` are calls that got a line from us; ``cut`` are responses that are given again."""

    lines: list[Line]
    mode: Mode
    made_up: tuple[str, ...]
    cut: tuple[str, ...]


def missing(lines: Sequence[Line], response: Response) -> bool:
    """Are lines of this response not there?"""
    there = {call for line in lines for call in line.asks}
    return not there.issuperset(response.calls)


def rebuild(found: Sequence[Line], case: Case) -> Rebuilt:
    """The transcript to start from, and how to start."""
    lines = repair(found)
    cut: list[str] = []
    made_up: list[str] = []
    # The harness writes in order: a response without lines whose successor has some was never its own.
    present = [place for place, response in enumerate(case.responses) if not missing(lines, response)]
    begin = present[-1] if present else 0
    for place, response in enumerate(case.responses):
        if response.open and case.running:
            lines = _without(lines, response)
            cut.append(response.id)
            continue
        if missing(lines, response) and place >= begin:
            lines = _completed(lines, response, case)
        lines = _answered(lines, response.calls, case, made_up)
    lines = _answered(lines, [call for line in lines for call in line.asks], case, made_up)
    lines = [_corrected(line, case, made_up) for line in lines]
    if _delivered(lines, case):
        return Rebuilt(_without_end(lines), "continue", tuple(made_up), tuple(cut))
    mode: Mode = "resume" if any(is_conversation(line) for line in lines) else "fresh"
    return Rebuilt(_closed(lines, case), mode, tuple(made_up), tuple(cut))


def _delivered(lines: Sequence[Line], case: Case) -> bool:
    """Has the harness got the message of the turn that is not settled?"""
    return case.running and any(line.delivered == case.prompt[0] for line in lines)


def _without(lines: Sequence[Line], response: Response) -> list[Line]:
    """Take a response out, and what came of it. Results of earlier calls stay, wherever they stand."""
    first = next((place for place, line in enumerate(lines) if _belongs(line, response)), len(lines))
    later = [
        line
        for line in lines[first:]
        if any(result.get("tool_use_id") not in response.calls for result in line.results)
    ]
    return [*lines[:first], *later]


def _belongs(line: Line, response: Response) -> bool:
    return bool(response.id and line.response == response.id) or any(
        call in response.calls for call in line.asks
    )


def _completed(lines: list[Line], response: Response, case: Case) -> list[Line]:
    """Write the lines of a response that the harness did not get to write."""
    recorded = response.recorded
    if not response.began or recorded is None:
        return _without(lines, response)
    lines = list(lines)
    if case.running and not _delivered(lines, case):
        lines.append(_prompt(lines, case))
    there = [line for line in lines if _belongs(line, response)]
    asked = {call for line in there for call in line.asks}
    for place, block in enumerate(recorded.blocks):
        if block.get("type") == "tool_use":
            written = block.get("id") in asked
        else:
            written = any(_same(block, line) for line in there)
        if not written:
            lines.append(_assistant(lines, recorded, place, block, case))
    return lines


def _same(block: Json, line: Line) -> bool:
    kind = block.get("type")
    return any(
        other.get("type") == kind and other.get(str(kind)) == block.get(str(kind)) for other in line.blocks
    )


def _answered(lines: list[Line], calls: Sequence[str], case: Case, made_up: list[str]) -> list[Line]:
    """One result for each of these calls: those that are missing are put where they belong."""
    for call in calls:
        asked = next((line for line in lines if call in line.asks), None)
        there = any(result.get("tool_use_id") == call for line in lines for result in line.results)
        if asked is not None and not there:
            answer = case.answers.get(call) or Answer(UNKNOWN, True, UNKNOWN)
            lines = _inserted(lines, asked, _result(asked, call, answer, case))
            made_up.append(call)
    return lines


def _inserted(lines: list[Line], asked: Line, result: Line) -> list[Line]:
    """Behind the response and the results that it has; what followed those follows this."""
    group = {asked.uuid}
    place = 0
    for number, line in enumerate(lines):
        same = line.response == asked.response if asked.response else line is asked
        if same or (line.results and line.parent in group):
            group.add(line.uuid)
            place = number
    before = lines[place]
    after = [
        line.changed(parentUuid=result.uuid) if line.parent == before.uuid and line.uuid else line
        for line in lines[place + 1 :]
    ]
    return [*lines[: place + 1], result, *after]


def _corrected(line: Line, case: Case, made_up: list[str]) -> Line:
    """A stopped call's result says that it did not run. The log knows better."""
    results = line.results
    if len(results) != 1 or not text_of(results[0].get("content")).startswith(_FALSE):
        return line
    call = str(results[0].get("tool_use_id"))
    answer = case.answers.get(call)
    if answer is None:
        return line
    made_up.append(call)
    block = {**results[0], "content": answer.content, "is_error": answer.is_error}
    return line.changed(message={**line.message, "content": [block]}, toolUseResult=answer.detail)


def _without_end(lines: list[Line]) -> list[Line]:
    """A turn that is not settled, in a transcript that ends in a last word: the harness would think that it
    is done. Without that word it asks again, and is answered from the log. What it said about errors of its
    own is no part of the conversation either."""
    while (last := tail(lines)) is not None and last.kind == "assistant" and not last.asks:
        name = last.response or last.uuid
        while (part := tail(lines)) is not None and name in (part.response, part.uuid):
            lines = [line for line in lines if line is not part]
    return repair(lines)


def _closed(lines: list[Line], case: Case) -> list[Line]:
    """A settled turn must not look interrupted, or the harness would put words into it."""
    last = tail(lines)
    if (
        last is None
        or last.kind == "assistant"
        or text_of(last.message.get("content")).startswith("[Request")
    ):
        return lines
    message: Json = {"role": "user", "content": [{"type": "text", "text": INTERRUPTED}]}
    return [*lines, _user(lines, line_uuid(case.native, f"closed/{last.uuid}"), message, case)]


# ----------------------------------------------------------------------------------- lines of our own


def _last_uuid(lines: Sequence[Line]) -> str | None:
    return next((line.uuid for line in reversed(lines) if line.uuid), None)


def _common(lines: Sequence[Line], uuid: str, parent: str | None, case: Case) -> Json:
    """What every line has, in the words of the line before it."""
    before = next((line.value for line in reversed(lines) if line.uuid), Json())
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "uuid": uuid,
        "timestamp": before.get("timestamp", "2026-01-01T00:00:00.000Z"),
        "userType": "external",
        "entrypoint": "sdk-cli",
        "cwd": before.get("cwd", case.cwd),
        "sessionId": case.native,
        "version": case.version,
    }


def _user(lines: Sequence[Line], uuid: str, message: Json, case: Case) -> Line:
    return made({**_common(lines, uuid, _last_uuid(lines), case), "type": "user", "message": message})


def _prompt(lines: Sequence[Line], case: Case) -> Line:
    uuid, text = case.prompt
    return _user(lines, uuid, {"role": "user", "content": text}, case)


def _assistant(lines: Sequence[Line], recorded: Recorded, place: int, block: Json, case: Case) -> Line:
    uuid = line_uuid(case.native, f"{recorded.id}/{place}")
    message: Json = {
        "id": recorded.id,
        "type": "message",
        "role": "assistant",
        "model": recorded.model,
        "content": [block],
        "stop_reason": recorded.stop_reason,
        "stop_sequence": None,
        "usage": recorded.usage,
    }
    return made({**_common(lines, uuid, _last_uuid(lines), case), "type": "assistant", "message": message})


def _result(asked: Line, call: str, answer: Answer, case: Case) -> Line:
    """A result hangs on the line that asked for it."""
    block: Json = {
        "tool_use_id": call,
        "type": "tool_result",
        "content": answer.content,
        "is_error": answer.is_error,
    }
    common = _common([asked], line_uuid(case.native, f"result/{call}"), asked.uuid, case)
    return made(
        {
            **common,
            "type": "user",
            "message": {"role": "user", "content": [block]},
            "toolUseResult": answer.detail,
            "sourceToolAssistantUUID": asked.uuid,
        }
    )


def same_start(old: Sequence[bytes], new: Sequence[bytes]) -> int:
    """How many lines at the start are the same."""
    for place, (one, other) in enumerate(zip(old, new, strict=False)):
        if one != other:
            return place
    return min(len(old), len(new))


def content_for(text: str, *, custom: bool) -> object:
    """A result's content in the form that the harness gives it."""
    return [{"type": "text", "text": text}] if custom else text


def file_of(lines: Sequence[Line]) -> bytes:
    """The file's content."""
    return b"".join(line.raw + b"\n" for line in lines)
