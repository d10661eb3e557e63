"""What belongs to a snapshot and how large it may be; and which folders are never a workspace."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from harness_durable.errors import BadSetting


class Limits(msgspec.Struct, frozen=True):
    """Sizes in bytes, ``timeout`` in seconds. ``include`` and ``exclude`` are globs as in a ``.gitignore``,
    both stronger than any ``.gitignore``; ``exclude`` is the strongest. An ``include`` pattern opens an
    ignored folder only if it says where it is (``node_modules/mine/**``, not ``*.mine``). ``outside`` are
    absolute folders or files below the workspace that are never part of it: our own World, the lives' run
    directories."""

    ignored: Literal["exclude", "include"] = "exclude"
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    git: Literal["include", "exclude"] = "include"
    max_file: int = 64 << 20
    max_total: int = 2 << 30
    max_files: int = 200_000
    max_step: int = 256 << 20
    timeout: float = 60.0
    outside: tuple[Path, ...] = ()


class OverLimit(Exception):
    """Within this room: a limit of the whole snapshot was met, so that there is none. ``word`` is the
    setting's."""

    def __init__(self, word: str, sentence: str) -> None:
        self.word = word
        super().__init__(sentence)


def refuse(place: Path) -> None:
    """Raises ``BadSetting`` if the folder is ``/``, the home folder or one that contains it: nobody means
    those, and a snapshot of them fills a disk. Called before a session's workspace is taken into use."""
    real, home = place.resolve(), Path.home().resolve()
    if real == Path(real.anchor) or real == home or real in home.parents:
        raise BadSetting(
            f"{os.fspath(place)!r} cannot be a workspace with snapshots: it is your home folder or contains "
            "it; name a project's folder, or take no snapshots with `--files kept`"
        )
