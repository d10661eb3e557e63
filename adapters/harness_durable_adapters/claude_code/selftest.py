"""The self-test: proves with a tiny model of our own what no document promises.

A turn is begun, one call is denied, the next one allowed, and the harness is killed while that runs. Then the
turn must continue in its middle with the result that we wrote, and the denied call must not have run."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import Process

from harness_durable.adapter import Harness
from harness_durable.events import AgentSpec

from ..common.lines import Lines
from ..common.shapes import Json, decode, mapping, objects, word
from . import frames
from .case import Answer, Case, Response
from .launch import INITIALIZE, Mode, Start, initialize, launch
from .rebuild import file_of, rebuild
from .selftest_model import Model, Reply
from .transcript import made

SECONDS = 60.0
_DENIED, _CUT = "toolu_selftestdenied", "toolu_selftestcut"
_TEXT = "self-test: this result was written by recovery"
_REPLIES: tuple[Reply, ...] = (
    ("msg_selftest1", {"type": "tool_use", "id": _DENIED, "name": "Bash", "input": {"command": "touch ran"}}),
    ("msg_selftest2", {"type": "tool_use", "id": _CUT, "name": "Bash", "input": {"command": "sleep 5"}}),
    ("msg_selftest3", {"type": "text", "text": "continued"}),
)


class Proof(msgspec.Struct, frozen=True):
    """``blocks``: a call that our hook denies does not run. ``continues``: a killed turn goes on in its
    middle. ``troubles`` says in sentences what does not hold."""

    blocks: bool
    continues: bool
    troubles: tuple[str, ...] = ()


async def self_test(harness: Harness) -> Proof:
    """Takes a few seconds; no network, no key."""
    troubles: list[str] = []
    with tempfile.TemporaryDirectory(
        prefix="harness-durable-self-test-", ignore_cleanup_errors=True
    ) as folder:
        async with Model.serve(_REPLIES) as model:
            test = _Test(harness, Path(folder), model)
            with anyio.move_on_after(SECONDS), suppress(anyio.BrokenResourceError):  # it ended by itself
                await test.run()
        blocks = test.asked and not (test.work / "ran").exists()
    version = harness.version
    if not blocks:
        troubles.append(f"claude-code {version}: a call that was denied ran, or nobody was asked about it")
    if not test.mirrored:
        troubles.append(f"claude-code {version}: the transcript is not mirrored on its output")
    if not test.continued:
        troubles.append(f"claude-code {version}: a killed turn does not continue in its middle")
    return Proof(blocks, test.mirrored and test.continued, tuple(troubles))


class _Test:
    def __init__(self, harness: Harness, folder: Path, model: Model) -> None:
        self._harness, self._model = harness, model
        self._native = str(uuid.uuid4())
        self.home, self.work = folder / "home", folder / "work"
        self._entries: list[Json] = []
        self.asked = self.mirrored = self.continued = False

    async def run(self) -> None:
        await anyio.Path(self.work).mkdir(parents=True)
        prompt = str(uuid.uuid4())
        await self._life("fresh", b"", frames.message("self-test", prompt, self._native))
        self.mirrored = any(entry.get("uuid") == prompt for entry in self._entries) and any(
            objects(mapping(entry.get("message")).get("content"))
            and objects(mapping(entry.get("message")).get("content"))[0].get("id") == _CUT
            for entry in self._entries
        )
        if not self.mirrored:
            return
        answer = Answer(_TEXT, True, _TEXT)
        response = Response("msg_selftest2", (_CUT,), open=False, began=True)
        case = Case(
            self._native,
            True,
            prompt,
            [response],
            {_CUT: answer},
            str(self.work),
            self._harness.version,
        )
        rebuilt = rebuild([made(entry) for entry in self._entries], case)
        await self._life("continue", file_of(rebuilt.lines), None)
        self.continued = _TEXT in self._model.last and self._model.given >= len(_REPLIES)

    async def _life(self, mode: Mode, transcript: bytes, message: bytes | None) -> None:
        agent = AgentSpec("claude-code", self._harness.version, "claude-sonnet-4-5", "", "", tools=("Bash",))
        start = Start(self._harness.path, self._native, agent, str(self.home), "self-test", custom=False)

        async def content() -> AsyncGenerator[bytes]:
            yield transcript

        plan = launch(start, mode, content)
        for name, part in plan.files.items():
            path = anyio.Path(self.home / name)
            await path.parent.mkdir(parents=True, exist_ok=True)
            await path.write_bytes(part if isinstance(part, bytes) else transcript)
        env = {name: text.replace("@PORT@", str(self._model.port)) for name, text in plan.env.items()}
        process = await anyio.open_process(
            plan.argv, env=env, cwd=self.work, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            await self._talk(process, message)
        finally:
            with anyio.CancelScope(shield=True):
                _kill(process)
                await process.aclose()

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
            if allowed and _mentions(self._entries, _CUT):
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


def _mentions(entries: Sequence[Json], call: str) -> bool:
    return any(
        block.get("id") == call
        for entry in entries
        for block in objects(mapping(entry.get("message")).get("content"))
    )


def _kill(process: Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
