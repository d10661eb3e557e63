"""Every durable transition, by name. Nothing else in the program appends to a log.

``Inbox`` holds what people and programs may do to a session at any time; ``Journal`` what its driver does;
``moving`` what takes it to another store. The rest of the program gets a ``Reader``.

Names are imported on first use, so that who only reads does not pay for what writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness_durable.journal.driver import Journal as Journal
    from harness_durable.journal.inbox import Inbox as Inbox
    from harness_durable.journal.known import Known as Known
    from harness_durable.journal.reader import Reader as Reader
    from harness_durable.journal.writer import set_aside as set_aside

_HOMES = {
    "Inbox": "harness_durable.journal.inbox",
    "Journal": "harness_durable.journal.driver",
    "Known": "harness_durable.journal.known",
    "Reader": "harness_durable.journal.reader",
    "set_aside": "harness_durable.journal.writer",
}

__all__ = ("Inbox", "Journal", "Known", "Reader", "set_aside")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
