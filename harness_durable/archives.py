"""Getting one archive from PyPI or npm, proving that it is the one we mean, and unpacking what is used of it.

What surprises: the download is left to the user's own pip or npm, so that mirrors, proxies and credentials
are theirs; we check the archive ourselves all the same, since a mirror may hold another one."""

from __future__ import annotations

import base64
import contextlib
import gzip
import hashlib
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NamedTuple

import msgspec
from anyio import from_thread

from harness_durable import clock
from harness_durable.errors import HarnessMissing

_DOWNLOAD_TIME = 1800.0
_TICK = 0.2
_SAY_EVERY = 5.0

Progress = Callable[[str], None]
"""Told one line per step, for people."""

EVERYTHING = ("",)
"""For ``Source.keep``: the whole folder."""


class Source(msgspec.Struct, frozen=True):
    """Where one version of a program comes from. ``version`` is the program's own, ``release`` the package's.

    ``member`` is the binary's path within the archive; ``size`` is in bytes, unpacked. ``root`` is the folder
    of the archive that becomes the version's directory, or the folder ``into`` of it (default: the member's),
    and ``keep`` are the beginnings of the paths below it that are unpacked (default: the member alone).
    ``digests`` are those of the archives that were tested, one for each platform that has its own, all
    written as the registry does: ``sha512-BASE64`` or ``sha256=HEX``; none: pip's or npm's own check is all.
    ``parts`` are packages that go into the same directory; ``runtime`` runs a binary that is a script.
    """

    harness: str
    version: str
    registry: Literal["pypi", "npm"]
    package: str
    release: str
    member: str
    size: int
    root: str = ""
    keep: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    into: str = ""
    parts: tuple[Source, ...] = ()
    runtime: Source | None = None

    def inside(self, path: str) -> PurePosixPath | None:
        """Where in the version's directory a file of the archive goes; None if it is not kept."""
        root = self.root or str(PurePosixPath(self.member).parent)
        pure = PurePosixPath(path)
        if ".." in pure.parts or not pure.is_relative_to(root):
            return None
        below = pure.relative_to(root)
        kept = path == self.member or str(below).startswith(self.keep)
        return PurePosixPath(self.into) / below if kept else None

    @property
    def tool(self) -> str:
        """The program that downloads it."""
        return "pip" if self.registry == "pypi" else "npm"


def download(source: Source, work: Path, npm: Sequence[str], progress: Progress) -> Path:
    """The archive, in ``work``, an empty directory. Blocks, within a worker thread of anyio; a cancelled
    caller ends the download. Raises ``HarnessMissing``."""
    if source.registry == "pypi":
        wanted = f"{source.package}=={source.release}"
        options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(work), wanted]
    else:
        wanted = f"{source.package}@{source.release}"
        command = [*npm, "pack", wanted, "--pack-destination", str(work), "--loglevel=error"]
    progress(f"downloading {source.package} {source.release} with {source.tool}")
    code, said = _run(command, work, wanted, progress)
    archives = [path for path in work.iterdir() if path.suffix in (".whl", ".tgz")]
    if code or len(archives) != 1:
        raise HarnessMissing(_why(source, wanted, said))
    _verify(source, archives[0])
    return archives[0]


def _run(command: Sequence[str], work: Path, wanted: str, progress: Progress) -> tuple[int, str]:
    """Exit code, and all that it printed. What pip has fetched so far lies below ``work``, too."""
    began = said_at = clock.monotonic()
    scratch = work / "scratch"
    scratch.mkdir()
    with (work / "said").open("w+b") as said, _started(command, work, scratch, said) as process:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TICK)
            from_thread.check_cancelled()
            now = clock.monotonic()
            if process.returncode is not None:
                said.seek(0)
                return process.returncode, said.read().decode("utf-8", "replace")
            if now - began > _DOWNLOAD_TIME:
                raise HarnessMissing(
                    f"{wanted} was not downloaded within {_DOWNLOAD_TIME:.0f} s; "
                    "check the network and try again"
                )
            if now - said_at > _SAY_EVERY:
                said_at = now
                progress(f"still downloading{_so_far(scratch)}, {now - began:.0f} s")


