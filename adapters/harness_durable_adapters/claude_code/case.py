"""What a rebuild has to know beside the lines, and the lines that it writes itself. Pure.

Lines of our own look as the harness would have written them: it reads them back as its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..common.lost import OPENING
from ..common.shapes import Json
from .naming import line_uuid
from .response import Recorded
from .transcript import SHOWS, Line, made

BROKEN_OFF = "it ended before the model had the last word"
"""What became of a turn of which nothing more is known."""


class Answer(msgspec.Struct, frozen=True):
    """What the model is told about a call: the content of its result, and the harness's structured form.
    ``shows``: uuids of steers whose words the harness has put into the content."""

    content: object
    is_error: bool
    detail: object
    shows: tuple[str, ...] = ()


class Response(msgspec.Struct, frozen=True):
    """A response of the main conversation that asks for ``calls``. ``open``: one of them has no outcome, so
    the harness must get to it. ``began``: one was released or has an outcome other than not_started.
    ``recorded`` is needed only if lines of it are missing; so is ``prompt``, uuid and text of the message of
    its turn: the harness may have been lost before it wrote either."""

    id: str
    calls: tuple[str, ...]
    open: bool
    began: bool
    recorded: Recorded | None = None
    prompt: tuple[str, str] = ("", "")


class Case(msgspec.Struct, frozen=True):
    """All that counts beside the lines. ``running``: the turn is not settled. ``prompt``: uuid of its
    message. ``answers``: by call, for every call that has an outcome. ``ending``: what became of the turn
    before the one that is to run, as a clause for ``closing_line``; empty if the log has none. ``lost``: what
    of the transcript cannot be read, as such a clause, too. ``shown``: uuids of messages that lines before a
    compaction showed to be delivered. ``answered``: the model has answered within the turn that runs, so that
    what it was asked must stay as it is."""

    native: str
    running: bool
    prompt: str
    responses: Sequence[Response]
    answers: Mapping[str, Answer]
    cwd: str
    version: str
    ending: str = ""
    shown: frozenset[str] = frozenset()
    lost: str = ""
    answered: bool = False


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


def prompt_line(lines: Sequence[Line], response: Response, case: Case) -> Line:
    uuid, text = response.prompt
    return _user(lines, uuid, {"role": "user", "content": text}, case)


def assistant_line(lines: Sequence[Line], recorded: Recorded, place: int, block: Json, case: Case) -> Line:
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


def result_line(asked: Line, call: str, answer: Answer, case: Case) -> Line:
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
            **marked(answer),
        }
    )


def marked(answer: Answer) -> Json:
    """What a line with this answer says for those who deliver messages."""
    return {SHOWS: " ".join(answer.shows)} if answer.shows else {}


def opening_line(lines: Sequence[Line], case: Case) -> Line:
    """What a conversation begins with whose first message is lost."""
    uuid = line_uuid(case.native, f"opened/{lines[0].uuid if lines else ''}")
    common = _common(lines[:1], uuid, None, case)
    return made({**common, "type": "user", "message": {"role": "user", "content": OPENING}})


def closing_line(lines: Sequence[Line], last: Line, case: Case) -> Line:
    """What ends a turn that broke off: why it did, in our name; and what is lost. On the model's side, since
    the harness writes an answer of its own behind anything that stands on the user's."""
    uuid = line_uuid(case.native, f"closed/{last.uuid}")
    notes: list[str] = []
    if last.kind != "assistant" and (case.ending or not case.lost):
        notes.append(f", on the turn before the next message: {case.ending or BROKEN_OFF}")
    if case.lost:
        notes.append(f": {case.lost}")
    text = "\n".join(f"[Note by harness-durable, not by the model{note}.]" for note in notes)
    message: Json = {
        "id": uuid,
        "type": "message",
        "role": "assistant",
        "model": "<synthetic>",
        "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    common = _common(lines, uuid, _last_uuid(lines), case)
    return made({**common, "type": "assistant", "message": message})
