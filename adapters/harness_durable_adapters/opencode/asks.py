"""What the harness itself asks: answered from the log, where it stands already.

A question of the model's to a person is a permission request of ours, put at the barrier under the call's id:
so it is durable before anybody sees it, and its answer before the harness hears of it. Each line of the
reason that comes with a yes answers one question; the last line, all that are left."""

from __future__ import annotations

from typing import cast

from harness_durable.adapter import LifeContext
from harness_durable.state import Permission

from ..common.answers import lines
from ..common.shapes import Json, encode, mapping, objects, word
from .server import Refused, Server

QUESTION = "question"
"""The harness's tool for asking a person."""


async def answer(ctx: LifeContext, server: Server) -> None:
    """Give the harness the answers that it waits for. What else it asks has passed our barrier."""
    for asked in objects(await server.json("GET", "/question")):
        call = word(mapping(asked.get("tool")).get("callID"))
        await _reply(server, asked, ctx.journal.state.permissions.get(call))
    for asked in objects(await server.json("GET", "/permission")):
        await _say(server, f"/permission/{word(asked.get('id'))}/reply", {"reply": "once"})


async def answered(ctx: LifeContext, call: str, questions: object) -> None:
    """A question that a person has answered has its outcome, in the harness's own words, before the harness
    asks it: else a death in between would have it asked once more. One that the harness will refuse to ask
    is left to it."""
    given, asked = ctx.journal.state.permissions.get(call), objects(questions)
    if given is None or not given.allow or not asked or not all(map(_is_question, asked)):
        return
    said = lines(given.reason, len(asked))
    pairs = ", ".join(f'"{one["question"]}"="{text}"' for one, text in zip(asked, said, strict=True))
    told = f"User has answered your questions: {pairs}. You can now continue with the user's answers in mind."
    title = f"Asked {len(asked)} question{'s' if len(asked) > 1 else ''}"
    form: Json = {"title": title, "output": told, "metadata": {"answers": [[text] for text in said]}}
    result = told.encode("utf-8", "backslashreplace")
    await ctx.journal.tool_finished(call, ok=True, result=result, source="hook", detail=encode(form))


def _is_question(one: Json) -> bool:
    options = one.get("options")
    if not isinstance(options, list):
        return False
    known = objects(cast(list[object], options))
    texts = [one.get("question"), one.get("header")]
    texts += [option.get(name) for option in known for name in ("label", "description")]
    return len(known) == len(cast(list[object], options)) and all(isinstance(text, str) for text in texts)


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
