"""The mirror: what the harness writes into its event store goes into the log, by a cursor, with the outcomes
that it tells of; and what the log has is given back to an empty store.

The store of a life begins with what the log had when the life was prepared; behind that it counts on. How far
we are in it is the ``offset`` of what we append: none, as long as a life has nothing of its own."""

from __future__ import annotations

import logging

import anyio
from msgspec import Raw

from harness_durable.adapter import LifeContext
from harness_durable.errors import HarnessStuck
from harness_durable.gateway import rawjson
from harness_durable.journal.calls import Told
from harness_durable.state import ToolCall

from ..common.shapes import Json, encode, mapping, word
from .conversation import Conversation, Newest
from .events import CREATED, PART, Row, Stored, lasting, read, replay, replayed, stored
from .gate import cut_off
from .naming import events_file, session_id
from .server import Refused, Server

log = logging.getLogger("harness_durable.opencode")

_BATCH = 2 << 20
"""Bytes of events that the harness gets at once."""
_ABORTED = "Tool execution aborted"


class Mirror:
    """Of one life. ``conversation`` is what its store comes to, as of the last ``pull``."""

    def __init__(self, ctx: LifeContext, server: Server) -> None:
        self._ctx, self._server = ctx, server
        native = ctx.journal.state.native_id
        self.session, self._file = session_id(native), events_file(native)
        self.conversation = Conversation()
        self._next = 0
        self._others: dict[str, int] = {}
        self._pulling = anyio.Lock()

    async def restore(self) -> None:
        """Give the store what the log has. Goes on where a worker before us was interrupted."""
        newest = Newest()
        async for raw in self._ctx.journal.transcript_lines(self._file):
            row = read(raw)
            if row is None:
                log.warning("a line of the conversation is no event, and is left out: %r", raw[:100])
                continue
            self.conversation.take(row)
            newest.take(row)
        self._next = self._ctx.journal.state.offsets.get(self._ctx.life, 0)
        if not self._next:
            self._next = await self._restore(newest)

    async def _restore(self, newest: Newest) -> int:
        """How many events the store has then."""
        project = mapping(await self._server.json("GET", "/project/current"))
        there = len(await self._history(-1))
        batch, size, place = list[Raw](), 0, 0
        for row, data in newest.rows():
            if place >= there:
                given = self._placed(row, project) if row.kind == CREATED else data
                batch.append(replayed(row.raw, self.session, place, given))
                size += len(row.raw)
            place += 1
            if size > _BATCH:
                await self._replay(batch)
                batch, size = [], 0
        await self._replay(batch)
        return place

    async def pull(self) -> list[Row]:
        """Take what is new into the log. Returns the rows, also those that the log does not keep."""
        async with self._pulling:
            fresh = await self._history(self._next - 1)
            for place, one in enumerate(fresh):
                if one.seq != self._next + place:
                    raise HarnessStuck(f"event {self._next + place} is missing in the harness's store")
            if not fresh:
                return []
            rows = [one.row for one in fresh]
            for row in rows:
                self.conversation.take(row)
            kept = [row for row in rows if lasting(row)]
            if kept:
                await self._ctx.journal.transcript_appended(
                    self._ctx.life,
                    {self._file: [row.raw for row in kept]},
                    offset=fresh[-1].seq + 1,
                    told=[told for row in kept for told in self._told(row)],
                )
            self._next = fresh[-1].seq + 1
            return rows

    def _placed(self, row: Row, project: Json) -> bytes:
        """A session belongs to the project, and lies in the folder, that are here now."""
        info: Json = {**row.info, "projectID": project.get("id"), "directory": self._ctx.cwd}
        return encode({**row.data, "info": info})

    async def _replay(self, batch: list[Raw]) -> None:
        if not batch:
            return
        try:
            await self._server.call("POST", "/sync/replay", replay(self._ctx.cwd, batch))
        except Refused as refused:
            raise HarnessStuck(f"the harness does not take its conversation back: {refused}") from None

    async def _history(self, after: int) -> list[Stored]:
        """Our session's rows after a place in the store, in order."""
        cursor: Json = {**self._others, **({self.session: after} if after >= 0 else {})}
        try:
            body = await self._server.call("POST", "/sync/history", cursor)
        except Refused as refused:
            raise HarnessStuck(f"the harness does not tell its events: {refused}") from None
        found: list[Stored] = []
        for item in rawjson.items(body):
            one = stored(bytes(item), self.session)
            if one is not None:
                found.append(one)
                continue
            fields = rawjson.members(bytes(item))
            other, seq = rawjson.text(fields.get("aggregate_id")), rawjson.number(fields.get("seq"))
            self._others[other] = max(seq, self._others.get(other, -1))
        return sorted(found, key=lambda one: one.seq)

    def _told(self, row: Row) -> list[Told]:
        """Outcomes that no hook told us: of calls that failed, or that the harness refused by itself."""
        part = row.part if row.kind == PART else {}
        call = self._ctx.journal.state.tool_calls.get(word(part.get("callID")))
        state = mapping(part.get("state"))
        if call is None or not call.open or state.get("error") == _ABORTED:
            return []
        ok = state.get("status") == "completed"
        text = word(state.get("output" if ok else "error"))
        if cut_off(self._ctx.journal.state, call.id, text):
            return []
        form: Json = {name: state.get(name) for name in ("title", "output", "metadata")}
        return [_outcome(call, ok, text.encode("utf-8", "backslashreplace"), form)]


def _outcome(call: ToolCall, ok: bool, text: bytes, form: Json) -> Told:
    if call.released_in is None:
        return Told(call.id, "not_started", text)
    return Told(call.id, "completed", text, encode(form)) if ok else Told(call.id, "failed", text)
