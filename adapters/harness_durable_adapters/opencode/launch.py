"""How the harness is started: quiet, offline, everything of it below the life's home, its barrier in place.

What surprises: without the three files in its configuration folder it would install packages from the network
before it answers, and wait for them."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.resources import files as resources

import msgspec

from harness_durable.adapter import Launch
from harness_durable.events import AgentSpec
from harness_durable.sandbox import Content

from ..common.naming import custom_tool
from ..common.shapes import Json
from .naming import AGENT, BARRIER, PROVIDER

DEFAULT_TOOLS = ("bash", "edit", "glob", "grep", "read", "task", "todowrite", "webfetch", "write")
"""What can be made durable. Left out: ``question``, unless it is named, as somebody has to be there for it;
skills, which lie in the user's home."""

CONTEXT = "HARNESS_DURABLE_OPENCODE_CONTEXT"
OUTPUT = "HARNESS_DURABLE_OPENCODE_OUTPUT"
VARIABLES = (CONTEXT, OUTPUT)
"""Environment variables: tokens that the model takes, and that it writes at most. Give them to every
worker."""

_CONTEXT_TOKENS = 200_000
_OUTPUT_TOKENS = 32_000
_EDITS = frozenset({"edit", "write", "apply_patch"})
"""The harness allows or forbids these together."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CONFIG = "config/opencode"
_PLUGIN = f"{_CONFIG}/harness-durable.js"
_PROMPT = f"{_CONFIG}/system-prompt.txt"


class Start(msgspec.Struct, frozen=True):
    """What a start depends on. ``tools`` are the custom ones, as MCP lists them; ``session`` is the harness's
    id of ours, beside which it has those of subagents."""

    binary: str
    version: str
    agent: AgentSpec
    home: str
    cwd: str
    token: str
    tools: Sequence[Mapping[str, object]]
    session: str


def launch(start: Start) -> Launch:
    files: dict[str, Content] = {
        **_no_install(start.version),
        "tmp/.keep": b"",
        f"{_CONFIG}/opencode.json": json.dumps(_config(start)).encode(),
        _PLUGIN: _pieces(_plugin(start)),
    }
    if start.agent.system_prompt is not None:
        files[_PROMPT] = _pieces(start.agent.system_prompt.encode("utf-8", "replace"))
    argv = (start.binary, "serve", "--hostname", "127.0.0.1", "--port", "0")
    return Launch(argv, _environment(start), files)


def _pieces(content: bytes) -> Callable[[], AsyncIterator[bytes]]:
    """A content in which no place is filled in: a text may speak of a sandbox's place-holders."""

    async def give() -> AsyncIterator[bytes]:
        yield content

    return give


def _no_install(version: str) -> dict[str, Content]:
    """What makes the harness believe that its packages are there. Ours needs none."""
    wanted = {"dependencies": {"@opencode-ai/plugin": version}}
    lock = {"name": "harness-durable", "lockfileVersion": 3, "packages": {"": wanted}}
    return {
        f"{_CONFIG}/node_modules/.keep": b"",
        f"{_CONFIG}/package.json": json.dumps(wanted).encode(),
        f"{_CONFIG}/package-lock.json": json.dumps(lock).encode(),
    }


def _config(start: Start) -> Json:
    agent = start.agent
    model = f"{PROVIDER}/{agent.model}"
    config: Json = {
        "model": model,
        "small_model": model,
        "share": "disabled",
        "autoupdate": False,
        "snapshot": False,
        "lsp": False,
        "formatter": False,
        "enabled_providers": [PROVIDER],
        "permission": _permissions(agent.tools, start.tools),
        "plugin": [f"file://{start.home}/{_PLUGIN}"],
        "provider": {
            PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "name": PROVIDER,
                "options": {
                    "baseURL": "http://127.0.0.1:@PORT@/v1",
                    "apiKey": start.token,
                    "headerTimeout": False,
                    "chunkTimeout": False,
                },
                "models": {agent.model: _model(agent)},
            }
        },
    }
    agents = _subagents(start.tools)
    if agent.system_prompt is not None:
        agents[AGENT] = {"prompt": f"{{file:{start.home}/{_PROMPT}}}"}
    config["agent"] = agents
    return config


def _subagents(custom: Sequence[Mapping[str, object]]) -> Json:
    """What the harness would forbid them by itself, had we not said what is allowed: subagents of their own,
    and all that changes anything to the one that only looks around."""
    ours = [custom_tool(str(tool["name"])) for tool in custom]
    changes = ["task", "edit", "todowrite", *ours]
    return {
        "general": {"permission": dict.fromkeys(("task", "todowrite"), "deny")},
        "explore": {"permission": dict.fromkeys(changes, "deny")},
    }


def _model(agent: AgentSpec) -> Json:
    model: Json = {
        "name": agent.model,
        "tool_call": True,
        "attachment": True,
        "modalities": {"input": ["text", "image"], "output": ["text"]},
        "limit": {"context": _number(CONTEXT, _CONTEXT_TOKENS), "output": _number(OUTPUT, _OUTPUT_TOKENS)},
    }
    if agent.effort is not None:
        model["reasoning"] = True
        model["options"] = {"reasoningEffort": agent.effort}
    return model


def _permissions(tools: Sequence[str] | None, custom: Sequence[Mapping[str, object]]) -> Json:
    """What is denied is not offered. All else is allowed here, since our barrier asks the people. The last
    rule that fits counts."""
    allowed = dict.fromkeys(
        "edit" if tool in _EDITS else tool for tool in (DEFAULT_TOOLS if tools is None else tools)
    )
    ours = [custom_tool(str(tool["name"])) for tool in custom]
    names = [*allowed, *ours, "invalid", "doom_loop", "external_directory"]
    rules: Json = {"*": "deny", **dict.fromkeys(names, "allow")}
    return {**rules, BARRIER: "deny"}


def _plugin(start: Start) -> bytes:
    tools = {
        custom_tool(str(tool["name"])): {"description": tool["description"], "schema": tool["inputSchema"]}
        for tool in start.tools
    }
    named = {"TOKEN": start.token, "SESSION": start.session, "TOOLS": tools}
    head = "".join(f"const {name} = {json.dumps(what)}\n" for name, what in named.items())
    return head.encode() + resources(__package__ or "").joinpath("gate.js").read_bytes()


def _environment(start: Start) -> dict[str, str]:
    home = start.home
    path = dict.fromkeys([*os.environ.get("PATH", "").split(":"), *_PATH.split(":")])
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "SHARE", "PROJECT_CONFIG", "EXTERNAL_SKILLS")
    return {
        "PATH": ":".join(path).strip(":"),
        "HOME": home,
        "PWD": start.cwd,  # the harness believes this, and not where it is
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": f"{home}/tmp",  # not for commands: see the plugin
        "XDG_DATA_HOME": f"{home}/data",
        "XDG_CONFIG_HOME": f"{home}/config",
        "XDG_STATE_HOME": f"{home}/state",
        "XDG_CACHE_HOME": f"{home}/cache",
        "XDG_RUNTIME_DIR": home,
        **{f"OPENCODE_DISABLE_{what}": "1" for what in (*off, "CLAUDE_CODE", "EMBEDDED_WEB_UI")},
        "OPENCODE_SERVER_PASSWORD": start.token,
        "HARNESS_DURABLE_GATE": "http://127.0.0.1:@PORT@/durable/",
    }


def _number(variable: str, default: int) -> int:
    given = os.environ.get(variable, "")
    return int(given) if given.isdigit() and int(given) > 0 else default
