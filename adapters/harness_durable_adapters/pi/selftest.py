"""The self-test: proves with a scripted model what no document promises.

A turn is begun, one call is refused, the next one allowed, and its outcome is not taken: then the harness
must end itself. In another life the turn must go on in its middle with the result that we wrote, and the
refused call must not have run."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator

from anyio.abc import Process

from harness_durable.adapter import Harness
from harness_durable.events import AgentSpec
from harness_durable.testing.provider import Reply, ToolUse, say
from harness_durable.testing.provider.messages import results
from harness_durable.testing.provider.policies import Script

from ..common.lines import Lines
from ..common.proof import Proof
from ..common.selftest import TEXT, Stage, stage, untrue
from ..common.shapes import Json, decode, encode, word
from . import frames, install
from .entries import VERSION, parse
from .launch import Start, launch
from .rebuild import Answer, Case, rebuild
from .results import told

_DENIED, _CUT = "toolu_selftestdenied", "toolu_selftestcut"
_STAMP = "2026-01-01T00:00:00.000Z"
_STORY = Script(
    (
        Reply((ToolUse("bash", {"command": "touch ran"}, id=_DENIED),)),
        Reply((ToolUse("bash", {"command": "true"}, id=_CUT),)),
        say("continued"),
    )
)


async def self_test(harness: Harness) -> Proof:
    """Takes a few seconds; no network, no key."""
    async with stage(_STORY) as on:
        test = _Test(harness, on)
        await on.play(test.run)
        ran = on.ran.exists()
    found = {
        "a call that was refused ran, or nobody was asked about it": test.asked and not ran,
        "the session file is not mirrored by our extension": test.mirrored,
        "a call whose outcome cannot be recorded does not end the harness": test.stopped,
        "a killed turn does not continue in its middle": test.continued,
    }
    return Proof(untrue(install.NAME, harness, found))


class _Test:
    def __init__(self, harness: Harness, on: Stage) -> None:
        self._harness, self._on = harness, on
        self._native, self._number = str(uuid.uuid4()), str(uuid.uuid4())
        header = {"type": "session", "version": VERSION, "id": self._native, "cwd": str(on.work)}
        self._lines = [encode({**header, "timestamp": _STAMP})]
        self.asked = self.mirrored = self.stopped = self.continued = False

    async def run(self) -> None:
        await self._life(frames.message("self-test", self._number))
        entries = parse(self._lines).entries
        self.mirrored = any(one.number == self._number for one in entries) and any(
            _CUT in one.calls for one in entries
        )
        if not self.mirrored:
            return
        answer = Answer(told(TEXT)["content"], True, tool="bash")
        case = Case(self._native, "self-test", _STAMP, "", self._number, answers={_CUT: answer})
        self._lines += [encode(entry) for entry in rebuild(entries, case).added]
        await self._life(frames.go_on())
        last = self._on.model.requests[-1]
        self.continued = _CUT in results(last) and results(last)[_CUT].text == TEXT

    async def _life(self, first: bytes) -> None:
        """Until the turn has ended, the harness is dead, or it goes on although its outcome was refused."""
        lines = list(self._lines)

        async def content() -> AsyncGenerator[bytes]:
            yield b"".join(line + b"\n" for line in lines)

        agent = AgentSpec("pi", self._harness.version, "claude-sonnet-4-5", "", "", tools=("bash",))
        command = install.PINNED.command(self._harness)
        home = str(self._on.homes / "pi")
        plan = launch(Start(command, agent, home, "self-test", (), len(lines) - 1, {}), content)
        async with self._on.life(plan, "pi") as process:
            await self._talk(process, first)

    async def _talk(self, process: Process, first: bytes) -> None:
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            return
        await stdin.send(frames.command(frames.COMMANDS, "get_commands"))
        lines, refused = Lines(), False
        async for chunk in stdout:
            for _, line in lines.feed(chunk):
                frame = decode(line) or {}
                if frame.get("id") == frames.COMMANDS and frames.is_in_place(frame.get("data")):
                    await stdin.send(first)
                question = frames.question(frame)
                if question is None:
                    continue
                if refused:
                    return
                self._lines += question.lines
                refused = question.kind == "result"
                number = question.id
                await stdin.send(
                    frames.withdrawal(number) if refused else frames.answer(number, self._decide(question))
                )
                if question.kind == "settled":
                    return
        self.stopped = self.stopped or refused

    def _decide(self, question: frames.Question) -> Json:
        if question.kind != "call":
            return {}
        self.asked = True
        allowed = word(question.about.get("call")) == _CUT
        return {"run": True} if allowed else {"reason": "self-test"}
