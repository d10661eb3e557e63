"""A second process on the World under test, as the checks see it; ``world_child`` is what runs in it."""

from __future__ import annotations

import signal
import sys

import anyio
import msgspec
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from harness_durable.testing.world_child import AnyCommand, Reply
from harness_durable.world import Owner

PATIENCE = 10.0
"""Seconds, times slack, after which something that must come is reported as not coming."""


class BrokenPromise(Exception):
    """What a check saw, as a sentence."""


def expect(kept: bool, sentence: str) -> None:
    """Raise ``BrokenPromise`` unless ``kept``. (An ``assert`` would vanish under ``python -O``.)"""
    if not kept:
        raise BrokenPromise(sentence)


class Child:
    """A process on the same World. ``owner`` is the worker that it registers as."""

    def __init__(self, process: Process, owner: Owner, lines: BufferedByteReceiveStream) -> None:
        self.owner, self._process, self._lines = owner, process, lines

    async def send(self, command: AnyCommand) -> None:
        if self._process.stdin is None:
            raise BrokenPromise("the second process has no input; start it with pipes")
        await self._process.stdin.send(msgspec.json.encode(command) + b"\n")

    async def reply(self) -> Reply:
        """The next line that the process says."""
        with anyio.fail_after(3 * PATIENCE):
            return await _reply(self._lines)

    async def do(self, command: AnyCommand) -> Reply:
        await self.send(command)
        return await self.reply()

    async def must(self, command: AnyCommand) -> Reply:
        """As ``do``, for what has to succeed."""
        reply = await self.do(command)
        expect(not reply.error, f"{type(command).__name__} failed: {reply.error}: {reply.text}")
        return reply

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        self._process.kill()
        await self._process.wait()

    async def rest(self) -> list[Reply]:
        """What a killed process had said and nobody has read; half a line is not an answer."""
        replies: list[Reply] = []
        try:
            while True:
                replies.append(await _reply(self._lines))
        except (anyio.IncompleteRead, anyio.EndOfStream):
            return replies


async def _reply(lines: BufferedByteReceiveStream) -> Reply:
    return msgspec.json.decode(await lines.receive_until(b"\n", 1 << 20), type=Reply)


async def start(opener: str, url: str, app: str) -> tuple[Process, BufferedByteReceiveStream]:
    """Start the process; :func:`greet` waits until it has opened the World, :func:`end` ends it."""
    module = "harness_durable.testing.world_child"
    command = [sys.executable, "-m", module, opener, url, app]
    process = await anyio.open_process(command, stderr=None)
    if process.stdout is None:
        raise BrokenPromise("the second process has no output; start it with pipes")
    return process, BufferedByteReceiveStream(process.stdout)


async def greet(process: Process, lines: BufferedByteReceiveStream) -> Child:
    """The process as soon as it says who it is."""
    with anyio.fail_after(3 * PATIENCE):
        hello = await _reply(lines)
    if hello.owner is None:
        raise BrokenPromise("the second process did not say who it is")
    return Child(process, hello.owner, lines)


async def end(process: Process) -> None:
    """Kill it if it lives, and close its pipes, whatever happens."""
    with anyio.CancelScope(shield=True):
        if process.returncode is None:
            process.kill()
        await process.aclose()
