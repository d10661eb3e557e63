"""From what was mirrored and what the log knows to a transcript that the harness continues from. Pure.

A response whose calls must run (again) in the harness is cut out: the harness asks once more, the gateway
answers from the log, and the barrier decides call by call. A response of which something has begun stays,
and every call of it gets its one result. ``rebuild`` of its own result changes nothing.

What is lost the model is told once, by a line that stays in the transcript; as soon as that changes nothing
that it was asked before, so that recorded answers still fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from harness_durable.policy import UNKNOWN

from ..common.shapes import Json
from .case import (
    Answer,
    Case,
    Response,
    assistant_line,
    closing_line,
    marked,
    opening_line,
    prompt_line,
    result_line,
)
from .compaction import is_boundary
from .lost import is_pending, pending, pending_line
from .slim import bare
from .transcript import Line, is_conversation, is_made_up, repair, tail

Mode = Literal["fresh", "resume", "continue"]


class Rebuilt(msgspec.Struct, frozen=True):
    """``made_up`` are calls that got a line from us; ``cut`` are responses that are given again."""

    lines: list[Line]
    mode: Mode
    made_up: tuple[str, ...]
    cut: tuple[str, ...]


def asked_for(lines: Sequence[Line]) -> frozenset[str]:
    """The calls that the lines ask for."""
    return frozenset(call for line in lines for call in line.asks)


def rebuild(found: Sequence[Line], case: Case) -> Rebuilt:
    """The transcript to start from, and how to start."""
    waiting = [line for line in found if is_pending(line)]
    clauses = [*map(pending, waiting), case.lost]
    case = msgspec.structs.replace(case, lost="; ".join(clause for clause in clauses if clause))
    lines = repair([line for line in found if not is_pending(line)])
    if case.ending or _delivered(lines, case):
        lines = _without_interruption(lines)
    there = asked_for(lines)
    # The harness writes in order: a response without lines whose successor has some was never its own.
    present = [place for place, response in enumerate(case.responses) if there.issuperset(response.calls)]
    again = [response for response in case.responses if response.open and case.running]
    for response in again:
        lines = _without(lines, response)
    made_up: list[str] = []
    lines = _answered(lines, case, made_up)
    for response in case.responses[present[-1] if present else 0 :]:
        if response not in again and not there.issuperset(response.calls):
            lines = _answered(_completed(lines, response, case), case, made_up)
    lines = [_corrected(line, case, made_up) for line in lines]
    cut = tuple(response.id for response in again)
    if case.lost:
        lines = _opened(lines, case)
    if _delivered(lines, case):
        return Rebuilt(_postponed(_without_end(lines), waiting, case), "continue", tuple(made_up), cut)
    mode: Mode = "resume" if any(is_conversation(line) for line in lines) else "fresh"
    if case.answered or mode == "fresh":
        later = msgspec.structs.replace(case, lost="")
        return Rebuilt(_postponed(_closed(lines, later), waiting, case), mode, tuple(made_up), cut)
    return Rebuilt(_closed(lines, case), mode, tuple(made_up), cut)


def _without_interruption(lines: list[Line]) -> list[Line]:
    """Without the harness's last note that the user interrupted it: in turns of ours it writes that whoever
    did, and why."""
    while (last := tail(lines)) is not None and last.is_interruption:
        lines = [line for line in lines if line is not last]
    return repair(lines)


def _delivered(lines: Sequence[Line], case: Case) -> bool:
    """Has the harness got the message of the turn that is not settled?"""
    return case.running and _shows(lines, case.prompt, case)


def _shows(lines: Sequence[Line], uuid: str, case: Case) -> bool:
    return uuid in case.shown or any(uuid in line.shows for line in lines)


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
    uuid = response.prompt[0]
    if uuid and not _shows(lines, uuid, case):
        lines.append(prompt_line(lines, response, case))
    there = [line for line in lines if _belongs(line, response)]
    asked = {call for line in there for call in line.asks}
    for place, block in enumerate(recorded.blocks):
        if block.get("type") == "tool_use":
            written = block.get("id") in asked
        else:
            written = any(_same(block, line) for line in there)
        if not written:
            lines.append(assistant_line(lines, recorded, place, block, case))
    return lines


def _same(block: Json, line: Line) -> bool:
    return any(bare(other) == bare(block) for other in line.blocks)


def _answered(lines: list[Line], case: Case, made_up: list[str]) -> list[Line]:
    """One result for each call: those that are missing are put where they belong."""
    answered = {str(result.get("tool_use_id")) for line in lines for result in line.results}
    for asked in [line for line in lines if not answered.issuperset(line.asks)]:
        for call in asked.asks:
            if call not in answered:
                answer = case.answers.get(call) or Answer(UNKNOWN, True, UNKNOWN)
                lines = _inserted(lines, asked, result_line(asked, call, answer, case))
                made_up.append(call)
                answered.add(call)
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
    if len(results) != 1 or not is_made_up(results[0]):
        return line
    call = str(results[0].get("tool_use_id"))
    answer = case.answers.get(call)
    if answer is None:
        return line
    made_up.append(call)
    block = {**results[0], "content": answer.content, "is_error": answer.is_error}
    message = {**line.message, "content": [block]}
    return line.changed(message=message, toolUseResult=answer.detail, **marked(answer))


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
    """A settled turn must not look interrupted, or the harness would put words into it. The model is told
    what is lost."""
    last = tail(lines)
    if last is None or (last.kind == "assistant" and not case.lost):
        return lines
    return [*lines, closing_line(lines, last, case)]


def _opened(lines: list[Line], case: Case) -> list[Line]:
    """A conversation whose first message is lost still begins on the user's side."""
    place = next((place for place, line in enumerate(lines) if is_conversation(line)), None)
    if any(is_boundary(line) for line in lines):
        return lines  # it begins with what a compaction preserved, and the harness with the summary
    if place is None:
        return lines if case.answered else [*lines, opening_line([], case)]
    first = lines[place]
    if first.kind != "assistant":
        return lines
    opening = opening_line(lines[place:], case)
    return [*lines[:place], opening, first.changed(parentUuid=opening.uuid), *lines[place + 1 :]]


def _postponed(lines: list[Line], waiting: list[Line], case: Case) -> list[Line]:
    """The model is told with the next message."""
    if not case.lost:
        return lines
    same = next((line for line in waiting if pending(line) == case.lost), None)
    return [*lines, same or pending_line(case.lost)]


def content_for(text: str, *, custom: bool) -> object:
    """A result's content in the form that the harness gives it."""
    return [{"type": "text", "text": text}] if custom else text


def file_of(lines: Sequence[Line]) -> bytes:
    """The file's content, for the harness."""
    return b"".join(line.raw + b"\n" for line in lines if not is_pending(line))
