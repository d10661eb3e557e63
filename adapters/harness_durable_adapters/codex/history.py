"""The conversation that a life begins with, from the log.

Every request to the model holds all that the model was shown. So the last one is the truth about the
conversation, also of what the harness did with it (a compaction, a shortened output). What came after it is
its response and the outcomes of that response's calls. The mirrored transcript is only asked in a session
that has no request yet: one that was brought here."""

from __future__ import annotations

import msgspec

from harness_durable import events as ev
from harness_durable.gateway.openai_responses import Responses
from harness_durable.journal import Journal, Reader
from harness_durable.journal.requests import body_of
from harness_durable.policy import UNKNOWN, told
from harness_durable.state import ModelCall, Session

from ..common.endings import ending
from ..common.shapes import Json, decode, mapping, objects, word
from .items import conversation, is_call, is_output, is_user, note, output, terminals, text_in
from .naming import transcript_file
from .rollout import Finding, Parser, paired

_WIRE = Responses()
_SUMS_UP = "compaction"
_ANSWERS = ("turn", "")
"""What the harness asks for, in its own words: a summary of the conversation, or what comes next in it."""


class History(msgspec.Struct, frozen=True):
    """``items`` to begin with; ``cut``: a response that the harness will ask for again; ``made_up``: calls
    whose result was written by us; ``noted``: the model is told something beside its conversation;
    ``sums_up``: see ``sums_up``."""

    items: list[Json]
    cut: str = ""
    made_up: tuple[str, ...] = ()
    noted: bool = False
    sums_up: bool = False


async def gather(journal: Journal, mirrored: list[Json]) -> History:
    """For a life that is about to start. ``mirrored``: the items of the transcript."""
    said = frozenset(text_in(item) for item in mirrored if is_user(item))
    if (question := await _summary(journal)) is not None:
        # Exactly what was to be summed up, so that the recorded summary fits. ``drive`` adds what is new.
        *asked, _ = objects(question.get("input"))
        return _answered(History(conversation(asked, said), sums_up=True))
    last = await _last_request(journal)
    if last is None:
        items = await _unasked(journal, conversation(mirrored, said))
        return _ended(_answered(History(items)), journal.state, None)
    call, body = last
    found = History(conversation(objects(body.get("input")), said))
    if call.status == "completed":
        found = await _with_response(journal, found, call)
    return _ended(_answered(found), journal.state, call)


async def _unasked(journal: Journal, items: list[Json]) -> list[Json]:
    """Without the turn's message, if an earlier life was given it and lost before it asked the model: it is
    given again."""
    turn = journal.state.turn
    message = journal.state.messages.get(turn.id) if turn is not None and len(turn.lives) > 1 else None
    if message is None or not items or not is_user(items[-1]):
        return items
    return items[:-1] if text_in(items[-1]) == await journal.reader.text(message.text) else items


async def transcript(journal: Journal) -> tuple[list[Json], list[Finding], int]:
    """The mirrored conversation, what of it cannot be read, and how many lines the log has."""
    parser = Parser()
    async for raw in journal.transcript_lines(transcript_file(journal.state.native_id)):
        parser.take(raw)
    parser.end()
    return parser.items, parser.findings, parser.count


async def sums_up(journal: Journal) -> bool:
    """Was the harness about to go on from a summary of its conversation when the last life ended? Then it has
    to sum up first: it is told to, and answered from the log if the summary was paid already."""
    return await _summary(journal) is not None


async def _summary(journal: Journal) -> Json | None:
    """The turn's last request, if it asks for a summary: the conversation, and then the question."""
    last, turn = await _last_request(journal, (*_ANSWERS, _SUMS_UP)), journal.state.turn
    if last is None or turn is None or last[0].turn != turn.id or request_kind(last[1]) != _SUMS_UP:
        return None
    return last[1] if objects(last[1].get("input")) else None


