"""From the conversation that was mirrored and what the log knows to one that the harness goes on from. Pure.

What is to be different is written as further events, as the harness would have: nothing is taken out of the
log. An answer that the harness did not finish is taken back: it asks once more, the gateway answers from the
log, and the barrier decides call by call. If something of it has begun it stays, and each of its calls gets
its one result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from harness_durable.policy import UNKNOWN

from ..common.shapes import Json, mapping, word
from .conversation import Conversation, Said
from .events import MESSAGE, MESSAGE_GONE, PART, PART_GONE, Row, made, under_way
from .naming import AGENT, PROVIDER
from .naming import made as made_id
from .response import Called, Recorded

_MADE_UP = frozenset({"Tool execution aborted", "[Tool execution was interrupted]"})
"""What the harness says of calls that it gave up, whether they ran or not."""


_GOES_ON = ("", "tool-calls", "unknown")
"""How an answer is finished that is not the last of its turn."""


class Answer(msgspec.Struct, frozen=True):
    """What the model is told about a call. ``form``: the harness's own, with the title and the like.
    ``ran``: to its end, well or not."""

    ok: bool
    ran: bool
    text: str
    form: Json


class Response(msgspec.Struct, frozen=True):
    """A response that asks for ``calls``. ``open``: one of them has no outcome, so the harness must get to
    it; a subagent that goes on by itself does not count. ``began``: one was released or has an outcome other
    than not_started. ``recorded``: only if the harness wrote not all of it."""

    id: str
    calls: tuple[str, ...]
    open: bool
    began: bool
    recorded: Recorded | None = None


class Case(msgspec.Struct, frozen=True):
    """All that counts beside the events. ``running``: the turn is not settled, and the harness has its
    message. ``answers``: by call, for those whose part is missing or may be untrue. ``now`` in ms, for what
    we write. ``ending``: why the turn before the one that is to run was not finished, as a clause; empty if
    it was."""

    session: str
    running: bool
    model: str
    cwd: str
    now: int
    responses: Sequence[Response]
    answers: Mapping[str, Answer]
    ending: str = ""


class Rebuilt(msgspec.Struct, frozen=True):
    """``rows`` come behind those that are there; ``notes`` say in words what they do."""

    rows: list[Row]
    notes: tuple[str, ...]


def rebuild(conversation: Conversation, case: Case) -> Rebuilt:
    """What makes the conversation one to continue from. ``conversation`` is brought up to date, too."""
    work = _Work(conversation, case)
    work.complete()
    work.take_back()
    work.correct()
    work.close()
    return Rebuilt(work.rows, tuple(work.notes))


class _Work:
    def __init__(self, conversation: Conversation, case: Case) -> None:
        self._conversation, self._case = conversation, case
        self.rows: list[Row] = []
        self.notes: list[str] = []

    def complete(self) -> None:
        """Write what the harness did not get to write of a response of which something has begun."""
        for response in self._case.responses:
            written = self._conversation.calls(finished=True)
            recorded = response.recorded
            if recorded is None or response.open or not response.began or written.keys() >= {*response.calls}:
                continue
            said = self._of(response) or self._fresh(response.id)
            parts = list(self._parts(said, recorded))
            for number in list(said.parts):
                self._write(PART_GONE, {"messageID": said.id, "partID": number})
            for place, one in enumerate(parts):
                number = made_id("prt", _time(said, "created"), f"{said.id}/{place}", place)
                part: Json = {**one, "id": number, "sessionID": self._case.session, "messageID": said.id}
                self._write(PART, {"part": part, "time": self._case.now})
            time = {**mapping(said.info.get("time")), "completed": self._case.now}
            info = {**said.info, "time": time, "finish": "tool-calls", "tokens": recorded.tokens}
            self._write(MESSAGE, {"info": info})
            self.notes.append(f"response {response.id} written to its end")

    def take_back(self) -> None:
        """Without answers that were not finished; while the turn goes on, also without a last one that only
        says that it failed, and without a summary that nothing followed: the harness would stop at either."""
        for said in list(self._conversation.messages.values()):
            if said.unfinished:
                self._remove(said)
        while (last := self._conversation.last) is not None and self._case.running and not last.is_user:
            stops = last.info.get("summary") is True or (last.info.get("error") and not last.tools)
            if not stops:
                return
            self._remove(last)

    def correct(self) -> None:
        """What the harness wrote of calls that were stopped or lost. The log knows better."""
        for call, part in self._conversation.calls().items():
            answer = self._case.answers.get(call)
            if answer is None:
                continue
            state = mapping(part.get("state"))
            told = word(state.get("error")) if state.get("status") == "error" else None
            if told == answer.text or (answer.ran and told not in _MADE_UP and not under_way(part)):
                continue
            fresh = {**part, "state": state_of(answer, mapping(state.get("input")), state, self._case.now)}
            self._write(PART, {"part": fresh, "time": self._case.now})
            self.notes.append(f"result written for {call}")

    def close(self) -> None:
        """Tell the model why the last turn was not finished. On its own side, behind what there is of it."""
        case, last = self._case, self._conversation.last
        if (
            case.running
            or not case.ending
            or last is None
            or (last.finish not in _GOES_ON and not last.is_user)
        ):
            return
        said = self._fresh("closing")
        where = "on the turn before the next message"
        note = f"[Note by harness-durable, not by the model, {where}: {case.ending}.]"
        number = made_id("prt", case.now, said.id)
        time: Json = {"start": case.now, "end": case.now}
        part: Json = {"id": number, "sessionID": case.session, "messageID": said.id, "type": "text"}
        self._write(PART, {"part": {**part, "text": note, "time": time}, "time": case.now})
        done = {"created": case.now, "completed": case.now}
        self._write(MESSAGE, {"info": {**said.info, "time": done, "finish": "stop"}})

    def _of(self, response: Response) -> Said | None:
        """The message of a response: the one that has one of its calls, else the one that is not finished."""
        messages = list(self._conversation.messages.values())
        for said in messages:
            if any(word(part.get("callID")) in response.calls for part in said.tools):
                return said
        return next((said for said in reversed(messages) if said.unfinished), None)

    def _fresh(self, what: str) -> Said:
        """A message of the model of which the harness wrote nothing."""
        case, asked = self._case, self._conversation.last_user
        agent = word(asked.info.get("agent")) if asked is not None else ""
        number = made_id("msg", case.now, f"{case.session}/{what}", len(self.rows))
        info: Json = {
            "id": number,
            "role": "assistant",
            "time": {"created": case.now},
            "parentID": asked.id if asked is not None else "",
            "modelID": case.model,
            "providerID": PROVIDER,
            "mode": agent or AGENT,
            "agent": agent or AGENT,
            "path": {"cwd": case.cwd, "root": "/"},
            "cost": 0,
            "sessionID": case.session,
            "tokens": {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        }
        self._write(MESSAGE, {"info": info})
        return self._conversation.messages[number]

    def _parts(self, said: Said, recorded: Recorded) -> Iterator[Json]:
        """All parts of a message, in their order."""
        there = [part for _, part in sorted(said.parts.items())]
        time: Json = {"start": _time(said, "created"), "end": self._case.now}
        yield {"type": "step-start"}
        for kind, text in (("reasoning", recorded.reasoning), ("text", recorded.text)):
            known = [part for part in there if part.get("type") == kind]
            yield from known or ([{"type": kind, "text": text, "time": time}] if text else [])
        for call in recorded.calls:
            known = [part for part in there if part.get("callID") == call.id]
            lost = call.id in self._case.answers and any(under_way(part) for part in known)
            yield known[0] if known and not lost else self._tool(call, time)
        yield {"type": "step-finish", "reason": "tool-calls", "cost": 0, "tokens": recorded.tokens}

    def _tool(self, call: Called, time: Json) -> Json:
        answer = self._case.answers.get(call.id) or Answer(False, False, UNKNOWN, {})
        self.notes.append(f"result written for {call.id}")
        state = state_of(answer, call.input, {"time": time}, self._case.now)
        return {"type": "tool", "callID": call.id, "tool": call.name, "state": state}

    def _remove(self, said: Said) -> None:
        self._write(MESSAGE_GONE, {"messageID": said.id})
        self.notes.append("an answer that was not finished is asked for again")

    def _write(self, kind: str, data: Json) -> None:
        place = len(self.rows)
        number = made_id("evt", self._case.now, f"{self._case.session}/{self._case.now}/{place}", place)
        row = made(number, kind, {"sessionID": self._case.session, **data})
        self.rows.append(row)
        self._conversation.take(row)


def state_of(answer: Answer, arguments: Json, before: Json, now: int) -> Json:
    """What a call's part says of it when it has ended. ``before``: what it said until then; ``now`` in ms."""
    time = {"start": now, "end": now, **mapping(before.get("time"))}
    if not answer.ok:
        return {"status": "error", "input": arguments, "error": answer.text, "metadata": {}, "time": time}
    state: Json = {
        "status": "completed",
        "input": arguments,
        "output": answer.text,
        "title": word(answer.form.get("title")),
        "metadata": mapping(answer.form.get("metadata")),
        "time": time,
    }
    if answer.form.get("attachments"):
        state["attachments"] = answer.form["attachments"]
    return state


def _time(said: Said, name: str) -> int:
    found = mapping(said.info.get("time")).get(name)
    return found if isinstance(found, int) else 0
