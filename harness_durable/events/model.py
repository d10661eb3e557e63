"""Requests to a provider and what came of them."""

from __future__ import annotations

from harness_durable.events.base import Event, Usage
from harness_durable.payload import Media, Payload


class ModelRequested(Event, frozen=True, tag="model.requested"):
    """One request is about to go upstream. Its body is kept as parts: those of call ``base`` up to ``keep``,
    then ``parts``. So a turn whose requests each repeat the whole conversation costs only what is new."""

    call: str
    key: str
    life: str
    wire: str
    model: str
    path: str
    parts: tuple[Payload, ...]
    base: str | None = None
    keep: int = 0
    agent: str | None = None


class ModelCompleted(Event, frozen=True, tag="model.completed"):
    """The whole response, as it goes to the harness. ``tool_calls`` are those that it asks for."""

    call: str
    status: int
    content_type: str
    body: Payload
    response_id: str = ""
    stop_reason: str = ""
    usage: Usage = Usage()
    tool_calls: tuple[str, ...] = ()


class ModelFailed(Event, frozen=True, tag="model.failed"):
    """No usable response. ``status`` of None: the connection broke, or this worker died."""

    call: str
    status: int | None
    reason: str


class ModelWithheld(Event, frozen=True, tag="model.withheld"):
    """The provider refused ``call`` because of these; no later request of the session shows them to it."""

    call: str
    media: tuple[Media, ...]
    reason: str


class ModelReplayed(Event, frozen=True, tag="model.replayed"):
    """A request was answered from the log: nothing was paid."""

    call: str
    life: str
