"""What a reader can say of bytes behind the last whole append, before a writer cuts them off."""

from __future__ import annotations

import os

from harness_durable.errors import BadSetting, LogTooNew
from harness_durable_worlds._file_lock import try_lock
from harness_durable_worlds._file_log import Log


def torn(log: Log) -> str:
    """A sentence, or nothing: an append that is under way holds the segment's lock, and is no torn one."""
    try:
        log.refresh()
    except (BadSetting, LogTooNew):
        return ""
    if not log.chain or log.top.size <= log.top.end:
        return ""
    top = log.top
    try:
        fd = os.open(top.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return ""
    try:
        if not try_lock(fd) or not top.look(fd) or top.size <= top.end:
            return ""
    finally:
        os.close(fd)
    remain = f"events 1-{top.head} remain" if top.head else "no event remains"
    return (
        f"session {log.session!r}: the last write was cut off at byte {top.end} of {top.path.name} "
        f"({top.size - top.end} bytes); {remain}; it is repaired at the next write"
    )
