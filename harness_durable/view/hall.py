"""The sessions that a viewer has open, and the list of all that there are."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from harness_durable import fold
from harness_durable.journal import Reader
from harness_durable.view.sheet import Sheet
from harness_durable.world import SessionRow, World

OPEN = 4
"""Sessions whose rows are kept in memory."""

LISTED = 60
"""Sessions of one page of the list."""

_NEEDS_A_PERSON = ("needs_input", "waiting")


class Listed(msgspec.Struct, frozen=True):
    """One line of the list. ``facts`` is None where only reading the whole log could tell."""

    session: str
    status: str
    events: int
    updated: int
    driven: str
    title: str = ""
    facts: dict[str, int] | None = None


class Page(msgspec.Struct, frozen=True):
    """``total``: how many there are."""

    sessions: list[Listed]
    total: int


class Hall:
    """``lost``: what a salvaged file says of itself. ``over``: the server stops, and so do its streams."""

    def __init__(self, world: World, *, lost: tuple[str, ...] = ()) -> None:
        self.world, self.lost, self.over = world, lost, False
        self._open: OrderedDict[str, Sheet] = OrderedDict()

    async def sheet(self, session: str) -> Sheet:
        """The rows of a session, up to date. Raises ``NotFound``."""
        found = await self.begun(session)
        await found.refresh()
        return found

    async def begun(self, session: str) -> Sheet:
        """The same, as far as it has been read by now."""
        if session not in self._open:
            await self.world.session(session)
            self._open.setdefault(session, Sheet(Reader(self.world, session)))
            while len(self._open) > OPEN:
                self._open.popitem(last=False)
        self._open.move_to_end(session)
        return self._open[session]

    async def sessions(self, offset: int) -> Page:
        """A page of the list: those that need a person first, then what happened last."""
        rows: list[SessionRow] = []
        while page := await self.world.sessions(rows[-1].session if rows else ""):
            rows.extend(page)
        rows.sort(key=lambda row: (row.status not in _NEEDS_A_PERSON, -row.updated))
        return Page([await self._listed(row) for row in rows[offset : offset + LISTED]], len(rows))

    async def _listed(self, row: SessionRow) -> Listed:
        driven = "nobody"
        if row.owner is not None and row.owner_alive:
            driven = f"pid {row.owner.pid} on {row.owner.host}"
        listed = Listed(row.session, row.status, row.head, row.updated, driven)
        known = self._open.get(row.session)
        if known is not None and known.head == row.head:
            state = known.state
        else:
            stored = await self.world.snapshot(row.session)
            loaded = fold.load(stored[1]) if stored is not None else None
            if loaded is None and row.head <= _SHORT:
                loaded = await Reader(self.world, row.session).load()
            if loaded is None:
                return listed
            state = loaded
        calls, lives = state.tool_calls.values(), state.lives.values()
        facts = {
            "turns": len(state.turns),
            "lives": len(lives),
            "unknown": sum(call.outcome == "unknown" for call in calls),
            "replays": sum(len(call.replays) for call in state.model_calls.values()),
            "tokens": sum(c.usage.input + c.usage.output for c in state.model_calls.values()),
        }
        return msgspec.structs.replace(listed, title=state.title, facts=facts)


_SHORT = 400
"""Events of a log that the list reads whole."""
