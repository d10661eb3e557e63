"""A workspace with snapshots for tests: blobs in a dict, a clock that is ahead, trees to compare.

``Kept`` is the World's part, and counts. The clock is ahead of the files by a minute, so that nothing is racy
unless a test wants it; ``at_once`` gives the real one."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import anyio
import anyio.lowlevel

from harness_durable import clock
from harness_durable.errors import NotFound
from harness_durable.payload import expand
from harness_durable.workspace import Limits, Scanned, Tracker

WHEN = 1_700_000_000_000


class _Ahead:
    """The real clock, a minute on."""

    def now_ms(self) -> int:
        return _REAL.now_ms() + 60_000

    def monotonic(self) -> float:
        return _REAL.monotonic()

    async def sleep(self, seconds: float) -> None:
        await anyio.lowlevel.checkpoint()


_REAL = clock.current()


def ahead() -> AbstractContextManager[None]:
    return clock.use(_Ahead())


class Kept:
    """Blobs as they are stored. ``puts``: sizes of the batches that came before an append."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.puts: list[int] = []
        self.asked = 0

    async def put(self, blobs: Mapping[str, bytes]) -> None:
        self.puts.append(sum(map(len, blobs.values())))
        self.blobs.update(blobs)

    async def missing(self, names: Sequence[str]) -> list[str]:
        self.asked += 1
        return [name for name in names if name not in self.blobs]

    async def read(self, name: str) -> bytes:
        if name not in self.blobs:
            raise NotFound(f"no blob {name}; this is a test")
        return self.blobs[name]

    def raw(self, name: str) -> bytes:
        return expand(name, self.blobs[name])

    def holds(self, part: bytes) -> bool:
        return any(part in self.raw(name) for name in self.blobs)


class Watched:
    """A workspace of a session: ``step`` is a snapshot that landed."""

    def __init__(
        self,
        place: Path,
        kept: Kept,
        limits: Limits | None = None,
        *,
        cache: Path | None = None,
        processes: Iterable[int] = (),
    ) -> None:
        self.place, self.kept, self.root = place, kept, ""
        self.tracker = Tracker(
            place,
            limits or Limits(),
            cache=cache,
            put=kept.put,
            missing=kept.missing,
            read=kept.read,
            processes=lambda: processes,
        )

    async def scan(self) -> Scanned:
        with ahead():
            return await self.tracker.scan(self.root)

    async def at_once(self) -> Scanned:
        """By the real clock: what was just written is racy."""
        scanned = self.land(await self.tracker.scan(self.root))
        await self.tracker.remember()
        return scanned

    def land(self, scanned: Scanned) -> Scanned:
        assert not scanned.skipped, scanned.why
        self.kept.blobs.update(scanned.blobs)
        self.tracker.landed(scanned)
        self.root = scanned.root
        return scanned

    async def step(self) -> Scanned:
        scanned = self.land(await self.scan())
        await self.tracker.remember()
        return scanned


def write(place: Path, files: Mapping[str, str | bytes]) -> None:
    """Make files with their folders."""
    for name, content in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def tree(place: Path, *, times: bool = False) -> dict[bytes, tuple[object, ...]]:
    """All that a snapshot promises to keep, by raw path: kind, mode, content or target (and mtime)."""
    found: dict[bytes, tuple[object, ...]] = {}
    pending = [os.fsencode(place)]
    while pending:
        for entry in os.scandir(pending.pop()):
            status = entry.stat(follow_symlinks=False)
            mode, key = status.st_mode, os.path.relpath(entry.path, os.fsencode(place))
            content: object = None
            if stat.S_ISDIR(mode):
                pending.append(entry.path)
            elif stat.S_ISLNK(mode):
                content = Path(os.fsdecode(entry.path)).readlink()
            elif stat.S_ISREG(mode):
                content = Path(os.fsdecode(entry.path)).read_bytes()
            found[key] = (mode, content, status.st_mtime_ns if times else 0)
    return found


def inside(place: Path) -> list[str]:
    """The names in a folder."""
    return sorted(path.name for path in place.iterdir())


def git(place: Path, *words: str, expect: int = 0) -> str:
    """Run git as a user would, without settings of this machine."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": os.fspath(place),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
    }
    for who in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{who}_NAME": "a", f"GIT_{who}_EMAIL": "a@example.org"}
    done = subprocess.run(["git", *words], cwd=place, env=env, capture_output=True, check=False)
    assert done.returncode == expect, done.stderr.decode()
    return done.stdout.decode("utf-8", "surrogateescape")
