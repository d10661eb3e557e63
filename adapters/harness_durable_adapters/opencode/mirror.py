"""The mirror: what the harness writes into its event store goes into the log, by a cursor, with the outcomes
that it tells of; and what the log has is given back to an empty store.

The store of a life begins with what the log had when the life was prepared; behind that it counts on. How far
we are in it is the ``offset`` of what we append: none, as long as a life has nothing of its own. Subagents
are sessions beside ours; a row of theirs that the log has is known by its id."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import anyio
from msgspec import Raw

from harness_durable.adapter import LifeContext
from harness_durable.errors import HarnessStuck
from harness_durable.gateway import rawjson
from harness_durable.journal.calls import Told
from harness_durable.state import ToolCall

from ..common.shapes import Json, encode, mapping, word
from .conversation import Conversation, Newest
from .events import CREATED, PART, Row, Stored, lasting, read, replay, replayed, stored, under_way
from .gate import cut_off
from .naming import events_file, session_id, session_of
from .server import Refused, Server

log = logging.getLogger("harness_durable.opencode")

_BATCH = 2 << 20
"""Bytes of events that the harness gets at once."""
_ABORTED = "Tool execution aborted"


class Held:
    """A session in the store of a life: what it comes to, and the place of its next row. ``known``: ids of
    rows that the log has."""

    def __init__(self, session: str) -> None:
        self.session, self.file = session, events_file(session)
        self.conversation = Conversation()
        self.known = set[str]()
        self.next = 0

    def take(self, fresh: Sequence[Stored]) -> list[Row]:
        """Rows that are new in the store."""
        for place, one in enumerate(fresh):
            if one.seq != self.next + place:
                raise HarnessStuck(f"event {self.next + place} is missing in the harness's store")
        self.next += len(fresh)
        rows = [one.row for one in fresh]
        for row in rows:
            self.conversation.take(row)
        return rows


class Mirror:
    """Of one life. ``conversation`` is what its store comes to, as of the last ``pull``; ``subagents`` are
    the sessions beside ours."""

    def __init__(self, ctx: LifeContext, server: Server) -> None:
        self._ctx, self._server = ctx, server
        self._main = Held(session_id(ctx.journal.state.native_id))
        self.session = self._main.session
        self.subagents: dict[str, Held] = {}
        self._others: dict[str, int] = {}
        self._pulling = anyio.Lock()

    @property
    def conversation(self) -> Conversation:
        return self._main.conversation

    def is_ours(self, session: str, agent: str | None) -> bool:
        """Is it the session of the harness's that the log calls ``agent``: ours, or a subagent's?"""
        return session == self.session if agent is None else session == agent and session in self.subagents

    async def restore(self) -> None:
        """Give the store what the log has. Goes on where a worker before us was interrupted."""
        offset = self._ctx.journal.state.offsets.get(self._ctx.life, 0)
        files = map(session_of, list(self._ctx.journal.state.transcripts))
        self.subagents = {one: Held(one) for one in files if one and one != self.session}
        there = {} if offset else await self._history()
        for held in (self._main, *self.subagents.values()):
            newest = await self._read(held)
            if not offset:
                held.next = await self._restore(held, newest, len(there.get(held.session, ())))
            elif held is self._main:
                held.next = offset
            else:  # a life that went on without us is read again
                held.conversation = Conversation()

    async def _read(self, held: Held) -> Newest:
        newest = Newest()
        async for raw in self._ctx.journal.transcript_lines(held.file):
            row = read(raw)
            if row is None:
                log.warning("a line of the conversation is no event, and is left out: %r", raw[:100])
                continue
            held.conversation.take(row)
            if held is not self._main:
                held.known.add(row.id)
            newest.take(row)
        return newest

    async def _restore(self, held: Held, newest: Newest, there: int) -> int:
        """How many events the store has of a session then. ``there``: how many it has."""
        project = mapping(await self._server.json("GET", "/project/current"))
        batch, size, place = list[Raw](), 0, 0
        for row, data in newest.rows():
            if place >= there:
                given = self._placed(row, project) if row.kind == CREATED else data
                batch.append(replayed(row.raw, held.session, place, given))
                size += len(row.raw)
            place += 1
            if size > _BATCH:
                await self._replay(batch)
                batch, size = [], 0
        await self._replay(batch)
        return place

    async def pull(self) -> list[Row]:
        """Take what is new into the log. Returns the rows of our session, also those that are not kept."""
        async with self._pulling:
            fresh = await self._history()
            rows = self._main.take(fresh.pop(self.session, ()))
            await self._append(self._main, rows, self._main.next)
            for session, found in fresh.items():
                held = self._subagent(session, found)
                if held is None:
                    self._others[session] = found[-1].seq
                    continue
                new = [row for row in held.take(found) if row.id not in held.known]
                await self._append(held, new, 0)
                held.known.update(row.id for row in new)
            return rows

    def _subagent(self, session: str, found: Sequence[Stored]) -> Held | None:
        """The session of a subagent, also of one that has just begun; None for any other."""
        if session not in self.subagents:
            first = found[0].row
            parent = word(first.info.get("parentID"))
            if first.kind != CREATED or parent not in (self.session, *self.subagents):
                return None
            self.subagents[session] = Held(session)
        return self.subagents[session]

    async def _append(self, held: Held, rows: Sequence[Row], offset: int) -> None:
        kept = [row for row in rows if lasting(row)]
        if not kept:
            return
        told = [told for row in kept for told in self._told(row)]
        lines = {held.file: [row.raw for row in kept]}
        await self._ctx.journal.transcript_appended(self._ctx.life, lines, offset=offset, told=told)

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

    async def _history(self) -> dict[str, list[Stored]]:
        """What is new in the store, by session and in order."""
        held = [self._main, *self.subagents.values()]
        cursor: Json = {**self._others, **{one.session: one.next - 1 for one in held if one.next}}
        try:
            body = await self._server.call("POST", "/sync/history", cursor)
        except Refused as refused:
            raise HarnessStuck(f"the harness does not tell its events: {refused}") from None
        found: dict[str, list[Stored]] = {}
        for item in rawjson.items(body):
            one = stored(bytes(item))
            if one is not None:
                found.setdefault(one.session, []).append(one)
        return {session: sorted(rows, key=lambda one: one.seq) for session, rows in found.items()}

    def _told(self, row: Row) -> list[Told]:
        """Outcomes that no hook told us: of calls that failed, or that the harness refused by itself."""
        part = row.part if row.kind == PART else {}
        call = self._ctx.journal.state.tool_calls.get(word(part.get("callID")))
        state = mapping(part.get("state"))
        if call is None or not call.open or under_way(part) or state.get("error") == _ABORTED:
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
