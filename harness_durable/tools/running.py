"""Functions while they run: joined by id, stopped on request, limited in time; sync ones in threads.

What surprises: a thread cannot be stopped. When its call is cut, nobody waits for it any more, but it goes
on; ``ToolContext.cancelled`` tells it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable
from typing import Literal

import anyio
import msgspec

from harness_durable.tools.declare import ToolContext
from harness_durable.tools.results import ToolResult


class Returned(msgspec.Struct, frozen=True):
    """The function came back."""

    value: object


class Crashed(msgspec.Struct, frozen=True):
    """The function raised."""

    error: BaseException


class Cut(msgspec.Struct, frozen=True):
    """It was stopped on request, or ran out of time. It may have had its effect."""

    why: Literal["stopped", "timed_out"]


class Running:
    """A call that runs here now."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.result: ToolResult | None = None
        self.ctx: ToolContext | None = None
        self.stopped = False
        self.scope: anyio.CancelScope | None = None

    def stop(self) -> None:
        self.stopped = True
        if self.scope is not None:
            self.scope.cancel()


_threads: dict[str, threading.Thread] = {}
"""By idempotency key, across lives: a thread outlives the life that it was started in."""


def lives_on(key: str) -> bool:
    """Whether a thread of this process is still at the call with this key."""
    return key in _threads


class Runs:
    """The calls that run in this process, each at most once."""

    def __init__(self) -> None:
        self._running: dict[str, Running] = {}

    async def join(self, call_id: str, work: Callable[[Running], Awaitable[ToolResult]]) -> ToolResult:
        """Do ``work``, or wait for who does it already. If that one is cut short by its own caller's end,
        this one takes its place."""
        while (other := self._running.get(call_id)) is not None:
            await other.done.wait()
            if other.result is not None:
                return other.result
        running = self._running[call_id] = Running()
        try:
            running.result = await work(running)
            return running.result
        finally:
            del self._running[call_id]
            running.done.set()

    async def stop(self, call_id: str) -> None:
        """Stop a call and wait until it is over."""
        running = self._running.get(call_id)
        if running is not None:
            running.stop()
            await running.done.wait()


async def run(
    running: Running, function: Callable[[], object], is_async: bool, timeout: float | None
) -> Returned | Crashed | Cut:
    """Run it to one of its ends. Only the end of the caller itself is raised, as cancellation."""
    if running.stopped:
        return Cut("stopped")
    with anyio.CancelScope() as running.scope, anyio.move_on_after(timeout):
        try:
            key = running.ctx.key if running.ctx is not None else ""
            return await (_awaited(function) if is_async else _threaded(function, key))
        finally:
            running.scope = None
            if running.ctx is not None:
                running.ctx.cancel()
    return Cut("stopped" if running.stopped else "timed_out")


async def _awaited(function: Callable[[], object]) -> Returned | Crashed:
    try:
        value = function()
        return Returned(await value if inspect.isawaitable(value) else value)
    except asyncio.CancelledError:
        if anyio.get_current_task().has_pending_cancellation():
            raise
        # It awaited something that somebody else had cancelled; nobody has cancelled us.
        return Crashed(RuntimeError("the tool was cancelled from within"))
    except (Exception, SystemExit) as error:  # whatever a tool raises is its outcome
        return Crashed(error)


async def _threaded(function: Callable[[], object], key: str) -> Returned | Crashed:
    """In a daemon thread of its own: one that hangs must neither keep the worker from exiting nor use up a
    place in a pool that others need."""
    loop = asyncio.get_running_loop()
    end: asyncio.Future[Returned | Crashed] = loop.create_future()

    def body() -> None:
        found: Returned | Crashed
        try:
            found = Returned(function())
        except BaseException as error:  # there is nobody above us in this thread to hear of it
            found = Crashed(error)
        if _threads.get(key) is threading.current_thread():
            del _threads[key]
        # The loop is closed if nobody waits any more and the worker is about to end.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if end.done() else end.set_result(found))

    run_in = contextvars.copy_context().run
    thread = threading.Thread(target=run_in, args=(body,), name="harness-durable tool", daemon=True)
    if key:
        _threads[key] = thread
    thread.start()
    found = await end
    if isinstance(found, Returned) and inspect.isawaitable(value := found.value):
        return await _awaited(lambda: value)  # a plain function around an async one
    return found
