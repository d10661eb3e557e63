"""Files that processes of the session have mapped for writing: their stat does not tell of a store.

A store into a page that is dirty already changes no time, and msync neither; so such files are read at each
snapshot. Only the session's own processes are looked at, and only where there is a ``/proc``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def writable(processes: Iterable[int]) -> frozenset[int]:
    """The inodes of files that these processes may write to through shared memory."""
    found: set[int] = set()
    for process in processes:
        try:
            maps = Path(f"/proc/{process}/maps").read_bytes()
        except OSError:
            continue
        for line in maps.splitlines():
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[1].endswith(b"s") and b"w" in fields[1]:
                found.add(int(fields[4]))
    return frozenset(found)
