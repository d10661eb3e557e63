"""Bytes behind the last whole append: what a reader can say of them, and how a writer keeps what it cuts.

What surprises: they are always kept. A write that was cut off was never acknowledged, but a bit that flipped
in the last append, which was, looks the same.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness_durable.errors import BadSetting, LogTooNew
from harness_durable_worlds._file_disk import read_file, replace_file, sync_folder
from harness_durable_worlds._file_lock import try_lock
from harness_durable_worlds._file_log import Log
from harness_durable_worlds._file_segments import read_range


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
        f"({top.size - top.end} bytes); {remain}; the next write repairs it, and keeps these bytes in "
        f"{_beside(top.path, top.end).name}"
    )


def keep_tail(segment: Path, fd: int, start: int) -> Path | None:
    """Put the bytes from ``start`` on, if there are any, durably into a file beside the segment; its path.
    The file goes with the session. Raises ``OSError``."""
    tail = read_range(fd, start, os.fstat(fd).st_size)
    if not tail:
        return None
    path = _beside(segment, start)
    number = 1
    while (found := read_file(path)) not in (None, tail):  # of another writer that died at the same place
        number += 1
        path = _beside(segment, start, number)
    if found is None:
        replace_file(path, tail, sync=True)
    sync_folder(path.parent)
    return path


def _beside(segment: Path, start: int, number: int = 1) -> Path:
    return segment.with_name(f"{segment.name}.cut-{start}" + (f"-{number}" if number > 1 else ""))
