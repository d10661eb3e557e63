"""Tool calls, from the request to the outcome, and what a person was asked about them."""

from __future__ import annotations

from harness_durable.events.base import Event, ReplayPolicy, Source, ToolOrigin
from harness_durable.payload import Payload


class ToolRequested(Event, frozen=True, tag="tool.requested"):
    """The model asked for it. Nothing has happened yet."""

    call: str
    name: str
    input: Payload
    model_call: str
    policy: ReplayPolicy
    origin: ToolOrigin
    agent: str | None = None


class ToolReleased(Event, frozen=True, tag="tool.released"):
    """It may run from now on. ``key`` is the idempotency key of a custom tool. ``request``: the harness does
    not ask before it runs the tool, so that it may run from the answer to this ``sandbox.Request`` on."""

    call: str
    life: str
    key: str = ""
    request: int | None = None


class ToolCompleted(Event, frozen=True, tag="tool.completed"):
    """``result`` is what the model gets; ``detail`` the harness's own structured form, if it has one."""

    call: str
    result: Payload
    source: Source
    detail: Payload | None = None


class ToolFailed(Event, frozen=True, tag="tool.failed"):
    call: str
    result: Payload
    source: Source
    detail: Payload | None = None


class ToolCancelled(Event, frozen=True, tag="tool.cancelled"):
    """We stopped it while it ran; it may have had part of its effect."""

    call: str
    result: Payload


class ToolNotStarted(Event, frozen=True, tag="tool.not_started"):
    """It never ran, and never will under this id."""

    call: str
    result: Payload


class ToolUnknown(Event, frozen=True, tag="tool.unknown"):
    """It was released, and whether it happened cannot be known."""

    call: str
    result: Payload


class ToolRefused(Event, frozen=True, tag="tool.refused"):
    """The first identical repeat of a call whose outcome is unknown. It did not run."""

    call: str
    repeats: str
    result: Payload


class PermissionRequested(Event, frozen=True, tag="permission.requested"):
    request: str
    call: str
    name: str
    life: str


class PermissionResolved(Event, frozen=True, tag="permission.resolved"):
    request: str
    allow: bool
    by: str
    reason: str = ""
