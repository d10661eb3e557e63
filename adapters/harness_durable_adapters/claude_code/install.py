"""Which Claude Code binaries we know, where they come from, and how the one to use is found.

The binary is its maker's, under the maker's terms: it is fetched by the user's own pip or npm and never
shipped with us."""

from __future__ import annotations

import os
import re
from pathlib import Path

import anyio.to_thread

from harness_durable import harnesses
from harness_durable.adapter import Harness
from harness_durable.errors import HarnessMissing, UnsupportedVersion
from harness_durable.harnesses import Progress, Source

NAME = "claude-code"
BINARY = "HARNESS_DURABLE_CLAUDE_CODE_BINARY"
"""Environment variable: a binary to use instead of the managed one."""
ANY_VERSION = "HARNESS_DURABLE_CLAUDE_CODE_ANY_VERSION"
"""Environment variable: allow a version that we did not test; it must pass the self-test."""
DEFAULT = "2.1.332"

SOURCES: dict[str, Source] = {
    "2.1.332": Source(
        NAME,
        "2.1.332",
        "pypi",
        "claude-agent-sdk",
        "0.2.189",
        "claude_agent_sdk/_bundled/claude",
        402_325_736,
    ),
    "2.1.197": Source(
        NAME,
        "2.1.197",
        "npm",
        "@anthropic-ai/claude-code-linux-x64",
        "2.1.197",
        "package/claude",
        246_000_000,
    ),
}
SUPPORTED = tuple(SOURCES)
"""Versions that the test-suite runs against; the default comes first."""

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_known: dict[tuple[str, int, int], str] = {}


async def install(version: str | None = None, progress: Progress = lambda _: None) -> Harness:
    """Fetch a version into the managed folder. Raises ``UnsupportedVersion`` or ``HarnessMissing``."""
    source = SOURCES.get(version or DEFAULT)
    if source is None:
        raise _unsupported(version or "")
    path = await harnesses.install(source, progress)
    return Harness(str(path), source.version)


async def find(version: str | None = None) -> Harness:
    """The binary to use: the one that the environment names, else the managed one."""
    given = os.environ.get(BINARY)
    if given:
        return await anyio.to_thread.run_sync(_given, Path(given), version)
    source = SOURCES.get(version or DEFAULT)
    if source is None:
        raise _unsupported(version or "")
    path = harnesses.binary(source)
    if not path.is_file():
        raise HarnessMissing(
            f"claude-code {source.version} is not installed in {path.parent}; run "
            f"`harness-durable install claude-code{_pinned(version)}`, or set {BINARY}"
        )
    return Harness(str(path), source.version)


def is_supported(version: str) -> bool:
    return version in SUPPORTED


def _given(path: Path, version: str | None) -> Harness:
    if not path.is_file():
        raise HarnessMissing(f"{BINARY} names {path}, which is no file; correct or unset it")
    if not os.access(path, os.X_OK):
        raise HarnessMissing(f"{BINARY} names {path}, which is not executable; run `chmod +x {path}`")
    status = path.stat()
    key = (str(path), status.st_size, status.st_mtime_ns)
    if key not in _known:
        _known[key] = harnesses.reported_version(path)
    found = _known[key]
    if not _VERSION.fullmatch(found):
        raise HarnessMissing(
            f"{BINARY} names {path}, which does not report a Claude Code version: {found!r}; "
            f"unset it and run `harness-durable install claude-code{_pinned(version)}`"
        )
    if version is not None and found != version:
        raise UnsupportedVersion(
            f"this session is pinned to claude-code {version}, and {BINARY} names {found}; "
            f"unset it and run `harness-durable install claude-code{_pinned(version)}`"
        )
    if not is_supported(found) and not os.environ.get(ANY_VERSION):
        raise _unsupported(found)
    return Harness(str(path.absolute()), found)


def _pinned(version: str | None) -> str:
    return f" --version {version}" if version and version != DEFAULT else ""


def _unsupported(version: str) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"claude-code {version} is not one that this adapter was tested with ({', '.join(SUPPORTED)}); "
        f"run `harness-durable install claude-code` for {DEFAULT}, or name a binary with {BINARY} and set "
        f"{ANY_VERSION}=1 to try it after a self-test"
    )
