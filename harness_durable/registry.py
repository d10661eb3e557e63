"""Names to things: Worlds by URL scheme, adapters and sandboxes by name.

Ours are in a dict, other people's come by entry point (groups ``harness_durable.worlds``, ``.adapters``,
``.sandboxes``). Modules are imported on use, so that a command pays only for what it needs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from harness_durable.errors import BadSetting, UnknownName

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Room = Literal["world", "adapter", "sandbox"]

BUILT_IN: dict[Room, dict[str, str]] = {
    "world": {
        "file": "harness_durable_worlds.file:open_world",
        "sqlite": "harness_durable_worlds.sqlite:open_world",
        "postgresql": "harness_durable_worlds.postgres:open_world",
        "postgres": "harness_durable_worlds.postgres:open_world",
    },
    "adapter": {
        "claude-code": "harness_durable_adapters.claude_code:ClaudeCode",
        "opencode": "harness_durable_adapters.opencode:OpenCode",
        "codex": "harness_durable_adapters.codex:Codex",
        "pi": "harness_durable_adapters.pi:Pi",
    },
    "sandbox": {
        "local": "harness_durable_sandboxes.local:LocalSandbox",
        "docker": "harness_durable_sandboxes.docker:DockerSandbox",
    },
}

IN_RUN_DIR = "local"
"""The sandbox whose lives lie in the run directory itself; those of others are in a folder of their name."""


def known(room: Room) -> tuple[str, ...]:
    """Names in this room, ours first."""
    return tuple(dict.fromkeys([*BUILT_IN[room], *(point.name for point in _theirs(room))]))


def load(room: Room, name: str) -> Any:
    """The class or function behind a name. Raises ``UnknownName`` with the known ones, and ``BadSetting``
    if it is known but its driver cannot be imported."""
    target = BUILT_IN[room].get(name)
    if target is None:
        for point in _theirs(room):
            if point.name == name:
                return _loaded(point, room)
        what = "World" if room == "world" else room
        hint = f"name one of these, or install the package that brings {name!r}"
        raise UnknownName(what, name, known(room), hint)
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as missing:
        raise BadSetting(
            f"{room} {name!r} needs the package {missing.name!r}: pip install 'harness-durable[{name}]'"
        ) from missing


def _theirs(room: Room) -> Iterable[EntryPoint]:
    """What other people's packages bring. Only who asks for one pays for looking at all that is installed."""
    from importlib.metadata import entry_points

    return entry_points(group=f"harness_durable.{room}s")


def _loaded(point: EntryPoint, room: Room) -> Any:
    """Other people's code: whatever it raises must not take down a command that only looks at it."""
    try:
        return point.load()
    except Exception as broken:
        raise BadSetting(
            f"{room} {point.name!r} ({point.value}) cannot be imported: {type(broken).__name__}: {broken}; "
            "repair or uninstall its package"
        ) from broken
