"""How Claude Code is started: arguments, environment, and the first thing it is told.

What surprises: the permission mode is always ``dontAsk`` and nothing is allowed beforehand. Every tool call
needs our hook's "allow", so if nobody answers the hook, nothing runs."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable
from typing import Literal

import msgspec

from harness_durable.adapter import Launch
from harness_durable.events import AgentSpec
from harness_durable.sandbox import Content

from ..common.shapes import Json
from . import login
from .naming import RESUME_SENTINEL, SERVER, main_file

Mode = Literal["fresh", "resume", "continue"]
"""``fresh``: no conversation yet. ``resume``: an earlier one, and a new message follows. ``continue``: the
turn goes on in its middle, without a message."""

DEFAULT_TOOLS = (
    "Bash",
    "Read",
    "Edit",
    "Write",
    "NotebookEdit",
    "Glob",
    "Grep",
    "Task",
    "TodoWrite",
    "WebFetch",
    "WebSearch",
)
"""What can be made durable. Left out: timers and schedules (they live in the process), worktrees (they move
the working directory), questions to a terminal that is not there, background work."""

HOOKS = ("PreToolUse", "PostToolUse", "PostToolUseFailure")
INITIALIZE = "durable-init"
_HOOK_TIMEOUT = 86400  # seconds; a shorter one would let a call fail while no worker is there
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONFIG = "claude"

PASSED_ON = (
    "BASH_DEFAULT_TIMEOUT_MS",
    "BASH_MAX_OUTPUT_LENGTH",
    "BASH_MAX_TIMEOUT_MS",
    "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
    "CLAUDE_CODE_AUTO_COMPACT_WINDOW",
    "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "CLAUDE_CODE_MAX_RETRIES",
    "DISABLE_AUTO_COMPACT",
    "MAX_THINKING_TOKENS",
)
"""Settings of the harness that it gets if the worker's environment has them. Give them to every worker, so
that the agent is the same after a recovery."""

_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
}


class Start(msgspec.Struct, frozen=True):
    """What a start depends on. ``native`` is the conversation's id; ``custom``: there are custom tools;
    ``login``: the harness uses a login of its own."""

    binary: str
    native: str
    agent: AgentSpec
    home: str
    token: str
    custom: bool
    login: bool = False


def launch(start: Start, mode: Mode, transcript: Callable[[], AsyncIterator[bytes]]) -> Launch:
    """Start or continue a life. ``transcript`` gives the main file, unless the mode is ``fresh``: in pieces,
    since it may be large, and since a conversation may speak of a sandbox's place-holders."""
    native = start.native
    files: dict[str, Content] = {f"{_CONFIG}/tmp/.keep": b""}
    if start.login:
        files |= login.files(_CONFIG)
    if mode == "fresh":
        session = ["--session-id", native]
    else:
        # A path and not an id: it is found whatever the workspace is called on this machine.
        place = f"{_CONFIG}/projects/{SERVER}/{main_file(native)}"
        files[place] = transcript
        session = ["--resume", f"{start.home}/{place}"]
    return Launch((start.binary, *_arguments(start), *session), _environment(start, mode), files)


def initialize(*, custom: bool) -> Json:
    """The request that registers our hooks and our MCP server."""
    hooks = {name: [{"matcher": None, "hookCallbackIds": [name], "timeout": _HOOK_TIMEOUT}] for name in HOOKS}
    servers = [SERVER] if custom else []
    return {"subtype": "initialize", "hooks": hooks, "sdkMcpServers": servers}


def _arguments(start: Start) -> list[str]:
    agent = start.agent
    servers = {SERVER: {"type": "sdk", "name": SERVER}} if start.custom else {}
    given = [
        "-p",
        *("--output-format", "stream-json", "--verbose", "--input-format", "stream-json"),
        *("--session-mirror", "--replay-user-messages"),
        *("--model", agent.model, "--permission-mode", "dontAsk", "--setting-sources", ""),
        *("--strict-mcp-config", "--mcp-config", json.dumps({"mcpServers": servers})),
        *("--tools", ",".join(DEFAULT_TOOLS if agent.tools is None else agent.tools)),
        "--disable-slash-commands",
    ]
    if agent.effort is not None:
        given += ["--effort", agent.effort]
    if agent.system_prompt is not None:
        given += ["--system-prompt", agent.system_prompt]
    return given


def _environment(start: Start, mode: Mode) -> dict[str, str]:
    config = f"{start.home}/{_CONFIG}"
    env = {
        "CLAUDE_CODE_MAX_RETRIES": "100",  # as many as it has: it takes no more than 15
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
        **_QUIET,
        "PATH": ":".join(dict.fromkeys([*os.environ.get("PATH", "").split(":"), *_PATH.split(":")])).strip(
            ":"
        ),
        "HOME": start.home,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "CLAUDE_CONFIG_DIR": config,
        "CLAUDE_CODE_TMPDIR": f"{config}/tmp",
        "XDG_RUNTIME_DIR": start.home,  # for a socket that 2.1.332 opens: it goes when the home goes
        **_access(start),
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",  # it would be in this life's home, and lost with it
    }
    if mode == "continue":
        env["CLAUDE_CODE_RESUME_INTERRUPTED_TURN"] = "1"
        env["CLAUDE_CODE_RESUME_PROMPT"] = RESUME_SENTINEL
        env["CLAUDE_CODE_RESUME_SHOWS_CUT_OFF_CALLS"] = "1"
    return env


def _access(start: Start) -> dict[str, str]:
    """The way to the gateway: the token of this life is all that it asks for."""
    if start.login:
        return {**login.variables(), "ANTHROPIC_BASE_URL": f"http://127.0.0.1:@PORT@/{start.token}"}
    return {"ANTHROPIC_BASE_URL": "http://127.0.0.1:@PORT@", "ANTHROPIC_API_KEY": start.token}
