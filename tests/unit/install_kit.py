"""Small packages of our own, and an ``npm`` that serves them."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

EXECUTABLE = 0o755
PLAIN = 0o644

Files = Mapping[str, tuple[bytes, int]]
"""By path in the archive: content and mode."""


def program(said: str) -> bytes:
    """One that prints a line, whatever it is asked."""
    return f"#!/bin/sh\necho '{said}'\n".encode()


def wheel(folder: Path, name: str, version: str, files: Files) -> Path:
    info = f"{name}-{version}.dist-info"
    meta = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for place, (content, mode) in files.items():
            entry = zipfile.ZipInfo(place)
            entry.external_attr = mode << 16
            archive.writestr(entry, content)
        for place, text in meta.items():
            archive.writestr(place, text)
    return path


def tarball(folder: Path, wanted: str, files: Files, extra: tuple[tarfile.TarInfo, ...] = ()) -> Path:
    """What ``npm pack WANTED`` will find there."""
    path = folder / f"{wanted.replace('/', '-')}.tgz"
    with tarfile.open(path, "w:gz") as archive:
        for place, (content, mode) in files.items():
            member = tarfile.TarInfo(place)
            member.size, member.mode = len(content), mode
            archive.addfile(member, io.BytesIO(content))
        for member in extra:
            archive.addfile(member)
    return path


def npm(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str = "") -> None:
    """An ``npm`` of our own, first on the PATH: it runs ``script``, then packs what lies in ``folder``."""
    tool = folder / "bin" / "npm"
    tool.parent.mkdir(parents=True)
    tool.write_text(f"#!{sys.executable}\n{script}\n{serving(folder)}")
    tool.chmod(EXECUTABLE)
    monkeypatch.setenv("PATH", str(tool.parent), prepend=os.pathsep)


def serving(folder: Path) -> str:
    """The part of such an ``npm`` that packs."""
    return f"""
import os, shutil, sys
verb, wanted, option, target = sys.argv[1:5]
assert (verb, option) == ("pack", "--pack-destination"), sys.argv
found = os.path.join({str(folder)!r}, wanted.replace("/", "-") + ".tgz")
if not os.path.exists(found):
    sys.exit("npm error code E404")
shutil.copy(found, target)
"""
