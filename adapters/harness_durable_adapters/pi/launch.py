"""How Pi is started: arguments, environment, and the files of its home.

What surprises: its own extensions, skills, templates and the project's settings are off, and the only way to
a tool leads through our extension. That a life has it is asked before the model's first answer is given."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.resources import files
from typing import cast

import msgspec

from harness_durable.adapter import Launch
from harness_durable.errors import BadSetting
from harness_durable.events import AgentSpec, ReplayPolicy
from harness_durable.policy import CANCELLED, STOPPED
from harness_durable.sandbox import Content

from ..common.naming import custom_tool
from ..common.shapes import Json, encode
from .naming import COMMAND, MARK, TITLE

SETTINGS = "HARNESS_DURABLE_PI_SETTINGS"
"""Environment variable: a JSON object with settings of the harness, such as ``compaction`` or ``retry``. Give
it to every worker, so that the agent is the same after a recovery."""

DEFAULT_TOOLS = ("read", "bash", "edit", "write")
ACTS = ("bash", "edit", "write")
"""Built-in tools that change something. One call at a time, unless repeating them is safe: the harness asks
for all calls of a batch before it runs the first, and a crash in between would make all of them unknown."""

_FOLDER = "pi"
_SESSION = "session.jsonl"
_EXTENSION = "durable.mjs"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_DEFAULTS: Json = {"retry": {"maxRetries": 10}}
_FIXED: Json = {
    "cacheWarming": "off",  # it would ask the provider by itself
    "defaultProjectTrust": "never",
    "httpIdleTimeoutMs": "disabled",  # an answer waits for a worker, however long that takes
    "packages": [],
    "extensions": [],
    "quietStartup": True,
}
_QUIET = {"PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"}


class Start(msgspec.Struct, frozen=True):
    """What a start depends on. ``command``: the words that start the harness; ``tools``: our custom tools as
    MCP lists them; ``entries``: how many the session has; ``policies``: today's of the built-in tools."""

    command: tuple[str, ...]
    agent: AgentSpec
    home: str
    token: str
    tools: Sequence[Mapping[str, object]]
    entries: int
    policies: Mapping[str, ReplayPolicy]


def launch(start: Start, session: Callable[[], AsyncIterator[bytes]]) -> Launch:
    """Start or continue a life. ``session`` gives the session file: in pieces, since it may be large. Raises
    ``BadSetting``."""
    contents: dict[str, Content] = {
        f"{_FOLDER}/settings.json": encode(_settings()),
        f"{_FOLDER}/models.json": encode(
            {"providers": {"anthropic": {"baseUrl": "http://127.0.0.1:@PORT@"}}}
        ),
        f"{_FOLDER}/durable.json": encode(_told(start)),
        f"{_FOLDER}/{_EXTENSION}": extension(),
        "tmp/.keep": b"",
        _SESSION: session,
    }
    return Launch((*start.command, *_arguments(start)), _environment(start), contents)


def extension() -> bytes:
    """Our part that runs inside the harness."""
    return files("harness_durable_adapters.pi").joinpath(_EXTENSION).read_bytes()


def sequential(policies: Mapping[str, ReplayPolicy]) -> list[str]:
    """The built-in tools of which one call runs at a time."""
    return [name for name in ACTS if policies.get(name, "never") != "safe"]


def _arguments(start: Start) -> list[str]:
    agent = start.agent
    given = [
        *("--mode", "rpc", "--offline"),
        *("--no-extensions", "--no-approve", "--no-skills", "--no-prompt-templates", "--no-themes"),
        *("--model", f"anthropic/{agent.model}"),
        *("--extension", f"{start.home}/{_FOLDER}/{_EXTENSION}"),
        *("--session", f"{start.home}/{_SESSION}"),
    ]
    if agent.tools is not None:
        given += [
            "--tools",
            ",".join([*agent.tools, *(custom_tool(str(tool["name"])) for tool in start.tools)]),
        ]
    if agent.effort is not None:
        given += ["--thinking", agent.effort]
    if agent.system_prompt is not None:
        given += ["--system-prompt", agent.system_prompt]
    return given


def _told(start: Start) -> Json:
    """What the extension has to know."""
    tools = [
        {
            "name": custom_tool(str(tool["name"])),
            "description": tool["description"],
            "parameters": tool["inputSchema"],
        }
        for tool in start.tools
    ]
    return {
        "title": TITLE,
        "command": COMMAND,
        "mark": MARK,
        "notRun": STOPPED,
        "cut": CANCELLED,
        "entries": start.entries,
        "sequential": sequential(start.policies),
        "tools": tools,
    }


def _settings() -> Json:
    text = os.environ.get(SETTINGS, "{}")
    try:
        given: object = json.loads(text)
    except ValueError as error:
        raise BadSetting(f"{SETTINGS} is no JSON ({error}); give an object or unset it") from error
    if not isinstance(given, dict):
        raise BadSetting(f"{SETTINGS} is no JSON object; give one, or unset it")
    return {**_DEFAULTS, **cast(Json, given), **_FIXED}


def _environment(start: Start) -> dict[str, str]:
    paths = dict.fromkeys([*os.environ.get("PATH", "").split(":"), *_PATH.split(":")])
    return {
        **_QUIET,
        "PATH": ":".join(paths).strip(":"),
        "HOME": start.home,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": f"{start.home}/tmp",
        "PI_CODING_AGENT_DIR": f"{start.home}/{_FOLDER}",
        "ANTHROPIC_API_KEY": start.token,
    }