async def _last_request(journal: Journal, kinds: tuple[str, ...] = _ANSWERS) -> tuple[ModelCall, Json] | None:
    """The last request of the conversation that asks for one of these. A summary is asked for with a question
    of the harness's own at the end."""
    for call in reversed(journal.state.model_calls.values()):
        if call.agent is not None:
            continue
        body = decode(await body_of(journal.reader, journal.state, call.id, _WIRE.list_field))
        if body is None:
            return None  # the mirror has its items, too
        if request_kind(body) in kinds:
            return call, body
    return None


def request_kind(body: Json) -> str:
    """What the harness asks for, in its own word."""
    told = mapping(body.get("client_metadata")).get("x-codex-turn-metadata")
    return word((decode(word(told).encode()) or {}).get("request_kind"))


async def _with_response(journal: Journal, found: History, call: ModelCall) -> History:
    """The response of the last request and what became of its calls; or without it, if nothing of it has
    begun in a turn that goes on: then the harness asks once more and is answered from the log."""
    state = journal.state
    known = state.tool_calls  # a log that was cut may end before it names them
    tools = [known[name] for name in call.tool_calls if name in known]
    began = any(tool.released_in is not None or not tool.open for tool in tools)
    turn = state.turn
    if turn is not None and turn.id == call.turn and not began:
        return msgspec.structs.replace(found, cut=call.response_id or call.id)
    items = [*found.items, *await _response(journal.reader, call)]
    return msgspec.structs.replace(found, items=[*items, *await _outputs(journal, items)])


async def _response(reader: Reader, call: ModelCall) -> list[Json]:
    event = await reader.event(call.completed_seq)
    body = await reader.content(event.body) if isinstance(event, ev.ModelCompleted) else b""
    whole = decode(_WIRE.to_json(body) if "event-stream" in call.content_type else body) or {}
    return objects(whole.get("output"))


async def _outputs(journal: Journal, items: list[Json]) -> list[Json]:
    answered = {word(item.get("call_id")) for item in items if is_output(item)}
    asked = [item for item in items if is_call(item) and word(item.get("call_id")) not in answered]
    return [output(item, await _outcome(journal, word(item.get("call_id")))) for item in asked]


async def _outcome(journal: Journal, name: str) -> str:
    """What the model is told of a call."""
    call = journal.state.tool_calls.get(name)
    if call is None or call.open:
        return UNKNOWN
    event = await journal.reader.event(call.outcome_seq)
    result = getattr(event, "result", None)
    return await journal.reader.text(result) if result is not None else told(call)


def _answered(found: History) -> History:
    """Each call has its result, whatever the harness left out; and no call that is unknown by now runs."""
    items = paired(found.items)
    answered = {word(item.get("call_id")) for item in items if is_output(item)}
    open_calls = [item for item in items if is_call(item) and item.get("call_id") not in answered]
    made = [word(item.get("call_id")) for item in open_calls]
    outputs = [output(item, UNKNOWN) for item in open_calls]
    return msgspec.structs.replace(found, items=[*items, *outputs], made_up=tuple(made))


def _ended(found: History, state: Session, call: ModelCall | None) -> History:
    """What the model has to be told beside its conversation: why the turn before was not finished, and that
    what it left running is gone."""
    notes: list[Json] = []
    why = ending(state)
    already = any(why in str(item.get("content")) for item in found.items[-3:])
    fresh = state.turn is not None and (call is None or call.turn != state.turn.id)
    if why and fresh and found.items and not already:
        notes.append(note(f"on the turn before the next message: {why}"))
    notes += gone(found.items)
    return msgspec.structs.replace(found, items=[*found.items, *notes], noted=bool(notes))


def gone(items: list[Json]) -> list[Json]:
    """What the model has to be told of commands that it left running."""
    which = ", ".join(terminals(items))
    told = f"commands that were left running are gone with their process (session {which})"
    return [note(told)] if which else []


async def asked_in(journal: Journal, turn: str) -> bool:
    """Has the model been asked within this turn? Then the conversation holds the turn's message."""
    last = await _last_request(journal)
    return last is not None and last[0].turn == turn
