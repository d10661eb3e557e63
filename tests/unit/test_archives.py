"""What is taken out of an archive, that it is the tested one, and how an interrupted install ends."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import hashlib
import os
import sys
import tarfile
from pathlib import Path, PurePosixPath

import anyio
import pytest
from msgspec.structs import replace

from harness_durable import harnesses
from harness_durable.archives import EVERYTHING, Source
from harness_durable.errors import HarnessMissing
from harness_durable.nodejs import NPM
from tests.unit.gateway_kit import until
from tests.unit.install_kit import EXECUTABLE, PLAIN, npm, program, serving, tarball, wheel

TOY = Source("toy", "1.2.3", "npm", "@toy/harness", "1.2.3", "package/bin/toy", 1000)
TREE = replace(TOY, root="package", keep=("bin/", "share/read"))
FILES = {
    "package/bin/toy": (program("toy-cli 1.2.3"), PLAIN),
    "package/bin/helper": (b"help", EXECUTABLE),
    "package/share/readme": (b"read", PLAIN),
    "package/share/voice": (b"talk", PLAIN),
    "elsewhere/bin/toy": (b"no", PLAIN),
}


@pytest.fixture(autouse=True)
def managed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "managed"
    monkeypatch.setenv(harnesses.DIRECTORY, str(folder))
    return folder


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tarballs that the ``npm`` on the PATH serves."""
    folder = tmp_path / "shop"
    npm(folder, monkeypatch)
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that the user's pip configuration names."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def below(folder: Path) -> dict[str, bool]:
    """Its files, and whether they are executable."""
    return {
        str(path.relative_to(folder)): os.access(path, os.X_OK)
        for path in folder.rglob("*")
        if path.is_file() or path.is_symlink()
    }


def of_npm(path: Path) -> str:
    return "sha512-" + base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()


def of_pip(path: Path) -> str:
    return "sha256=" + hashlib.sha256(path.read_bytes()).hexdigest()


async def test_of_a_tree_only_what_is_kept_is_unpacked_with_its_modes(shop: Path) -> None:
    tarball(shop, "@toy/harness@1.2.3", FILES)
    path = await harnesses.install(TREE)
    assert below(path.parent.parent) == {"bin/toy": True, "bin/helper": True, "share/readme": False}


async def test_the_same_of_a_wheel(index: Path) -> None:
    wheel(index, "toy", "9.0", FILES)
    path = await harnesses.install(replace(TREE, registry="pypi", package="toy", release="9.0"))
    assert below(path.parent.parent) == {"bin/toy": True, "bin/helper": True, "share/readme": False}


async def test_links_and_paths_that_lead_out_are_left_out(shop: Path, managed: Path) -> None:
    link, out = tarfile.TarInfo("package/bin/link"), tarfile.TarInfo("package/bin/../../../out")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    tarball(shop, "@toy/harness@1.2.3", FILES, (link, out))
    path = await harnesses.install(replace(TREE, keep=EVERYTHING))
    assert sorted(below(path.parent)) == ["helper", "toy"]
    assert not [path for path in below(managed) if path.endswith("out")]


async def test_a_path_that_only_begins_like_the_root_is_outside() -> None:
    assert TREE.inside("package/bin/toy") == PurePosixPath("bin/toy")
    assert TREE.inside("package-two/bin/toy") is None
    assert TREE.inside("/package/bin/toy") is None


async def test_the_tested_archive_is_taken_and_no_other(shop: Path, managed: Path) -> None:
    digest = of_npm(tarball(shop, "@toy/harness@1.2.3", FILES))
    tarball(shop, "@toy/harness@1.2.3", {**FILES, "package/bin/helper": (b"evil", EXECUTABLE)})
    pinned = replace(TREE, digests=("sha512-other", digest))
    with pytest.raises(
        HarnessMissing, match=r"not the @toy/harness 1\.2\.3 that was tested.*registry npm uses"
    ):
        await harnesses.install(pinned)
    assert not (managed / "toy" / "1.2.3").exists()
    again = of_npm(tarball(shop, "@toy/harness@1.2.3", FILES))
    await harnesses.install(replace(pinned, digests=(again,)))


async def test_a_wheel_may_have_a_digest_for_each_platform(index: Path) -> None:
    source = replace(TREE, registry="pypi", package="toy", release="9.0")
    digest = of_pip(wheel(index, "toy", "9.0", FILES))
    with pytest.raises(HarnessMissing, match="that was tested"):
        await harnesses.install(replace(source, digests=("sha256=00",)))
    await harnesses.install(replace(source, digests=("sha256=00", digest)))


async def test_a_damaged_archive_is_not_installed(shop: Path, managed: Path) -> None:
    packed = tarball(shop, "@toy/harness@1.2.3", {**FILES, "package/bin/noise": (os.urandom(9000), PLAIN)})
    packed.write_bytes(packed.read_bytes()[:-4000])
    with pytest.raises(HarnessMissing, match="no usable package/bin/toy"):
        await harnesses.install(TREE)
    assert [path.name for path in (managed / "toy").iterdir()] == [".lock"]


