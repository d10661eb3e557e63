"""A workspace that is a mount point: a volume that a new machine mounts empty, and that cannot be replaced.

What surprises: such a volume is not empty to the letter. Its file system may have put ``lost+found`` there,
and a restore that was killed has left a folder of its own."""

from __future__ import annotations

import os
from pathlib import Path

from harness_durable.errors import BadInput

FILLING, READY = ".hd-restore-new", ".hd-restore"
"""Within the place: what is being made, and what is whole and about to be moved out. Never part of it."""

LOST = "lost+found"


def is_empty(place: Path) -> bool:
    """Is nothing in this folder, or nothing yet of what is being restored into it?"""
    with os.scandir(place) as entries:
        names = {entry.name for entry, _ in zip(entries, range(4), strict=False)}
    if not names or not is_mount(place):
        return not names
    return (place / READY).is_dir() or not names - {FILLING, LOST}


def is_mount(place: Path) -> bool:
    """Also of a part of the same file system, which ``os.path.ismount`` does not see."""
    if os.path.ismount(place):
        return True
    try:
        mounts = Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return False
    wanted = os.fsencode(place.resolve())
    for odd in b"\\ \t\n":
        wanted = wanted.replace(bytes([odd]), b"\\%03o" % odd)
    return any(line.split(b" ", 5)[4] == wanted for line in mounts.splitlines())


def move_out(ready: Path, place: Path) -> None:
    """Each entry to where it belongs, over nothing; then ``ready`` is gone. After a kill, go on with it."""
    for entry in sorted(ready.iterdir()):
        target = place / entry.name
        if not os.path.lexists(target):
            entry.rename(target)
        elif entry.name == LOST:
            entry.rmdir()
        else:
            raise BadInput(f"{str(target)!r} came while files were restored; move it and try again")
    ready.rmdir()
