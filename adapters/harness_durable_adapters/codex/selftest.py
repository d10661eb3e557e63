"""The self-test: proves with a scripted model what no document promises.

A turn is begun, one command is refused, the next one allowed, and the harness is killed while that runs. Then
another process gets the conversation with the result that we wrote, must go on from it in the middle of the
turn, and the refused command must not have run."""

from __future__ import annotations

import anyio
from anyio.abc import Process

from harness_durable.adapter import Harness
from harness_durable.events import AgentSpec
from harness_durable.testing.provider import Reply, ToolUse, say
from harness_durable.testing.provider.messages import first_user_text, results
from harness_durable.testing.provider.policies import Script

from ..common.lines import Lines
from ..common.proof import Proof
from ..common.selftest import TEXT, Stage, stage, untrue
from ..common.shapes import Json, decode, mapping, word
from . import frames, install
from .drive import CLIENT
from .gate import APPROVALS
from .items import conversation, is_call, is_output, is_user, output, text_in
from .launch import MODEL, Start, launch, thread
from .rollout import paired

_DENIED, _CUT = "call_selftestdenied", "call_selftestcut"
_PROMPT = "self-test"
_TRAP = 'prefix_rule(pattern=["touch"], decision="allow")\n'
"""A workspace that would let the command run unasked, if its word counted."""
_STORY = Script(
    (
        Reply((ToolUse("exec_command", {"cmd": "touch ran"}, id=_DENIED),)),
        Reply((ToolUse("exec_command", {"cmd": "sleep 5"}, id=_CUT),)),
        say("continued"),
    )
)


async def self_test(harness: Harness) -> Proof:
    """Takes a few seconds; no network, no key."""
    async with stage(_STORY) as on:
        test = _Test(harness, on)
        await on.play(test.run)
        last = list(on.model.requests)[-1:]
        told = [results(one)[_CUT].text for one in last if _CUT in results(one)]
        continued = test.ended and told == [TEXT] and first_user_text(last[0]) == _PROMPT
        ran = on.ran.exists()
    found = {
        "a command that was refused ran, or nobody was asked about it": test.asked and not ran,
        "the conversation is not told item by item": test.mirrored,
        "a turn that was killed does not go on in its middle": continued,
    }
    return Proof(untrue(install.NAME, harness, found))


class _Test:
    def __init__(self, harness: Harness, on: Stage) -> None:
        self._harness, self._on = harness, on
        self._items: list[Json] = []
        self.asked = self.mirrored = self.ended = False

    async def run(self) -> None:
        rules = anyio.Path(self._on.work / ".codex" / "rules")
        await rules.mkdir(parents=True)
        await (rules / "default.rules").write_text(_TRAP)
        await self._life([], frames.user_text(_PROMPT))
        items = paired(conversation(self._items, frozenset()))
        calls = [item for item in items if is_call(item)]
        said = [text_in(item) for item in items if is_user(item)]
        self.mirrored = said == [_PROMPT] and [call.get("call_id") for call in calls] == [_DENIED, _CUT]
        if self.mirrored:
            kept = [item for item in items if not (is_output(item) and item.get("call_id") == _CUT)]
            await self._life([*kept, output(calls[-1], TEXT)], [])

    async def _life(self, given: list[Json], message: list[Json]) -> None:
        agent = AgentSpec(install.NAME, self._harness.version, MODEL, "", "")
        plan = launch(Start(self._harness.path, agent, str(self._on.homes / "codex"), "self-test"))
        async with self._on.life(plan, "codex") as process:
            await self._talk(process, given, message)

    async def _talk(self, process: Process, given: list[Json], message: list[Json]) -> None:
        """Until the command that is to be cut off may run, or the turn has ended."""
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            return
        agent = AgentSpec(install.NAME, self._harness.version, MODEL, "", "")
        await stdin.send(frames.request(frames.INITIALIZE, "initialize", CLIENT))
        lines, name = Lines(), ""
        async for chunk in stdout:
            for _, line in lines.feed(chunk):
                frame = decode(line) or {}
                params, number = mapping(frame.get("params")), word(frame.get("id"))
                if number == frames.INITIALIZE:
                    await stdin.send(frames.notice("initialized"))
                    begun = thread(agent, [])
                    await stdin.send(frames.request(frames.THREAD, "thread/start", begun))
                elif number == frames.THREAD:
                    name = word(mapping(mapping(frame.get("result")).get("thread")).get("id"))
                    items: Json = {"threadId": name, "items": given}
                    await stdin.send(frames.request(f"{frames.INJECT}0", "thread/inject_items", items))
                elif number == f"{frames.INJECT}0":
                    turn: Json = {"threadId": name, "input": message}
                    await stdin.send(frames.request(frames.TURN, "turn/start", turn))
                elif frame.get("method") == "rawResponseItem/completed" and not given:
                    self._items.append(mapping(params.get("item")))
                elif frame.get("method") in APPROVALS:
                    cut = params.get("itemId") == _CUT
                    self.asked = self.asked or params.get("itemId") == _DENIED
                    decision = "accept" if cut else "decline"
                    await stdin.send(frames.answer(frame.get("id"), {"decision": decision}))
                    if cut:
                        return
                elif frame.get("method") == "turn/completed":
                    self.ended = True
                    return
