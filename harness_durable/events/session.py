"""A session from its making to its end, and who may drive it."""

from __future__ import annotations

from typing import Literal

import msgspec

from harness_durable.events.base import Event, ReplayPolicy

ASK = "ask"
"""The permission mode in which a person is asked before a call that is not safe."""


Keeping = Literal["durable", "kept", "scratch"]
"""What becomes of the files that the harness works on. ``durable``: each step's are in the log. ``kept``: the
folder is as it is, on its host. ``scratch``: an empty folder of the session's own, which ends with it."""


class AgentSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What must be the same after every recovery (I12). ``tools`` are built-in ones, None: the adapter's
    default; ``custom_tools`` the names of ours. ``files``: logs from before there was a choice are ``kept``.
    ``sandbox_options``: all that the sandbox has, so that its defaults may change."""

    adapter: str
    harness_version: str
    model: str
    sandbox: str
    workspace: str
    permission_mode: str = "default"
    effort: str | None = None
    tools: tuple[str, ...] | None = None
    custom_tools: tuple[str, ...] = ()
    system_prompt: str | None = None
    policies: dict[str, ReplayPolicy] = {}
    files: Keeping = "kept"
    sandbox_options: dict[str, str] = {}


class SessionCreated(Event, frozen=True, tag="session.created"):
    format: int
    native_id: str
    agent: AgentSpec
    title: str = ""


class SessionClaimed(Event, frozen=True, tag="session.claimed"):
    """``displaced``: the worker before may be alive, and a tool that it runs may have its effect yet."""

    epoch: int
    worker: str
    host: str
    pid: int
    displaced: bool = False


class SessionReleased(Event, frozen=True, tag="session.released"):
    """A planned stop: it uses up no attempt."""

    reason: str


class SessionClosed(Event, frozen=True, tag="session.closed"):
    reason: str


class SessionForked(Event, frozen=True, tag="session.forked"):
    """All that is before this record is a copy of what ``parent`` had up to its event ``at``; what comes
    after it is another session's. ``workspace`` and ``files`` are what the agent has from here on instead
    of its own."""

    parent: str
    at: int
    workspace: str
    files: Keeping


class SessionMoved(Event, frozen=True, tag="session.moved"):
    """It goes on in another store, with all that is before this record: nobody drives it here any more,
    nobody writes into it. ``status`` and ``due`` are what its row said, and says there."""

    to: str
    status: str
    due: int | None = None
