"""What the harness itself asks: answered from the log, where it stands already.

A question of the model's to a person is a permission request of ours, put at the barrier under the call's id:
so it is durable before anybody sees it, and its answer before the harness hears of it. Each line of the
reason that comes with a yes answers one question; the last line, all that are left."""

from __future__ import annotations

from harness_durable.adapter import LifeContext
from harness_durable.state import Permission

from ..common.shapes import Json, mapping, objects, word
from .server import Refused, Server

QUESTION = "question"
"""The harness's tool for asking a person."""


async def answer(ctx: LifeContext, server: Server, session: str) -> None:
    """Give the harness the answers that it waits for. What else it asks has passed our barrier."""
    for asked in objects(await server.json("GET", "/question")):
        if asked.get("sessionID") == session:
            call = word(mapping(asked.get("tool")).get("callID"))
            await _reply(server, asked, ctx.journal.state.permissions.get(call))
    for asked in objects(await server.json("GET", "/permission")):
        await _say(server, f"/permission/{word(asked.get('id'))}/reply", {"reply": "once"})


async def _reply(server: Server, asked: Json, given: Permission | None) -> None:
    path = f"/question/{word(asked.get('id'))}"
    if given is None or not given.allow:
        await _say(server, f"{path}/reject", {})
        return
    answers = lines(given.reason, len(objects(asked.get("questions"))))
    await _say(server, f"{path}/reply", {"answers": [[one] for one in answers]})


async def _say(server: Server, path: str, body: Json) -> None:
    """Whoever was first has answered it."""
    try:
        await server.call("POST", path, body)
    except Refused as refused:
        if refused.status not in (400, 404):
            raise


def lines(reason: str, count: int) -> list[str]:
    """``count`` answers out of one text."""
    said = [line.strip() for line in reason.splitlines() if line.strip()] or ["yes"]
    return [said[min(place, len(said) - 1)] for place in range(count)]
