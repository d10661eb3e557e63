"""The self-test: proves with a scripted model what no document promises.

A turn is begun, one call is denied, the next one allowed, and the harness is killed while that runs. Then the
turn must continue in its middle with the result that we wrote, and the denied call must not have run."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator

from anyio.abc import Process

from harness_durable.adapter import Harness
from harness_durable.events import AgentSpec
from harness_durable.testing.provider import Reply, ToolUse, say
from harness_durable.testing.provider.messages import assistant_turns, results
from harness_durable.testing.provider.policies import Script

from ..common.lines import Lines
from ..common.proof import Proof
from ..common.selftest import TEXT, Stage, stage, untrue
from ..common.shapes import Json, decode, mapping, objects, word
from . import frames, install
from .case import Answer, Case, Response
from .launch import INITIALIZE, Mode, Start, initialize, launch
from .rebuild import file_of, rebuild
from .transcript import made

_DENIED, _CUT = "toolu_selftestdenied", "toolu_selftestcut"
_STORY = Script(
    (
        Reply((ToolUse("Bash", {"command": "touch ran"}, id=_DENIED),)),
        Reply((ToolUse("Bash", {"command": "sleep 5"}, id=_CUT),)),
        say("continued"),
    )
)


async def self_test(harness: Harness) -> Proof:
    """Takes a few seconds; no network, no key."""
    async with stage(_STORY) as on:
        test = _Test(harness, on)
        await on.play(test.run)
        ran = on.ran.exists()
    barrier = {"a call that was denied ran, or nobody was asked about it": test.asked and not ran}
    middle = {
        "the transcript is not mirrored on its output": test.mirrored,
        "a killed turn does not continue in its middle": test.continued,
    }
    return Proof(untrue(install.NAME, harness, barrier), untrue(install.NAME, harness, middle))


class _Test:
    def __init__(self, harness: Harness, on: Stage) -> None:
        self._harness, self._on = harness, on
        self._native = str(uuid.uuid4())
        self._entries: list[Json] = []
        self.asked = self.mirrored = self.continued = False

    async def run(self) -> None:
        prompt = str(uuid.uuid4())
        await self._life("fresh", b"", frames.message("self-test", prompt, self._native))
        cut = self._response_of(_CUT)
        self.mirrored = bool(cut) and any(entry.get("uuid") == prompt for entry in self._entries)
        if not self.mirrored:
            return
        response = Response(cut, (_CUT,), open=False, began=True)
        answers = {_CUT: Answer(TEXT, True, TEXT)}
        case = Case(
            self._native, True, prompt, [response], answers, str(self._on.work), self._harness.version
        )
        rebuilt = rebuild([made(entry) for entry in self._entries], case)
        await self._life("continue", file_of(rebuilt.lines), None)
        last = next(one for one in reversed(self._on.model.requests) if one.tools)
        told = results(last)
        self.continued = assistant_turns(last) == 2 and _CUT in told and told[_CUT].text == TEXT

    def _response_of(self, call: str) -> str:
        """The id of the response that holds a call, if it is mirrored."""
        messages = [mapping(entry.get("message")) for entry in self._entries]
        holds = (one for one in messages if any(b.get("id") == call for b in objects(one.get("content"))))
        return next((word(one.get("id")) for one in holds), "")

    async def _life(self, mode: Mode, transcript: bytes, message: bytes | None) -> None:
        agent = AgentSpec(install.NAME, self._harness.version, "claude-sonnet-4-5", "", "", tools=("Bash",))
        home = str(self._on.homes / "claude")
        start = Start(self._harness.path, self._native, agent, home, "self-test", custom=False)

        async def content() -> AsyncGenerator[bytes]:
            yield transcript

        async with self._on.life(launch(start, mode, content), "claude") as process:
            await self._talk(process, message)

    async def _talk(self, process: Process, message: bytes | None) -> None:
        """Until the call that is to be cut off runs and is mirrored, or the turn has ended."""
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            return
        await stdin.send(frames.request(INITIALIZE, initialize(custom=False)) + (message or b""))
        lines = Lines()
        allowed = False
        async for chunk in stdout:
            for _, line in lines.feed(chunk):
                frame = decode(line) or {}
                if frame.get("type") == "transcript_mirror":
                    self._entries += objects(frame.get("entries"))
                elif frame.get("type") == "result":
                    return
                elif frame.get("type") == "control_request":
                    event = mapping(mapping(frame.get("request")).get("input"))
                    allowed = allowed or event.get("tool_use_id") == _CUT
                    await stdin.send(frames.answer(word(frame.get("request_id")), self._decide(event)))
            if allowed and self._response_of(_CUT):
                return

    def _decide(self, event: Json) -> Json:
        if event.get("hook_event_name") != "PreToolUse":
            return {}
        self.asked = True
        decision = "allow" if event.get("tool_use_id") == _CUT else "deny"
        return {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": decision,
                "permissionDecisionReason": "self-test",
            }
        }
