"""The versions of one harness that an adapter was tested with, and finding the binary to use: what the
``install`` modules of the adapters share. They name the sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread

from harness_durable import harnesses
from harness_durable.adapter import Harness
from harness_durable.errors import HarnessMissing, UnsupportedVersion
from harness_durable.harnesses import Progress, Source

_known: dict[tuple[str, int, int], str] = {}
"""Path, size and time of change of a binary that was asked -> the version that it reported."""


class Pinned:
    """``sources`` by version, the default first; at least one.

    ``binary_variable`` names an environment variable: a binary to use instead of the managed one;
    ``any_version_variable`` one that allows a version nobody tested, which the adapter must then prove."""

    def __init__(self, name: str, sources: Mapping[str, Source]) -> None:
        prefix = f"HARNESS_DURABLE_{name.upper().replace('-', '_')}"
        self.name = name
        self.sources = sources
        self.supported = tuple(sources)
        self.default = self.supported[0]
        self.binary_variable = f"{prefix}_BINARY"
        self.any_version_variable = f"{prefix}_ANY_VERSION"

    def is_supported(self, version: str) -> bool:
        return version in self.sources

    async def install(self, version: str | None = None, progress: Progress = lambda _: None) -> Harness:
        """Fetch a version into the managed folder. Raises ``UnsupportedVersion`` or ``HarnessMissing``."""
        source = self._source(version)
        path = await harnesses.install(source, progress)
        return Harness(str(path), source.version, self._needs(path, source))

    async def find(self, version: str | None = None) -> Harness:
        """The binary to use: the one that the environment names, else the managed one. Raises
        ``UnsupportedVersion`` or ``HarnessMissing``, each with the command that helps."""
        given = os.environ.get(self.binary_variable)
        if given:
            return await anyio.to_thread.run_sync(self._given, Path(given), version)
        source = self._source(version)
        if not harnesses.is_installed(source):
            folder = harnesses.place(source.harness, source.version)
            raise HarnessMissing(
                f"{self.name} {source.version} is not installed in {folder}; "
                f"run `{self._command(version)}`, or set {self.binary_variable}"
            )
        path = harnesses.binary(source)
        return Harness(str(path), source.version, self._needs(path, source))

    def command(self, harness: Harness) -> tuple[str, ...]:
        """The first words of the command line that starts it: the binary, or what runs it and the script."""
        runtime = self._runtime(Path(harness.path))
        return (harness.path,) if runtime is None else (str(runtime), harness.path)

    def _needs(self, path: Path, source: Source | None = None) -> tuple[str, ...]:
        """See ``Harness``. Of a program that we did not install we know no more than where it is; the parts
        of a script are in its package."""
        runtime = self._runtime(path)
        mine = path if source is None else harnesses.place(source.harness, source.version)
        if source is None and runtime is not None:
            packages = (folder for folder in path.parents if (folder / "package.json").is_file())
            mine = next(packages, path)
        return (str(mine),) if runtime is None else (str(mine), str(runtime))

    def _runtime(self, path: Path) -> Path | None:
        if path.suffix not in (".js", ".mjs"):
            return None
        runtime = self.sources[self.default].runtime
        return None if runtime is None else harnesses.binary(runtime)

    def _source(self, version: str | None) -> Source:
        source = self.sources.get(version or self.default)
        if source is None:
            raise self._unsupported(version or "")
        return source

    def _given(self, path: Path, version: str | None) -> Harness:
        named = f"{self.binary_variable} names {path}"
        if not path.is_file():
            raise HarnessMissing(f"{named}, which is no file; correct or unset it")
        path = path.resolve()
        runtime = self._runtime(path)
        if runtime is not None and not runtime.is_file():
            raise HarnessMissing(f"{named}, which needs {runtime} to run it; run `{self._command(version)}`")
        if runtime is None and not os.access(path, os.X_OK):
            raise HarnessMissing(f"{named}, which is not executable; run `chmod +x {path}`")
        status = path.stat()
        key = (str(path), status.st_size, status.st_mtime_ns)
        if key not in _known:
            _known[key] = harnesses.reported_version(path, runtime)
        found = _known[key]
        if not found[:1].isdigit():
            raise HarnessMissing(
                f"{named}, which does not report a version of {self.name}: {found!r}; "
                f"unset it and run `{self._command(version)}`"
            )
        if version is not None and found != version:
            raise UnsupportedVersion(
                f"this session is pinned to {self.name} {version}, and {self.binary_variable} names {found}; "
                f"unset it and run `{self._command(version)}`"
            )
        if not self.is_supported(found) and not os.environ.get(self.any_version_variable):
            raise self._unsupported(found)
        return Harness(str(path), found, self._needs(path))

    def _command(self, version: str | None) -> str:
        pinned = f" --version {version}" if version and version != self.default else ""
        return f"harness-durable install {self.name}{pinned}"

    def _unsupported(self, version: str) -> UnsupportedVersion:
        return UnsupportedVersion(
            f"{self.name} {version} is not one that this adapter was tested with "
            f"({', '.join(self.supported)}); run `{self._command(None)}` for {self.default}, "
            f"or name a binary with {self.binary_variable} and set {self.any_version_variable}=1 "
            "to try it after a self-test"
        )
