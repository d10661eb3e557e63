"""Snapshots of the files that a harness works on: taken, compared, restored.

A snapshot is a root: the name of a tree of manifests (``manifest``) whose blobs are in the World.
``Tracker`` takes them, ``restore`` makes a folder anew, ``roll_back`` changes one in place, ``diff``
compares. What surprises: nothing here runs a program, least of all git; a repository is files like others.
"""

from __future__ import annotations

from harness_durable.workspace.limits import Limits, refuse
from harness_durable.workspace.mounting import is_empty
from harness_durable.workspace.reading import Read, content, diff, names, pieces
from harness_durable.workspace.restoring import Restored, restore
from harness_durable.workspace.rollback import RolledBack, roll_back
from harness_durable.workspace.tracker import Scanned, Tracker

__all__ = (
    "Limits",
    "Read",
    "Restored",
    "RolledBack",
    "Scanned",
    "Tracker",
    "content",
    "diff",
    "is_empty",
    "names",
    "pieces",
    "refuse",
    "restore",
    "roll_back",
)
