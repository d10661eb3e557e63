"""Named places at which a test may kill this process. In production each is one attribute look-up.

The crash suite sets ``HARNESS_DURABLE_CRASH_AT=NAME[:N]``: the N-th time (from 1) that NAME is reached,
:func:`reach` runs the death that ``HARNESS_DURABLE_CRASH_DEATH`` names.

    worker    SIGKILL to this process only; keeper and harness live on
    harness   first the keepers and all that they hold, then this process
    machine   as ``harness``, and the homes, run directories and spools are deleted, too, and the folders
              that ``HARNESS_DURABLE_CRASH_LOSES`` names (``:`` between them), such as the workspace

The life to kill is what the sandbox registered with :func:`on_death`.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from typing import Literal, get_args

Point = Literal[
    "message.accepted",
    "turn.started",
    "life.started",
    "model.requested",
    "model.streaming",
    "model.upstream_done",
    "model.completed",
    "model.forwarding",
    "tool.requested",
    "tool.released",
    "tool.running",
    "tool.effect_done",
    "tool.completed",
    "permission.asked",
    "transcript.appended",
    "workspace.committed",
    "steer.accepted",
    "turn.completing",
    "turn.completed",
    "recovery.claimed",
    "recovery.planned",
    "recovery.rebuilt",
    "recovery.continued",
    "lease.renewing",
]
Death = Literal["worker", "harness", "machine"]

POINTS: tuple[Point, ...] = get_args(Point)
DEATHS: tuple[Death, ...] = get_args(Death)

_armed: str | None = None
_left = 0
_deaths: list[Callable[[Death], None]] = []


def arm(spec: str | None) -> None:
    """``NAME`` or ``NAME:N``; ``None`` disarms. Raises ``ValueError`` for a name that is not in POINTS."""
    global _armed, _left
    if not spec:
        _armed = None
        return
    name, _, count = spec.partition(":")
    if name not in POINTS:
        raise ValueError(f"no crash point named {name!r}; known: {', '.join(POINTS)}")
    _armed, _left = name, int(count or 1)


def on_death(kill: Callable[[Death], None]) -> None:
    """Called before the process kills itself; a sandbox registers how its lives die."""
    _deaths.append(kill)


def reach(name: Point) -> None:
    """Die here, if a test asked for it."""
    global _left
    if _armed != name:
        return
    _left -= 1
    if _left == 0:
        _die()


def _die() -> None:
    death = os.environ.get("HARNESS_DURABLE_CRASH_DEATH", "worker")
    if death not in DEATHS:
        raise ValueError(f"no death named {death!r}; known: {', '.join(DEATHS)}")
    for kill in _deaths:
        kill(death)
    if death == "machine":
        for folder in filter(None, os.environ.get("HARNESS_DURABLE_CRASH_LOSES", "").split(":")):
            shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("HARNESS_DURABLE_CRASH_AT"))
