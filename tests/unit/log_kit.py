"""Logs by hand, for tests of the pure core: a session whose first turn runs in life L1, and what follows."""

from __future__ import annotations

from harness_durable import events as ev
from harness_durable.events import ReplayPolicy, ToolOrigin
from harness_durable.fold import fold
from harness_durable.payload import pack, pack_text
from harness_durable.state import Session

AGENT = ev.AgentSpec("claude-code", "2.1.0", "x", "local", "ws")
TEXT = pack_text("x").payload

Log = list[ev.AnyEvent]

BEGIN: Log = [
    ev.SessionCreated(1, "native", AGENT),
    ev.MessageAccepted("m-1", TEXT),
    ev.SessionClaimed(1, "w1", "here", 1),
    ev.TurnStarted("m-1"),
    ev.LifeStarted("L1", "m-1", "local", "run", "here", "2.1.0"),
]


def state(*log: ev.AnyEvent) -> Session:
    return fold(ev.Entry(place, 1000 + place, 1, event) for place, event in enumerate([*BEGIN, *log], 1))


def model(call: str = "m1", *, done: bool = True) -> Log:
    asked: Log = [ev.ModelRequested(call, "k", "L1", "anthropic", "x", "/", (TEXT,))]
    return [*asked, ev.ModelCompleted(call, 200, "json", TEXT)] if done else asked


def tool(
    call: str,
    replay: ReplayPolicy = "never",
    *,
    name: str = "Bash",
    custom: bool = False,
    released: bool = False,
    request: int | None = None,
    done: bool = False,
    agent: str | None = None,
    model_call: str = "m1",
) -> Log:
    origin: ToolOrigin = "custom" if custom else "builtin"
    log: Log = [ev.ToolRequested(call, name, pack(b"{}").payload, model_call, replay, origin, agent)]
    if released or done:
        log.append(ev.ToolReleased(call, "L1", request=request))
    if done:
        log.append(ev.ToolCompleted(call, TEXT, "hook"))
    return log