@contextmanager
def _started(
    command: Sequence[str], work: Path, scratch: Path, said: IO[bytes]
) -> Generator[subprocess.Popen[bytes]]:
    """In a process group of its own: an interrupt reaches it through us, once, and nothing of it is left."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
        cwd=work,
        env={**os.environ, "TMPDIR": str(scratch)},
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _so_far(scratch: Path) -> str:
    """How much there is, if the tool lets us see it."""
    total = 0
    for path in scratch.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return f": {total >> 20} MiB" if total >> 20 else ""


def _why(source: Source, wanted: str, said: str) -> str:
    """A failed download as a sentence with a next step."""
    tail = " ".join(said.split())[-300:]
    if "No module named pip" in said:
        return f"{wanted} needs pip, which {sys.executable} does not have; run `python -m ensurepip`"
    offline = ("NewConnectionError", "ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN", "resolve host")
    if any(word in said for word in (*offline, "Name or service not known", "ProxyError")):
        return f"{wanted}: {source.tool} has no connection to its registry; check network and proxy ({tail})"
    if "No matching distribution" in said or "ETARGET" in said or "E404" in said:
        return (
            f"{wanted}: {source.tool}'s registry has no such version for this platform; "
            f"check which registry {source.tool} uses ({tail})"
        )
    if "EINTEGRITY" in said or "DO NOT MATCH THE HASHES" in said:
        return f"{wanted}: what arrived is not what {source.tool}'s registry promised; try again ({tail})"
    return f"{wanted}: {source.tool} failed; run it yourself to see why ({tail or 'it said nothing'})"


def _verify(source: Source, archive: Path) -> None:
    """Is it an archive that was tested?"""
    if not source.digests:
        return
    algorithm = source.digests[0][:6]
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, algorithm)
    if source.digests[0][6] == "=":
        found = f"{algorithm}={digest.hexdigest()}"
    else:
        found = f"{algorithm}-{base64.b64encode(digest.digest()).decode()}"
    if found not in source.digests:
        raise HarnessMissing(
            f"{archive.name} is not the {source.package} {source.release} that was tested ({found}); "
            f"check which registry {source.tool} uses"
        )


class _File(NamedTuple):
    path: PurePosixPath
    executable: bool
    content: IO[bytes]


def unpack(source: Source, archive: Path, target: Path) -> None:
    """Write what is kept below ``target``, to the disk. Links and special files are left out. Raises
    ``HarnessMissing`` if the archive is damaged, or without the binary; ``OSError``."""
    binary = source.inside(source.member)
    found = False
    try:
        for file in _wheel(source, archive) if archive.suffix == ".whl" else _tarball(source, archive):
            place = target / file.path
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as written:
                while chunk := file.content.read(1 << 20):
                    from_thread.check_cancelled()
                    written.write(chunk)
                written.flush()
                os.fsync(written.fileno())
            place.chmod(0o755 if file.executable or file.path == binary else 0o644)
            found = found or file.path == binary
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise _unusable(source, archive, str(error)) from error
    if not found:
        raise _unusable(source, archive, "it is not in there")


def _unusable(source: Source, archive: Path, why: str) -> HarnessMissing:
    return HarnessMissing(
        f"{archive.name} has no usable {source.member} ({why}); download it again, or report a bug"
    )


def _wheel(source: Source, archive: Path) -> Iterator[_File]:
    with zipfile.ZipFile(archive) as whole:
        for entry in whole.infolist():
            path = source.inside(entry.filename)
            if path is not None and not entry.is_dir():
                with whole.open(entry) as content:
                    yield _File(path, bool(entry.external_attr >> 16 & 0o111), content)


def _tarball(source: Source, archive: Path) -> Iterator[_File]:
    with tarfile.open(archive) as whole:
        for entry in whole:
            path = source.inside(entry.name)
            content = whole.extractfile(entry) if path is not None and entry.isreg() else None
            if path is not None and content is not None:
                with content:
                    yield _File(path, bool(entry.mode & 0o111), content)
