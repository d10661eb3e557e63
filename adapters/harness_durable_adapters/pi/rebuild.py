"""From the mirrored session file and what the log knows to a file that the harness continues from. Pure.

A file only grows: where a response must be given again, an entry is added that hangs before that response,
so that the path which the model sees leaves it out. The harness then asks the same once more, the gateway
answers from the log, and the barrier decides call by call. Where every call of the last response has its
outcome, their results are added instead. ``rebuild`` of its own result adds nothing.

What is lost of a damaged file the model is told once, with the next message, by an entry that stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from harness_durable.policy import UNKNOWN

from ..common.shapes import Json
from .entries import Entry, path
from .naming import entry_id
from .repair import opening_entry

Mode = Literal["message", "continue"]
"""``message``: the turn's message is still to be given. ``continue``: the turn goes on in its middle."""

REWIND = "durable-rewind"


class Answer(msgspec.Struct, frozen=True):
    """What the model is told about a call: the content of its result, and the harness's own form of it.
    ``tool`` is the name that it was called by."""

    content: object
    is_error: bool
    details: object = None
    tool: str = ""


class Case(msgspec.Struct, frozen=True):
    """What counts beside the entries. ``prompt``: the number of the turn's message, empty if none is to run.
    ``open``: calls that have no outcome. ``answers``: by call, for those that have one. ``ending``: what
    became of the turn before, as a clause; empty if it was finished. ``life`` and ``stamp`` (RFC 3339) name
    and date what is added."""

    native: str
    life: str
    stamp: str
    model: str
    prompt: str = ""
    open: frozenset[str] = frozenset()
    answers: Mapping[str, Answer] = {}
    ending: str = ""


class Rebuilt(msgspec.Struct, frozen=True):
    """``added`` goes to the end of the file. ``made_up`` are calls that got a result from us, ``cut`` says
    that the last response is given again, ``told`` are words of our own for the model."""

    added: list[Json]
    mode: Mode
    made_up: tuple[str, ...] = ()
    cut: bool = False
    told: str = ""


def unanswered(entries: Sequence[Entry]) -> tuple[str, ...]:
    """The calls of the last response that have no result on the path."""
    return _unanswered([entry for entry in path(entries) if entry.is_talk])


def rebuild(entries: Sequence[Entry], case: Case) -> Rebuilt:
    """What to add, and how to go on."""
    way = path(entries)
    talk = [entry for entry in way if entry.is_talk]
    leaf = way[-1].id if way else ""
    waiting = _unanswered(talk)
    if not any(entry.number == case.prompt for entry in way if case.prompt):
        return _closed(leaf, talk, waiting, case, _untold(entries, case))
    said = next((entry for entry in reversed(talk) if entry.role == "assistant"), None)
    again = said is not None and (
        (talk[-1] is said and not said.calls)
        or (talk[-1] is said and said.is_dropped)
        or any(call in case.open or call not in case.answers for call in waiting)
    )
    if again and said is not None and _follows(talk, said, case.prompt):
        return Rebuilt([_rewind(said, case)], "continue", cut=True)
    return Rebuilt(_results(leaf, waiting, case), "continue", waiting)


def _follows(talk: Sequence[Entry], said: Entry, prompt: str) -> bool:
    """Was it said within the turn that runs?"""
    places = {entry.number: place for place, entry in enumerate(talk) if entry.number}
    return talk.index(said) > places.get(prompt, -1)


def _unanswered(talk: Sequence[Entry]) -> tuple[str, ...]:
    kept = [entry for entry in talk if not entry.is_dropped]
    place = next((at for at in reversed(range(len(kept))) if kept[at].role == "assistant"), None)
    if place is None:
        return ()
    answered = {entry.result for entry in kept[place + 1 :]}
    return tuple(call for call in kept[place].calls if call not in answered)


def _untold(entries: Sequence[Entry], case: Case) -> list[Entry]:
    """The entries of ours with words that the model has not read yet."""
    names = {entry.id for entry in entries}
    kept = [entry for entry in entries if entry.lost]
    told = [place for place, entry in enumerate(kept) if _note_id(entry, case) in names]
    return kept[told[-1] + 1 :] if told else kept


def _note_id(last: Entry, case: Case) -> str:
    """Of the note that tells of everything up to this entry."""
    return entry_id(case.native, f"told/{last.id}")


def _closed(
    leaf: str, talk: list[Entry], waiting: tuple[str, ...], case: Case, untold: list[Entry]
) -> Rebuilt:
    """The turn before is over: nothing of it runs any more, and the model is told why it broke off, and what
    is lost. What is added hangs before an answer that the harness broke off, which it drops anyway: a result
    must follow its call."""
    while talk and talk[-1].is_dropped:
        leaf = talk.pop().parent
    added = _results(leaf, waiting, case)
    words: list[str] = []
    if case.ending and talk and (added or talk[-1].role != "assistant"):
        words.append(f", on the turn before the next message: {case.ending}")
    if untold:
        words.append(f": {'; '.join(entry.lost for entry in untold)}")
    told = "\n".join(f"[Note by harness-durable, not by the model{word}.]" for word in words)
    if told:
        if not talk:
            added.append(opening_entry(case.native, leaf, case.stamp))
        parent = str(added[-1]["id"]) if added else leaf
        name = _note_id(untold[-1], case) if untold else entry_id(case.native, f"{case.life}/note/{parent}")
        added.append(_note(name, parent, told, case))
    return Rebuilt(added, "message", waiting, told=told)


def _entry(kind: str, name: str, parent: str, case: Case, **members: object) -> Json:
    return {"type": kind, "id": name, "parentId": parent or None, "timestamp": case.stamp, **members}


def _rewind(said: Entry, case: Case) -> Json:
    name = entry_id(case.native, f"{case.life}/rewind/{said.id}")
    return _entry("custom", name, said.parent, case, customType=REWIND, data={})


def _results(leaf: str, calls: Sequence[str], case: Case) -> list[Json]:
    found: list[Json] = []
    for call in calls:
        answer = case.answers.get(call) or Answer([{"type": "text", "text": UNKNOWN}], True)
        message: Json = {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": answer.tool,
            "content": answer.content,
            "isError": answer.is_error,
            "timestamp": 0,
        }
        if answer.details is not None:
            message["details"] = answer.details
        name = entry_id(case.native, f"result/{call}")
        found.append(_entry("message", name, leaf, case, message=message))
        leaf = name
    return found


def _note(name: str, parent: str, said: str, case: Case) -> Json:
    """On the model's side, since what stands on the user's is taken for the user's."""
    nothing = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0)
    cost = dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0)
    message: Json = {
        "role": "assistant",
        "content": [{"type": "text", "text": said}],
        "api": "anthropic-messages",
        "provider": "anthropic",
        "model": case.model,
        "usage": {**nothing, "cost": cost},
        "stopReason": "stop",
        "timestamp": 0,
    }
    return _entry("message", name, parent, case, message=message)
