"""What became of a container: deaths told apart.

What surprises: a container that is stopped cannot tell by whom; but an engine remembers its last events, as
long as it is up. And the engine's ``OOMKilled`` is no verdict. It is false while a container runs in which a
child was killed for want of memory, and true later for one that ended by ``docker kill``. The keeper's own
record counts."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from harness_durable import clock
from harness_durable.sandbox import Ending

from .. import layout
from .engine import Api, Engine, Json, Refused

_RECORDED = {
    "sigterm": ("stopped", "its container was stopped, by docker stop or because the engine went down"),
    "ttl": ("ttl", "no worker came for it in time, so its keeper ended it"),
    "shutdown": ("shutdown", "a worker ended it"),
}
_KILLED = 137
_RESTARTED = {
    "why": "engine_restarted",
    "sentence": "its container was stopped, and the Docker engine has been restarted since it began",
}
_REMEMBERED = 200
"""Events; a bit less than an engine keeps."""


def ending(run: Path, state: Json | None) -> Ending | None:
    """``run`` is the keeper's run directory, ``state`` the engine's; None for a container that is gone. Gives
    None if the life goes on, or never began."""
    if not (run / "keeper.json").exists():
        return None
    exit_ = recorded(run)
    kills = int(exit_.get("oom_kill", 0))
    if exit_.get("why") in _RECORDED:
        return Ending(*_RECORDED[exit_["why"]], kills)
    if state is not None and state["Running"]:
        return None
    if state is None or state.get("Status") in ("removing", "dead"):
        return Ending("removed", "its container was removed by somebody", kills)
    return _unrecorded(state, kills)


def is_leaving(run: Path) -> bool:
    """Has its keeper said why it goes, though it may still answer?"""
    return recorded(run).get("why") in _RECORDED


async def by_whom(engine: Engine, name: str, found: Ending) -> Ending:
    """The same of a container that was stopped, and whether its engine is another one by now than when it
    began; not if that has forgotten too much to know. Raises ``SandboxUnavailable``."""
    if found.why != "stopped":
        return found
    now = f"{clock.now_ms() / 1000:.3f}"

    def ask(api: Api) -> list[str]:
        return [_name(one) for one in api.events(since="1", until=now, decode=True)]

    try:
        names = await engine.call(ask)
    except Refused:
        return found
    if name in names or len(names) >= _REMEMBERED:
        return found
    return msgspec.structs.replace(found, **_RESTARTED)


def _name(event: Json) -> str:
    """Of what it happened to; not all that happens has one."""
    actor: Json = event.get("Actor") or {}
    told: Json = actor.get("Attributes") or {}
    return str(told.get("name"))


def _unrecorded(state: Json, kills: int) -> Ending:
    code = int(state["ExitCode"])
    said = f" ({state['Error']})" if state.get("Error") else ""
    if code != _KILLED:
        return Ending("ended", f"its container ended with exit code {code}{said}", kills)
    before = "; memory had run out in it before" if state.get("OOMKilled") else ""
    return Ending("killed", f"its container was killed{before}{said}", kills)


def recorded(run: Path) -> Json:
    """The keeper's exit.json; empty if there is none that can be read. The harness can write there, too."""
    try:
        with layout.opened(run / "exit.json") as file:
            found = json.loads(file.read(4096))
        return {"why": str(found["why"]), "oom_kill": layout.number(found["oom_kill"])}
    except layout.UNREADABLE:
        return {}
