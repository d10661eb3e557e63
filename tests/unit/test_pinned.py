"""The pinned versions of Codex, OpenCode and Pi, and which binary is used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness_durable import harnesses
from harness_durable.adapter import Harness
from harness_durable.archives import Source
from harness_durable.errors import HarnessMissing, UnsupportedVersion
from harness_durable.nodejs import NODE
from harness_durable.pinned import Pinned
from harness_durable_adapters.codex import install as codex
from harness_durable_adapters.opencode import install as opencode
from harness_durable_adapters.pi import install as pi
from tests.unit.install_kit import EXECUTABLE, PLAIN, npm, program, tarball

TOY = Pinned(
    "toy-harness",
    {
        version: Source("toy-harness", version, "npm", "toy", version, "package/toy", 9)
        for version in ("2.0.0", "1.0.0")
    },
)
ALL = [codex.PINNED, opencode.PINNED, pi.PINNED]


@pytest.fixture(autouse=True)
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "managed"
    monkeypatch.setenv(harnesses.DIRECTORY, str(folder))
    for pinned in [*ALL, TOY]:
        monkeypatch.delenv(pinned.binary_variable, raising=False)
        monkeypatch.delenv(pinned.any_version_variable, raising=False)
    return folder


def stand_in(path: Path, text: bytes, mode: int = EXECUTABLE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("pinned", ALL, ids=lambda pinned: pinned.name)
async def test_every_pinned_version_is_the_tested_archive_and_nothing_else(pinned: Pinned) -> None:
    for version, source in pinned.sources.items():
        parts = [source, *source.parts, *([source.runtime] if source.runtime else [])]
        assert (source.harness, source.version) == (pinned.name, version)
        assert harnesses.binary(source).is_relative_to(harnesses.place(pinned.name, version))
        for part in parts:
            assert part.digests
            assert {digest[:7] for digest in part.digests} <= {"sha512-", "sha256="}
            assert part.inside(part.member) is not None
            assert part.size > 0


@pytest.mark.parametrize("pinned", ALL, ids=lambda pinned: pinned.name)
async def test_a_missing_binary_names_the_command_that_helps(pinned: Pinned) -> None:
    with pytest.raises(HarnessMissing, match=f"run `harness-durable install {pinned.name}`"):
        await pinned.find()
    older = pinned.supported[-1]
    if older != pinned.default:
        with pytest.raises(HarnessMissing, match=f"install {pinned.name} --version {older}`"):
            await pinned.find(older)


@pytest.mark.parametrize("pinned", ALL, ids=lambda pinned: pinned.name)
async def test_an_untested_version_is_refused_with_the_tested_ones(pinned: Pinned) -> None:
    with pytest.raises(UnsupportedVersion, match=", ".join(pinned.supported)):
        await pinned.find("0.0.1")
    with pytest.raises(UnsupportedVersion, match=pinned.any_version_variable):
        await pinned.install("0.0.1")


async def test_what_was_installed_is_found(
    tmp_path: Path, managed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm(tmp_path / "shop", monkeypatch)
    for version in TOY.supported:
        tarball(tmp_path / "shop", f"toy@{version}", {"package/toy": (program(version), PLAIN)})
    newest = await TOY.install()
    place = managed / "toy-harness" / "2.0.0"
    assert newest == Harness(str(place / "toy"), "2.0.0", (str(place),)) == await TOY.find()
    assert (await TOY.install("1.0.0")).version == "1.0.0"
    assert await TOY.find("1.0.0") != newest
    assert TOY.command(newest) == (newest.path,)


async def test_a_named_binary_wins_and_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = stand_in(tmp_path / "toy", program("toy 2.0.0"))
    monkeypatch.setenv("HARNESS_DURABLE_TOY_HARNESS_BINARY", str(path))
    assert await TOY.find() == Harness(str(path), "2.0.0", (str(path),))
    with pytest.raises(UnsupportedVersion, match=r"pinned to toy-harness 1\.0\.0"):
        await TOY.find("1.0.0")


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        (program("2.0.0"), PLAIN, "not executable; run `chmod"),
        (program("hello"), EXECUTABLE, "does not report a version of toy-harness: 'hello'"),
        (b"#!/bin/sh\nexit 1\n", EXECUTABLE, "--version failed"),
        (program("3.0.0"), EXECUTABLE, "HARNESS_DURABLE_TOY_HARNESS_ANY_VERSION=1"),
    ],
)
async def test_a_wrong_binary_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: bytes, mode: int, sentence: str
) -> None:
    monkeypatch.setenv(TOY.binary_variable, str(stand_in(tmp_path / "toy", text, mode)))
    with pytest.raises((HarnessMissing, UnsupportedVersion), match=sentence):
        await TOY.find()


async def test_an_untested_binary_can_be_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOY.binary_variable, str(stand_in(tmp_path / "toy", program("3.0.0"))))
    monkeypatch.setenv(TOY.any_version_variable, "1")
    assert (await TOY.find()).version == "3.0.0"


async def test_a_named_file_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOY.binary_variable, str(tmp_path / "nothing"))
    with pytest.raises(HarnessMissing, match="which is no file"):
        await TOY.find()


async def test_pi_is_run_by_our_nodejs_also_when_a_link_names_it(
    tmp_path: Path, managed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = stand_in(tmp_path / "lib" / "cli.js", f"print('{pi.PINNED.default}')".encode(), PLAIN)
    link = tmp_path / "pi"
    link.symlink_to(script)
    monkeypatch.setenv(pi.PINNED.binary_variable, str(link))
    with pytest.raises(
        HarnessMissing, match=r"which needs .*node.* to run it; run `harness-durable install pi`"
    ):
        await pi.PINNED.find()
    node = stand_in(harnesses.binary(NODE), f'#!/bin/sh\nexec {sys.executable} "$@"\n'.encode())
    assert node.is_relative_to(managed / "node" / NODE.version)
    found = await pi.PINNED.find()
    assert found == Harness(str(script), pi.PINNED.default, (str(script), str(node)))
    (tmp_path / "package.json").touch()
    assert (await pi.PINNED.find()).needs == (str(tmp_path), str(node)), "its parts are around it"
    assert pi.PINNED.command(found) == (str(node), str(script))


@pytest.mark.parametrize(
    ("cpuinfo", "build"),
    [
        ("flags\t\t: fpu avx avx2 bmi\nbugs\t: none", "linux-x64"),
        ("flags\t\t: fpu avx avx2", "linux-x64"),
        ("flags\t\t: fpu avx avx512\n", "linux-x64-baseline"),
        ("", "linux-x64-baseline"),
    ],
)
async def test_opencode_is_the_build_that_the_processor_can_run(cpuinfo: str, build: str) -> None:
    assert opencode.build(cpuinfo) == build
