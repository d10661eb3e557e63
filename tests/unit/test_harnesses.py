"""Fetching harness binaries with pip and npm, against small packages of our own."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from msgspec.structs import replace

from harness_durable import harnesses
from harness_durable.errors import HarnessMissing, UnsupportedVersion
from harness_durable.harnesses import Source
from harness_durable_adapters.claude_code import ClaudeCode
from harness_durable_adapters.claude_code.install import PINNED

PYPI = Source("toy", "1.2.3", "pypi", "toy-harness", "9.0", "toy_harness/bin/toy", 1000)
NPM = replace(PYPI, registry="npm", package="@toy/harness", release="1.2.3", member="package/toy")


def program(version: str = "1.2.3") -> bytes:
    return f"#!/bin/sh\necho '{version} (Toy)'\n".encode()


@pytest.fixture(autouse=True)
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "managed"
    monkeypatch.setenv(harnesses.DIRECTORY, str(folder))
    monkeypatch.delenv(PINNED.binary_variable, raising=False)
    monkeypatch.delenv(PINNED.any_version_variable, raising=False)
    yield folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that the user's pip configuration names."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def wheel(folder: Path, content: bytes) -> None:
    info = "toy_harness-9.0.dist-info"
    with zipfile.ZipFile(folder / "toy_harness-9.0-py3-none-any.whl", "w") as archive:
        archive.writestr("toy_harness/bin/toy", content)
        archive.writestr("toy_harness/other", b"x" * 1000)
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-harness\nVersion: 9.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


def npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """An ``npm`` of our own, first on the PATH."""
    folder.mkdir(exist_ok=True)
    tool = folder / "npm"
    tool.write_text(f"#!{sys.executable}\nimport sys\n{script}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


async def test_only_the_binary_is_kept_and_it_runs(index: Path, managed: Path) -> None:
    wheel(index, program())
    said: list[str] = []
    path = await harnesses.install(PYPI, said.append)
    assert path == managed / "toy" / "1.2.3" / "toy"
    assert [entry.name for entry in path.parent.iterdir()] == ["toy"]
    assert os.access(path, os.X_OK)
    assert any("downloading" in line for line in said)
    assert [entry.name for entry in (managed / "toy").iterdir() if entry.name.startswith(".tmp")] == []


async def test_a_second_install_fetches_nothing(index: Path) -> None:
    wheel(index, program())
    first = await harnesses.install(PYPI)
    before = first.stat().st_mtime_ns
    (index / "toy_harness-9.0-py3-none-any.whl").unlink()
    assert (await harnesses.install(PYPI)).stat().st_mtime_ns == before


async def test_racing_installers_leave_one_good_binary(index: Path) -> None:
    wheel(index, program())
    found: list[Path] = []

    async def one() -> None:
        found.append(await harnesses.install(PYPI))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
    assert len(set(found)) == 1
    assert found[0].read_bytes() == program()


async def test_what_a_killed_installer_left_is_removed(index: Path, managed: Path) -> None:
    wheel(index, program())
    (managed / "toy" / ".tmp-dead").mkdir(parents=True)
    await harnesses.install(PYPI)
    assert not (managed / "toy" / ".tmp-dead").exists()


async def test_an_unknown_version_says_so_and_leaves_nothing(index: Path, managed: Path) -> None:
    with pytest.raises(HarnessMissing, match=r"no such version.*registry pip uses"):
        await harnesses.install(PYPI)
    assert not (managed / "toy" / "1.2.3").exists()


async def test_a_binary_of_another_version_is_not_installed(index: Path, managed: Path) -> None:
    wheel(index, program("6.6.6"))
    with pytest.raises(HarnessMissing, match=r"holds toy 6\.6\.6, not 1\.2\.3"):
        await harnesses.install(PYPI)
    assert not (managed / "toy" / "1.2.3").exists()


async def test_a_binary_that_does_not_start_is_not_installed(index: Path) -> None:
    wheel(index, b"#!/bin/sh\necho broken >&2; exit 5\n")
    with pytest.raises(HarnessMissing, match=r"--version failed \(broken\)"):
        await harnesses.install(PYPI)


async def test_too_little_disk_space_is_said_before_anything_is_fetched(index: Path) -> None:
    with pytest.raises(HarnessMissing, match="MiB are free"):
        await harnesses.install(replace(PYPI, size=1 << 60))


async def test_a_package_from_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = tmp_path / "toy.tgz"
    with tarfile.open(packed, "w:gz") as archive:
        member = tarfile.TarInfo("package/toy")
        member.size = len(program())
        archive.addfile(member, io.BytesIO(program()))
    script = (
        "import shutil\nassert sys.argv[1:3] == ['pack', '@toy/harness@1.2.3']\n"
        f"shutil.copy({str(packed)!r}, sys.argv[4] + '/toy-harness.tgz')\n"
    )
    npm(tmp_path / "bin", monkeypatch, script)
    assert (await harnesses.install(NPM)).read_bytes() == program()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("npm error code E404", "no such version"),
        ("npm error code ENOTFOUND", "no connection to its registry"),
        ("npm error code EWHATEVER", "run it yourself to see why"),
    ],
)
async def test_what_npm_says_becomes_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, sentence: str
) -> None:
    npm(tmp_path / "bin", monkeypatch, f"sys.exit({said!r})\n")
    with pytest.raises(HarnessMissing, match=sentence):
        await harnesses.install(NPM)


async def test_without_npm_and_without_a_way_to_get_it_the_sentence_names_what_to_install(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HarnessMissing, match=r"not on the PATH; install Node.*no such version"):
        await harnesses.install(NPM)


# ------------------------------------------------------------------------------------- Claude Code


async def test_a_missing_binary_names_the_command_that_helps() -> None:
    with pytest.raises(HarnessMissing, match="run `harness-durable install claude-code`"):
        await ClaudeCode().find()
    with pytest.raises(HarnessMissing, match=r"install claude-code --version 2\.1\.197`"):
        await ClaudeCode().find("2.1.197")


async def test_an_untested_version_is_refused_with_the_tested_ones() -> None:
    with pytest.raises(UnsupportedVersion, match=r"2\.1\.332, 2\.1\.197"):
        await ClaudeCode().find("1.0.0")
    with pytest.raises(UnsupportedVersion):
        await ClaudeCode().install("1.0.0", lambda _: None)


def stand_in(folder: Path, text: bytes, mode: int = 0o755) -> Path:
    path = folder / "claude"
    path.write_bytes(text)
    path.chmod(mode)
    return path


async def test_a_named_binary_wins_and_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stand_in(tmp_path, program("2.1.332"))
    monkeypatch.setenv(PINNED.binary_variable, str(path))
    assert (await ClaudeCode().find()).path == str(path)
    with pytest.raises(UnsupportedVersion, match=r"pinned to claude-code 2\.1\.197"):
        await ClaudeCode().find("2.1.197")


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        (program("2.1.332"), 0o644, "not executable; run `chmod"),
        (program("hello"), 0o755, "does not report a version of claude-code"),
        (b"#!/bin/sh\nexit 1\n", 0o755, "--version failed"),
        (b"\x7fELFnonsense", 0o755, "cannot be run"),
    ],
)
async def test_a_wrong_binary_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, mode: int, sentence: str
) -> None:
    monkeypatch.setenv(PINNED.binary_variable, str(stand_in(tmp_path, text, mode)))
    with pytest.raises(HarnessMissing, match=sentence):
        await ClaudeCode().find()


async def test_an_untested_binary_that_was_allowed_must_pass_the_self_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PINNED.binary_variable, str(stand_in(tmp_path, program("3.0.0"))))
    with pytest.raises(UnsupportedVersion, match="ANY_VERSION"):
        await ClaudeCode().find()
    monkeypatch.setenv(PINNED.any_version_variable, "1")
    with pytest.raises(UnsupportedVersion, match="nobody was asked"):
        await ClaudeCode().find()
