"""Runs of a harness, and the transcript that it keeps of itself."""

from __future__ import annotations

from harness_durable.events.base import Event
from harness_durable.payload import Payload


class LifeStarted(Event, frozen=True, tag="life.started"):
    life: str
    turn: str
    sandbox: str
    run_dir: str
    host: str
    harness_version: str


class LifeAttached(Event, frozen=True, tag="life.attached"):
    life: str
    worker: str


class LifeEnded(Event, frozen=True, tag="life.ended"):
    """``why`` is a word for how it ended, if that is known. Of the harness: ``exit``, ``signal``, ``oom``
    (it was killed for want of memory). Of what held it: ``killed``, ``removed``, ``stopped``,
    ``engine_restarted`` (it was stopped, perhaps by that), ``ended`` (by itself), ``ttl`` (no worker came),
    ``shutdown``. Of a life that could not begin: ``unreachable`` (the sandbox's engine), ``refused`` (by it),
    ``image_missing``, ``disk_full``, ``workspace_missing``, ``harness_missing``. ``oom_kills``: how often
    something in the life was killed for want of memory."""

    life: str
    reason: str
    code: int | None = None
    why: str = ""
    oom_kills: int = 0


class TranscriptAppended(Event, frozen=True, tag="transcript.appended"):
    """Lines of the harness's own transcript, joined by newlines. ``offset`` is where the life's standard
    output stood after them, so that the next worker reads on from there."""

    file: str
    life: str
    lines: Payload
    count: int
    offset: int = 0


class TranscriptReplaced(Event, frozen=True, tag="transcript.replaced"):
    """The first ``keep`` lines stay, ``drop`` lines behind them (None: all the rest) are replaced by
    ``lines``: what recovery wrote. ``shown`` is set where a later line sums up those that were dropped: what
    they showed to be delivered, in the adapter's words."""

    file: str
    keep: int
    lines: Payload
    count: int
    reason: str
    drop: int | None = None
    shown: tuple[str, ...] | None = None
