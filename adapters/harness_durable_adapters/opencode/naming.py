"""Names that must be the same in every life, so that recovery finds what is there already.

The harness sorts by its ids: each begins with a time. So a message's id is made when it is sent, and only the
second half of it, its *mark*, is the same in every life."""

from __future__ import annotations

import hashlib

from ..common import naming

PROVIDER = "durable"
"""What the harness calls the gateway."""

AGENT = "build"
"""The harness's own agent that works; we do not define one."""

BARRIER = "durable_barrier"
"""A tool that our plugin declares and no model sees: the harness lists it if the plugin is in place."""

_MARK = 14
_TIME = (1 << 48) - 1
_PER_MS = 4096


def is_custom(name: str) -> bool:
    return naming.is_custom(name) and name != BARRIER


def session_id(native: str) -> str:
    """The harness's id of the session."""
    return f"ses_{_digest(native)[:26]}"


_FILE = ".events"


def events_file(session: str) -> str:
    """The events of a session of the harness's, as the log names them: of ours, or of a subagent."""
    return f"{session}{_FILE}"


def session_of(file: str) -> str:
    """Whose events a file of the log has; empty if it has none."""
    return file.removesuffix(_FILE) if file.endswith(_FILE) else ""


def mark(native: str, message: str) -> str:
    """What the id of a message ends with."""
    return _digest(f"{native}/message/{message}")[:_MARK]


def marked(number: str) -> str:
    """The mark within an id of the harness's."""
    return number[-_MARK:]


def made(kind: str, ms: int, what: str, place: int = 0) -> str:
    """An id as the harness makes them: ``kind`` is ``msg``, ``prt`` or ``evt``, ``ms`` a time. Ids of one
    ``ms`` are sorted by ``place``; ``what`` tells them apart from all others."""
    time = (ms * _PER_MS + place) & _TIME
    return f"{kind}_{time:012x}{_digest(what)[:_MARK]}"


def marked_id(ms: int, message_mark: str) -> str:
    """The id of a message that is sent at ``ms``."""
    return f"msg_{(ms * _PER_MS) & _TIME:012x}{message_mark}"


def _digest(what: str) -> str:
    return hashlib.sha256(what.encode("utf-8", "backslashreplace")).hexdigest()
