"""Files that are brought back: made anew from the log where they are gone, or put back in place.

What surprises: marks beside the folder of lives. They say that this has begun, so that a crash in the middle
of it is followed by all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio.to_thread
import msgspec

from harness_durable import workspace
from harness_durable.errors import BadInput, BadSetting, SandboxError, SandboxUnavailable
from harness_durable.events import AgentSpec, LeftOut
from harness_durable.journal import Journal
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.remarks import remark_on_catching_up, remark_on_restored
from harness_durable.sandbox import GivesFiles
from harness_durable.state import Files, Session
from harness_durable.workspace import Read
from harness_durable.workspace.manifest import EMPTY

SETUP_SECONDS = 1800.0
"""How long the command may take that makes what is not saved, such as installed packages."""

MAKING = "restoring the files of the workspace"

Remark = Callable[[int, Sequence[LeftOut]], str]
"""What the model is told: which event has what lay there before, and what was not touched."""

S = TypeVar("S")
T = TypeVar("T")


class Restorer:
    """Of one session, whose marks lie in ``folder``. ``read`` gives a blob as it is stored, ``show`` tells
    people what they wait for."""

    def __init__(
        self, equipment: Equipment, agent: AgentSpec, folder: Path, read: Read, show: Callable[[str], None]
    ) -> None:
        self._equipment, self._agent, self._folder = equipment, agent, folder
        self._read, self._show = read, show

    async def is_lacking(self, state: Session, place: Path) -> bool:
        """Do they have to be made from the log, as those of a fork, or is that not finished?"""
        root = state.files.root
        begun = state.unmade or _said(self._mark) == root
        return bool(root) and (begun or await in_thread(_is_gone, place, root))

    async def restore(self, state: Session, place: Path) -> str:
        """Make them anew, if that is not done yet, and all that goes with it; what the model has to know.
        Raises ``BadSetting`` and ``DamagedWorkspace``. Once the log has it, say ``restored``."""
        files, redacted, setup = state.files, tuple[str, ...](), ""
        if state.unmade and _said(self._mark) != files.root and not await in_thread(_is_gone, place, ""):
            raise BadSetting(
                f"{place} is to be this fork's own workspace, and has files of somebody else: they are left "
                "alone. Move them; `harness-durable recover` goes on then"
            )
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._mark.write_text(files.root)
        if await in_thread(_is_gone, place, files.root):
            self._show(MAKING)
            redacted = await self._make(files, place, state.updated)
            await self.hand_over(place)
        if command := self._equipment.settings.workspace_setup:
            self._show(f"setting up the workspace: {command}")
            setup = await self._set_up(command, place)
        self._show("")
        return remark_on_restored(files, redacted, setup, forked=state.unmade)

    def restored(self) -> None:
        self._mark.unlink(missing_ok=True)

    async def _make(self, files: Files, place: Path, at_ms: int) -> tuple[str, ...]:
        """Paths whose credentials were not saved."""

        def tell(made: int, size: int) -> None:
            self._show(f"{MAKING}: {made:,} files, {size / 1e6:.0f} MB so far")

        try:
            done = await workspace.restore(files.root, place, self._read, at_ms=at_ms, progress=tell)
            return done.redacted
        except (SandboxUnavailable, BadInput) as trouble:
            raise BadSetting(
                f"the files of this session cannot be made from the log: {trouble}; "
                "`harness-durable recover` goes on then"
            ) from trouble

    async def hand_over(self, place: Path) -> None:
        """What we made there is the harness's, whoever that is in its sandbox."""
        sandbox = self._equipment.sandbox(self._agent.sandbox)
        if isinstance(sandbox, GivesFiles):
            await sandbox.hand_over(str(place), self._agent.sandbox_options)

    async def _set_up(self, command: str, place: Path) -> str:
        """What the model is told of it; nothing if all went well."""
        sandbox = self._equipment.sandbox(self._agent.sandbox)
        try:
            found = await sandbox.exec(
                ("sh", "-c", command),
                cwd=place,
                env={},
                timeout=SETUP_SECONDS,
                options=self._agent.sandbox_options,
            )
        except SandboxError as trouble:
            return f"The setup command `{command}` could not be run: {trouble}"
        if found.returncode == 0:
            return ""
        tail = found.stderr.decode("utf-8", "replace")[-500:].strip()
        how = "took too long" if found.timed_out else f"ended with {found.returncode}"
        return f"The setup command `{command}` {how}: {tail}"

    # ------------------------------------------------------------------------------- in their place

    @property
    def has_begun(self) -> bool:
        """Was it begun to bring them somewhere, and not finished?"""
        # Where the mark does not make them lacking, it is of a root that is the last one no more.
        return bool(_said(self._behind) or _said(self._mark))

    async def catch_up(self, journal: Journal, place: Path) -> None:
        """Bring them to the last step that was recorded, elsewhere."""
        files = msgspec.structs.replace(journal.state.files)
        target, _, base = _said(self._behind).partition(" ")
        if not target or base != files.base:
            target = files.root
            self._behind.write_text(f"{files.root} {files.base}")
        self._show("bringing the files of the workspace up to date")
        await self.roll_back(journal, place, target, partial(remark_on_catching_up, files))
        self._show("")
        self._mark.unlink(missing_ok=True)
        self._behind.unlink()

    async def roll_back(self, journal: Journal, place: Path, target: str, remark: Remark) -> None:
        """What lies there is in the log first, so that nothing is lost by this."""
        if skipped := await journal.files_committed("found"):
            raise BadSetting(f"the workspace {place} cannot be rolled back: {skipped}")
        found = journal.state.files
        if found.root != target:
            seq = found.seq
            done = await workspace.roll_back(place, found.root, target, self._read)
            await self.hand_over(place)
            await journal.files_restored(remark(seq, done.kept))

    @property
    def _mark(self) -> Path:
        """Holds the root that is being restored."""
        return self._folder / "restoring"

    @property
    def _behind(self) -> Path:
        """Holds the root to which the workspace is brought, and its base: with another one, there were steps
        elsewhere since."""
        return self._folder / "behind"


def _is_gone(place: Path, root: str) -> bool:
    """Is nothing there of what was? An empty folder may be what was left of it on purpose. Of one that cannot
    be looked into nobody knows: the scan says why."""
    try:
        return not place.is_dir() or (root != EMPTY and workspace.is_empty(place))
    except OSError:
        return False


def _said(mark: Path) -> str:
    """What a mark holds; nothing if there is none."""
    try:
        return mark.read_text()
    except OSError:
        return ""


async def in_thread(look: Callable[[Path, S], T], place: Path, about: S) -> T:
    """A file system that does not answer holds up nobody who wants to stop."""
    return await anyio.to_thread.run_sync(look, place, about, abandon_on_cancel=True)
