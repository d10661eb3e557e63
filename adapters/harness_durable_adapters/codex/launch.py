"""How Codex is started: arguments, environment, configuration, and what its thread is begun with.

What surprises: the sandbox of Codex is off and every command asks us first (``untrusted``), so if nobody
answers, nothing runs. That policy must be given with the thread: in the configuration it aborts the start."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import msgspec

from harness_durable.adapter import Launch
from harness_durable.events import AgentSpec
from harness_durable.sandbox import Content

from ..common.naming import custom_tool
from ..common.shapes import Json
from .naming import PROVIDER

SHELL, PATCH, IMAGE = "exec_command", "apply_patch", "view_image"
STDIN, ASK = "write_stdin", "request_user_input"
DEFAULT_TOOLS = (SHELL, STDIN, PATCH, IMAGE)
"""What can be made durable. Left out: subagents (a lost one is not resumed), goals, searches of the provider,
plugins and apps. ``ASK`` is for sessions with somebody who answers, and has to be named."""

MODEL = "gpt-5.5"
"""For new sessions: the newest that Codex itself does not run in code mode."""

_KEY = "HARNESS_DURABLE_TOKEN"
_FOLDER = "codex"
_CATALOG = "models.json"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RETRIES = 10
"""Of a request that failed for a trouble that may pass, with growing pauses: some minutes in all."""

_OFF = (
    "plugins",
    "apps",
    "remote_plugin",
    "multi_agent",
    "multi_agent_v2",
    "goals",
    "shell_snapshot",
    "instant_interrupt",
    "memories",
    "image_generation",
    "tool_suggest",
    "skill_search",
    "sleep_tool",
    "hooks",
    "skill_mcp_dependency_install",
)
"""Features that would ask the network, start programs, run a loop of their own, or drop what is paid for."""


class Start(msgspec.Struct, frozen=True):
    """What a start depends on. ``catalog``: see ``catalog.catalog``."""

    binary: str
    agent: AgentSpec
    home: str
    token: str
    catalog: bytes | None = None


def launch(start: Start) -> Launch:
    """Start a life. Its conversation is given to it later, by ``drive``."""
    files: dict[str, Content] = {
        f"{_FOLDER}/config.toml": configuration(start).encode(),
        "tmp/.keep": b"",
    }
    if start.catalog is not None:
        files[f"{_FOLDER}/{_CATALOG}"] = start.catalog
    return Launch((start.binary, "app-server"), _environment(start), files)


def configuration(start: Start) -> str:
    """The quiet configuration: no updates, no telemetry, no network but the gateway."""
    agent = start.agent
    tools = DEFAULT_TOOLS if agent.tools is None else agent.tools
    top = [f"model = {json.dumps(agent.model)}", f'model_provider = "{PROVIDER}"']
    if start.catalog is not None:
        top.append(f"model_catalog_json = {json.dumps(f'{start.home}/{_FOLDER}/{_CATALOG}')}")
    if agent.effort is not None:
        top.append(f"model_reasoning_effort = {json.dumps(agent.effort)}")
    features = [f"{name} = false" for name in _OFF]
    features += [f"shell_tool = {_truth(SHELL in tools)}", f"view_image = {_truth(IMAGE in tools)}"]
    features.append(f"default_mode_request_user_input = {_truth(ASK in tools)}")
    return "\n".join(
        [
            *top,
            "check_for_update_on_startup = false",
            'web_search = "disabled"',
            'sandbox_mode = "danger-full-access"',
            "",
            f"[model_providers.{PROVIDER}]",
            f'name = "{PROVIDER}"',
            'base_url = "http://127.0.0.1:@PORT@/v1"',
            f'env_key = "{_KEY}"',
            'wire_api = "responses"',
            f"request_max_retries = {_RETRIES}",
            f"stream_max_retries = {_RETRIES}",
            "stream_idle_timeout_ms = 86400000",  # the gateway is silent until it has the whole response
            "",
            "[analytics]",
            "enabled = false",
            "",
            "[agents]",
            "enabled = false",
            "",
            "[skills.bundled]",  # the model would be told the life's own path to them
            "enabled = false",
            "",
            "[tools.experimental_request_user_input]",
            f"enabled = {_truth(ASK in tools)}",
            "",
            "[features]",
            *features,
            "",
        ]
    )


def thread(agent: AgentSpec, tools: Sequence[Json]) -> Json:
    """What a thread is begun with. ``tools`` are the custom ones, as ``ToolHost.specs`` lists them.

    It must not name the folder, in which the process is anyway: Codex would trust a workspace that is named
    so, and then its ``.codex`` folder could let commands run unasked, start servers, name another model."""
    begun: Json = {
        "approvalPolicy": "untrusted",
        "sandbox": "danger-full-access",
        "experimentalRawEvents": True,
        "dynamicTools": [
            {
                "type": "function",
                "name": custom_tool(str(tool["name"])),
                "description": tool["description"],
                "inputSchema": tool["inputSchema"],
            }
            for tool in tools
        ],
    }
    if agent.system_prompt is not None:
        begun["baseInstructions"] = agent.system_prompt
    return begun


def _environment(start: Start) -> dict[str, str]:
    path = [*os.environ.get("PATH", "").split(":"), *_PATH.split(":")]
    return {
        "PATH": ":".join(dict.fromkeys(part for part in path if part)),
        "HOME": start.home,
        "CODEX_HOME": f"{start.home}/{_FOLDER}",
        "TMPDIR": f"{start.home}/tmp",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        _KEY: start.token,
    }


def _truth(value: bool) -> str:
    return "true" if value else "false"
