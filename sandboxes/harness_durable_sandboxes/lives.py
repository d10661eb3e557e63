"""The lives below one directory of this host: what all sandboxes do alike that reach a keeper through its run
directory, wherever the keeper itself may run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from harness_durable.errors import (
    BadInput,
    KeeperGone,
    KeeperIncompatible,
    SandboxError,
    SandboxUnavailable,
    StaleEpoch,
)
from harness_durable.sandbox import FoundLife, LifeRef

from . import layout
from .client import connect, dial


class Lives:
    """Those of the sandbox ``name`` below ``root``, which is created if need be; it must be on a local file
    system."""

    def __init__(self, root: Path, name: str) -> None:
        self.root, self.name = root.absolute(), name
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.host = layout.host(self.root)

    def locate(self, life: str) -> LifeRef:
        """Raises ``BadInput`` for an id that cannot be a directory's name."""
        return LifeRef(life, self.name, str(layout.directory(self.root, life)), self.host)

    def here(self, ref: LifeRef) -> bool:
        """Can the life be running on this host, since it was booted?"""
        return layout.same_host(ref.host, self.host)

    def ours(self, ref: LifeRef) -> bool:
        """Is or was it on this host?"""
        return layout.same_host(ref.host, self.host, boot=False)

    def token(self, ref: LifeRef) -> str:
        """Raises ``KeeperGone``."""
        if not self.here(ref):
            raise KeeperGone(f"life {ref.life} ran on {ref.host}; recover the session with a new life")
        try:
            return (Path(ref.run_dir) / "token").read_text()
        except OSError as error:
            raise KeeperGone(f"life {ref.life} is gone; recover the session with a new life") from error

    async def alive(self, ref: LifeRef) -> bool:
        """Can its keeper be reached?"""
        if not self.here(ref):
            return False
        try:
            stream = await connect(run_of(ref))
        except KeeperGone:
            return False
        await anyio.aclose_forcefully(stream)
        return True

    async def answers(self, ref: LifeRef) -> bool:
        """Does somebody there say something? A keeper that is being killed can be connected to for some more
        milliseconds. One that is silent or refuses is there."""
        try:
            stream, _ = await dial(run_of(ref), self.token(ref), op="ping")
        except KeeperGone as gone:
            return isinstance(gone, KeeperIncompatible)
        except SandboxUnavailable:
            return True
        await stream.aclose()
        return True

    async def ask_to_leave(self, ref: LifeRef, epoch: int | None) -> None:
        """The orderly way. Whether it worked is found out by looking; a keeper of an earlier version heeds no
        epoch. Raises ``StaleEpoch``, unless there is no epoch: only an impostor would speak of one then."""
        under = {} if epoch is None else {"epoch": epoch}
        try:
            stream, _ = await dial(run_of(ref), self.token(ref), op="shutdown", **under)
        except SandboxError as error:
            if isinstance(error, StaleEpoch) and epoch is not None:
                raise
            return
        await stream.aclose()

    async def listed(self) -> Sequence[FoundLife]:
        """See ``harness_durable.sandbox.ListsLives``. A directory that does not say whose it is stays."""
        return await run_sync(self._listed)

    def _listed(self) -> list[FoundLife]:
        found: list[FoundLife] = []
        for mark in self.root.glob("*/origin.json"):
            try:
                about: dict[str, str] = json.loads(mark.read_bytes())
                found.append(FoundLife(self.locate(mark.parent.name), about["session"], about["origin"]))
            except (OSError, ValueError, KeyError, BadInput):
                continue  # being made or removed just now, or none of ours
        return found


def run_of(ref: LifeRef) -> Path:
    """The run directory of its keeper."""
    return Path(ref.run_dir) / "keeper"
