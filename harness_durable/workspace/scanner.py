"""The walk: from a folder's descriptor to the root of its manifest, reading only what changed.

Runs in a worker thread, touches nothing, and knows no World: new content goes to ``put``. What surprises: a
file that vanishes while the walk goes on is not an error, the next snapshot sees it; a descriptor that
cannot be had for lack of them is one, as a thinner tree must never pass for the whole."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from harness_durable.workspace import contents, gitfolder, manifest, mounting
from harness_durable.workspace.ignoring import Own, Rules
from harness_durable.workspace.known import Entry, Folder, Known, Stamp, stamp
from harness_durable.workspace.limits import Limits, OverLimit
from harness_durable.workspace.opening import EXHAUSTED, FOLDER, GONE, Files, is_racy, opened, opened_root

STAGE = b".hd-rollback"
"""Within a workspace while it is rolled back; never part of it."""
OURS = (STAGE, os.fsencode(mounting.FILLING), os.fsencode(mounting.READY))
DEEP = 200
"""Levels of folders. Each costs a descriptor and a frame of the stack while the walk is in it."""
CONFIG = 1 << 20
"""Bytes of a repository's config at most."""

PACKS = b"objects/pack/"
"""These files may be as large as the whole: without them the repository is broken."""

_SPECIAL = {
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NEW = Folder()


class Surroundings:
    """What a walk needs of the outside. ``check`` raises if it was given up, ``pause`` waits some seconds,
    ``mapped`` are the inodes of files that a process may write to without any trace in their stat."""

    def __init__(
        self,
        put: Callable[[bytes], str],
        now_ns: int,
        *,
        check: Callable[[], None] = lambda: None,
        pause: Callable[[float], None] = lambda _: None,
        mapped: frozenset[int] = frozenset(),
    ) -> None:
        self.put, self.now_ns, self.check, self.pause, self.mapped = put, now_ns, check, pause, mapped


class Scan:
    """One snapshot. Afterwards: ``torn`` (paths), ``left`` (path, reason), both raw; ``files.count``: how
    many were opened. ``measuring``: read no content, only find out whether the limits hold."""

    def __init__(
        self,
        place: Path,
        limits: Limits,
        own: Own,
        known: Known,
        around: Surroundings,
        *,
        measuring: bool = False,
    ) -> None:
        self._measuring = measuring
        self._place, self._limits, self._own, self._known, self._around = place, limits, own, known, around
        self.files = Files()
        self._reader = contents.Reader(self.files, around.put, around.check, around.pause)
        self._outside = frozenset(
            os.fsencode(path.relative_to(place)) for path in limits.outside if path.is_relative_to(place)
        )
        self._new: dict[bytes, Folder] = {}
        self._count = self._bytes = self._device = self._root = 0
        self.torn: list[bytes] = []
        self.left: list[tuple[bytes, str]] = []

    def run(self) -> Known:
        """Raises ``WorkspaceMissing``, ``OverLimit``, ``OSError`` (no snapshot is possible now), and what
        ``put`` and ``check`` raise."""
        with opened_root(self._place) as fd:
            self._root, self._device = fd, os.fstat(fd).st_dev
            rules = Rules(self._own, self._own.token)
            ref = self._folder(fd, b"", rules, depth=0, inside=False, in_git=False)
        return Known(ref, "", self._new)

    def _folder(self, fd: int, path: bytes, rules: Rules, *, depth: int, inside: bool, in_git: bool) -> str:
        """Walk a folder; gives the name of its node."""
        self._around.check()
        found = _listed(fd)
        in_git = in_git or gitfolder.is_repository(found)
        if not in_git:
            rules = rules.below(self.files, self._root, fd, path, found, self._around.now_ns)
        old = self._known.folders.get(path, _NEW)
        new = Folder(old.ref, rules.token, inside)
        visit = _Visit(
            fd, path, rules, old, new, depth, in_git, rules.token != b"" and rules.token == old.rules
        )
        if in_git:
            self._git_entries(visit, found)
        else:
            self._entries(visit, found.items())
        self._within_limits()
        repository = rules.repository
        if not in_git and repository and repository.path == path and gitfolder.NAME in new.entries:
            problem = repository.problem or (old.left.get(gitfolder.NAME) if visit.trusted else "")
            if problem:
                new.left[gitfolder.NAME] = problem
        self.left += [(path + name, reason) for name, reason in new.left.items()]
        if self._measuring:
            return ""
        if not old.ref or visit.changed or new.entries.keys() != old.entries.keys():
            new.ref = manifest.node([new.entries[name][2] for name in sorted(new.entries)], self._around.put)
        self._new[path] = new
        return new.ref

    def _entries(self, visit: _Visit, found: Iterable[tuple[bytes, os.stat_result]]) -> None:
        for name, status in found:
            if stat.S_ISDIR(status.st_mode):
                self._subfolder(visit, name, status)
            else:
                self._leaf(visit, name, status)

    def _git_entries(self, visit: _Visit, found: dict[bytes, os.stat_result]) -> None:
        """As git needs it: in its order, and packs that were replaced while they were read once more."""
        self._entries(visit, gitfolder.ordered(found))
        for _ in contents.PAUSES:
            if not (visit.vanished and visit.path.endswith(PACKS)):
                return
            visit.vanished = False
            found = {
                name: status for name, status in _listed(visit.fd).items() if name not in visit.new.entries
            }
            self._entries(visit, gitfolder.ordered(found))

    def _subfolder(self, visit: _Visit, name: bytes, status: os.stat_result) -> None:
        path = visit.path + name
        if reason := self._outright(visit, name, status):
            visit.new.left[name + b"/"] = reason
            return
        below = self._known.folders.get(path + b"/")
        if visit.trusted and below is not None:
            inside = below.inside
        else:
            verdict = self._judge(visit, name, is_folder=True)
            if verdict == "excluded" or (verdict == "ignored" and name not in visit.old.entries):
                visit.new.left[name + b"/"] = verdict
                return
            inside = verdict != "in"
        try:
            with opened(name, visit.fd, FOLDER) as fd:
                ref = self._folder(
                    fd,
                    path + b"/",
                    visit.rules,
                    depth=visit.depth + 1,
                    inside=inside,
                    in_git=visit.in_git or name == gitfolder.NAME,
                )
        except OSError as error:
            visit.failed(name + b"/", error)
            return
        visit.keep(name, (None, True, manifest.folder_line(status.st_mode, ref, name)))

    def _leaf(self, visit: _Visit, name: bytes, status: os.stat_result) -> None:
        mark, was = stamp(status), visit.old.entries.get(name)
        same = was is not None and was[0] == mark and not was[1] and mark[4] not in self._around.mapped
        if not (same and visit.trusted):
            self._around.check()
            if reason := self._reason(visit, name, status):
                visit.new.left[name] = reason
                return
        self._count += 1
        self._bytes += mark[1]
        if same and was is not None:
            visit.new.entries[name] = was
            return
        self._within_limits()
        try:
            visit.keep(name, self._entry(visit, name, mark))
        except contents.TooLarge:
            visit.new.left[name] = "too large"
            self._bytes -= mark[1]
        except OSError as error:
            visit.failed(name, error)

    def _entry(self, visit: _Visit, name: bytes, mark: Stamp) -> Entry:
        racy = is_racy(mark, self._around.now_ns) or mark[4] in self._around.mapped
        if stat.S_ISLNK(mark[0]):
            return mark, racy, manifest.link_line(os.readlink(name, dir_fd=visit.fd), name)
        if visit.in_git and name in gitfolder.CONFIGS:
            raw = self.files.small(name, visit.fd, CONFIG)
            if raw is None:
                raise OSError(13, "unreadable")
            clean, redacted = gitfolder.redact(raw)
            kind = b"r" if redacted else b"f"
            return mark, racy, manifest.file_line(kind, mark[0], len(clean), self._around.put(clean), name)
        pack = visit.in_git and visit.path.endswith(PACKS)
        most = self._limits.max_total if pack else self._limits.max_file
        if mark[1] > most:
            raise contents.TooLarge
        if self._measuring:
            return mark, True, b""
        content = self._reader.read(name, visit.fd, most)
        if content.torn:
            self.torn.append(visit.path + name)
        racy = racy or content.torn or is_racy(content.mark, self._around.now_ns)
        line = manifest.file_line(b"f", content.mark[0], content.size, content.ref, name)
        return content.mark, racy, line

    def _reason(self, visit: _Visit, name: bytes, status: os.stat_result) -> str:
        """Why a file or link is left out; empty if it is not."""
        reason = self._outright(visit, name, status) or _SPECIAL.get(stat.S_IFMT(status.st_mode), "")
        if reason:
            return reason
        if name in visit.old.entries:  # once in, it stays in, or a restore would lose it
            return "excluded" if self._own.excludes(visit.path + name) else ""
        verdict = self._judge(visit, name, is_folder=False)
        return verdict if verdict in ("ignored", "excluded") else ""

    def _outright(self, visit: _Visit, name: bytes, status: os.stat_result) -> str:
        if visit.path + name in self._outside:
            return "not part of the workspace"
        if name == gitfolder.NAME and self._limits.git == "exclude":
            return "excluded"
        if status.st_dev != self._device:
            return "another file system"
        return "too deep" if visit.depth >= DEEP and stat.S_ISDIR(status.st_mode) else ""

    def _judge(self, visit: _Visit, name: bytes, *, is_folder: bool) -> str:
        """The rules' verdict; as before if nothing about them changed."""
        path = name + b"/" if is_folder else name
        was = visit.old.left.get(path) if visit.trusted else None
        if was in ("ignored", "excluded"):
            return was
        inside = visit.new.inside
        in_git = visit.in_git or (name == gitfolder.NAME and not inside)
        return visit.rules.judge(visit.path + name, is_folder=is_folder, inside=inside, in_git=in_git)

    def _within_limits(self) -> None:
        limits = self._limits
        if self._count > limits.max_files:
            raise OverLimit(
                "max_files",
                f"more than {limits.max_files:,} files; ignore what is generated, raise "
                "`HARNESS_DURABLE_WORKSPACE_MAX_FILES`, or use `--files kept`",
            )
        if self._bytes > limits.max_total:
            raise OverLimit(
                "max_total",
                f"more than {limits.max_total >> 20:,} MiB; ignore what is generated, raise "
                "`HARNESS_DURABLE_WORKSPACE_MAX_TOTAL`, or use `--files kept`",
            )


class _Visit:
    """A folder that is being walked. ``trusted``: its rules are those that the last snapshot judged by."""

    __slots__ = ("changed", "depth", "fd", "in_git", "new", "old", "path", "rules", "trusted", "vanished")

    def __init__(
        self,
        fd: int,
        path: bytes,
        rules: Rules,
        old: Folder,
        new: Folder,
        depth: int,
        in_git: bool,
        trusted: bool,
    ) -> None:
        self.fd, self.path, self.rules, self.old, self.new = fd, path, rules, old, new
        self.depth, self.in_git, self.trusted, self.changed = depth, in_git, trusted, False
        self.vanished = False

    def keep(self, name: bytes, entry: Entry) -> None:
        was = self.old.entries.get(name)
        self.changed = self.changed or was is None or was[2] != entry[2]
        self.new.entries[name] = entry

    def failed(self, name: bytes, error: OSError) -> None:
        if error.errno in EXHAUSTED:
            raise error
        if error.errno in GONE:
            self.vanished = True
        else:
            self.new.left[name] = "unreadable"


def _listed(fd: int) -> dict[bytes, os.stat_result]:
    """The names in a folder with their stat; those that vanish meanwhile are not there."""
    found: dict[bytes, os.stat_result] = {}
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                found[os.fsencode(entry.name)] = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
    for ours in OURS:
        found.pop(ours, None)
    return found
