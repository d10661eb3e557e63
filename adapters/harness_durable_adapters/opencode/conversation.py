"""The conversation that the rows of the event store come to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ..common.shapes import Json, encode, mapping, word
from .events import Row, data_of, subagent, under_way

_STEPS = frozenset({"step-start", "step-finish"})
"""Marks of the harness's own, of which the model sees nothing."""


class Said(msgspec.Struct):
    """A message: what it is, and its parts by id."""

    info: Json
    parts: dict[str, Json]

    @property
    def id(self) -> str:
        return word(self.info.get("id"))

    @property
    def is_user(self) -> bool:
        return self.info.get("role") == "user"

    @property
    def finish(self) -> str:
        return word(self.info.get("finish"))

    @property
    def unfinished(self) -> bool:
        """An answer of which the harness wrote neither the end nor that it failed."""
        over = self.finish or self.info.get("error") or "completed" in mapping(self.info.get("time"))
        return not self.is_user and not over

    @property
    def tools(self) -> list[Json]:
        return [one for one in self.parts.values() if one.get("type") == "tool"]

    @property
    def text(self) -> str:
        said = [one for _, one in sorted(self.parts.items()) if one.get("type") == "text"]
        return "\n".join(word(one.get("text")) for one in said if not one.get("synthetic"))


class Newest:
    """The rows that come to the same as all of them, to the model: the harness takes them one by one, and
    slowly. What is summed up by a compaction it does not need."""

    def __init__(self) -> None:
        self._first: Row | None = None
        self._messages: dict[str, tuple[Row, object]] = {}
        self._parts: dict[str, dict[str, Row]] = {}

    def take(self, row: Row) -> None:
        match row.kind:
            case "session.created.1":
                self._first = self._first or row
            case "message.updated.1":
                number, time = word(row.info.get("id")), mapping(row.info.get("time")).get("created")
                since = self._messages[number][1] if number in self._messages else time
                self._messages[number] = row, since
                self._parts.setdefault(number, {})
            case "message.removed.1":
                self._messages.pop(word(row.data.get("messageID")), None)
                self._parts.pop(word(row.data.get("messageID")), None)
            case "message.part.updated.1":
                if row.part.get("type") not in _STEPS:
                    self._parts.get(word(row.part.get("messageID")), {})[word(row.part.get("id"))] = row
            case "message.part.removed.1":
                self._parts.get(word(row.data.get("messageID")), {}).pop(word(row.data.get("partID")), None)
            case _:
                return

    def rows(self) -> Iterator[tuple[Row, bytes]]:
        """Each with its data, in an order in which they can be taken. A message that was sent again has a
        newer time; its place is that of its first."""
        if self._first is not None:
            yield self._first, data_of(self._first.raw)
        numbers = list(self._messages)
        for number in numbers[self._summed(numbers) :]:
            row, since = self._messages[number]
            time = mapping(row.info.get("time"))
            data = data_of(row.raw)
            if time.get("created") != since:
                data = encode({**row.data, "info": {**row.info, "time": {**time, "created": since}}})
            yield row, data
            for one in self._parts[number].values():
                yield one, data_of(one.raw)

    def _summed(self, numbers: Sequence[str]) -> int:
        """How many messages the last compaction that came to its end has summed up. Some of the newest before
        it the harness keeps: its mark says from which message on."""
        for place in reversed(range(len(numbers))):
            info = self._messages[numbers[place]][0].info
            asked = word(info.get("parentID"))
            if info.get("summary") is not True or not info.get("finish") or asked not in self._parts:
                continue
            marks = [row.part for row in self._parts[asked].values() if row.part.get("type") == "compaction"]
            tail = word(marks[0].get("tail_start_id")) if marks else ""
            first = tail or asked
            return numbers.index(first) if marks and first in numbers else 0
        return 0


class Conversation:
    """What the rows come to. Messages are in the order in which they first came."""

    def __init__(self) -> None:
        self.messages: dict[str, Said] = {}

    def take(self, row: Row) -> None:
        match row.kind:
            case "message.updated.1":
                number = word(row.info.get("id"))
                known = self.messages.get(number)
                self.messages[number] = Said(row.info, known.parts if known is not None else {})
            case "message.removed.1":
                self.messages.pop(word(row.data.get("messageID")), None)
            case "message.part.updated.1":
                said = self.messages.get(word(row.part.get("messageID")))
                if said is not None:
                    said.parts[word(row.part.get("id"))] = row.part
            case "message.part.removed.1":
                said = self.messages.get(word(row.data.get("messageID")))
                if said is not None:
                    said.parts.pop(word(row.data.get("partID")), None)
            case _:
                return

    @property
    def last(self) -> Said | None:
        return next(reversed(self.messages.values()), None)

    @property
    def last_user(self) -> Said | None:
        return next((one for one in reversed(self.messages.values()) if one.is_user), None)

    def calls(self, *, finished: bool = False) -> dict[str, Json]:
        """The tool parts, by call. ``finished``: only those of answers that were written to their end."""
        messages = (said for said in self.messages.values() if not (finished and said.unfinished))
        return {word(one.get("callID")): one for said in messages for one in said.tools}

    def subagents(self) -> dict[str, str]:
        """By call, the sessions of those whose result nobody has written."""
        return {call: subagent(one) for call, one in self.calls().items() if under_way(one) and subagent(one)}