async def test_an_archive_without_the_binary_is_not_installed(shop: Path) -> None:
    tarball(shop, "@toy/harness@1.2.3", {"package/bin/other": (b"", PLAIN)})
    with pytest.raises(HarnessMissing, match="not in there"):
        await harnesses.install(TREE)


async def test_parts_go_into_the_same_directory_or_nothing_does(shop: Path, managed: Path) -> None:
    part = Source("toy", "5.0.0", "npm", "part", "5.0.0", "package/main.js", 10, into="node_modules/part")
    tarball(shop, "@toy/harness@1.2.3", FILES)
    source = replace(TREE, parts=(part,))
    with pytest.raises(HarnessMissing, match=r"part@5\.0\.0: npm's registry has no such version"):
        await harnesses.install(source)
    assert not (managed / "toy" / "1.2.3").exists()
    tarball(shop, "part@5.0.0", {"package/main.js": (b"", PLAIN), "package/more.js": (b"", PLAIN)})
    path = await harnesses.install(source)
    assert "node_modules/part/main.js" in below(path.parent.parent)
    assert "node_modules/part/more.js" not in below(path.parent.parent)


async def test_what_runs_a_script_is_installed_with_it(shop: Path, index: Path, managed: Path) -> None:
    runner = f'#!/bin/sh\n[ "$1" = --version ] && echo v7.0.0 || exec {sys.executable} "$@"\n'.encode()
    runtime = Source("run", "7.0.0", "pypi", "run", "7.0.0", "run/bin/run", 1000)
    wheel(index, "run", "7.0.0", {"run/bin/run": (runner, PLAIN)})
    tarball(shop, "@toy/harness@1.2.3", {"package/bin/toy": (b"print('1.2.3')", PLAIN)})
    source = replace(TOY, runtime=runtime)
    path = await harnesses.install(source)
    assert (managed / "run" / "7.0.0" / "run").is_file()
    assert harnesses.is_installed(source)
    (managed / "run" / "7.0.0" / "run").unlink()
    assert path.is_file()
    assert not harnesses.is_installed(source)


async def test_without_npm_the_one_of_our_nodejs_is_used(
    index: Path, tmp_path: Path, managed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    tarball(shop, "@toy/harness@1.2.3", FILES)
    node = f'#!/bin/sh\n[ "$1" = --version ] && echo v7.0.0 || exec {sys.executable} "$@"\n'.encode()
    files = {"node/bin/node": (node, EXECUTABLE), f"node/{NPM}": (serving(shop).encode(), PLAIN)}
    wheel(index, "node", "7.0.0", files)
    source = Source("node", "7.0.0", "pypi", "node", "7.0.0", "node/bin/node", 9, root="node", keep=("lib/",))
    monkeypatch.setattr(harnesses, "NODE", source)
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    await harnesses.install(TREE, said.append)
    assert any("fetching Node.js" in line for line in said)
    assert (managed / "node" / "7.0.0" / NPM).is_file()


async def test_a_cancelled_install_ends_the_download_and_leaves_nothing(
    tmp_path: Path, managed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "pid"
    slow = f"import os, signal\nopen({str(mark)!r}, 'w').write(str(os.getpid()) + '\\n')\nsignal.pause()"
    npm(tmp_path / "shop", monkeypatch, slow)
    task = asyncio.create_task(harnesses.install(TREE))  # cancelled as Ctrl-C does it, not by a scope
    await until(lambda: mark.exists() and mark.read_text().endswith("\n"))
    task.cancel()
    with anyio.fail_after(60), pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)
    assert [path.name for path in (managed / "toy").iterdir()] == [".lock"]


async def test_an_installer_says_that_it_waits_for_another_one(shop: Path, managed: Path) -> None:
    tarball(shop, "@toy/harness@1.2.3", FILES)
    (managed / "toy").mkdir(parents=True)
    said: list[str] = []
    with (managed / "toy" / ".lock").open("w") as other, anyio.fail_after(60):
        fcntl.flock(other, fcntl.LOCK_EX)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harnesses.install, TREE, said.append)
            await until(lambda: any("another installer" in line for line in said))
            fcntl.flock(other, fcntl.LOCK_UN)
    assert harnesses.is_installed(TREE)


@pytest.mark.parametrize(
    "said", ["1.2.3", "v1.2.3", "toy-cli 1.2.3", "1.2.3 (Toy)", "toy 1.2.3, of 2026.", "It is 1.2.3."]
)
async def test_the_version_is_found_in_what_is_printed(tmp_path: Path, said: str) -> None:
    path = tmp_path / "toy"
    path.write_bytes(program(said))
    path.chmod(EXECUTABLE)
    assert harnesses.reported_version(path) == "1.2.3"
