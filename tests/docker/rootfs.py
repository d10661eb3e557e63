"""A small root file system from Debian packages that are installed here: an image without any registry.

It has what a harness in a container needs (Python, git, a shell and its tools), with all that these depend on
and that anybody here uses."""

from __future__ import annotations

import io
import os
import re
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

PACKAGES = (
    *("base-files", "bash", "coreutils", "dash", "findutils", "git", "grep", "libc-bin", "libstdc++6"),
    *("procps", "python3", "sed", "util-linux"),
)
_NOT = ("debconf", "dpkg", "init-system-helpers", "perl")
_LEFT_OUT = ("/usr/share/doc", "/usr/share/man", "/usr/share/locale", "/usr/share/info", "/usr/share/lintian")
_FOLDERS = {"proc": 0o555, "sys": 0o555, "dev": 0o755, "run": 0o755, "root": 0o700, "tmp": 0o1777}
_ALSO = ("/etc/ld.so.cache", "/etc/alternatives")


def root_file_system() -> bytes:
    """A tar archive, as ``docker import`` takes it. Needs dpkg."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("bin", "sbin", "lib", "lib64"):
            if Path("/", name).is_symlink():
                tar.add(f"/{name}", name)
        for name, mode in _FOLDERS.items():
            _folder(tar, name, mode)
        for path in _paths(_with_dependencies(PACKAGES)):
            tar.add(path, path[1:], recursive=False)
        _text(tar, "etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")
        _text(tar, "etc/group", "root:x:0:\n")
    return archive.getvalue()


def _with_dependencies(names: Iterable[str]) -> set[str]:
    """All that has to be there for these; of alternatives, what is installed."""
    needs: dict[str, list[str]] = {}
    provided: dict[str, str] = {}
    form = "${Package}\t${Pre-Depends}, ${Depends}\t${Provides}\n"
    for line in _asked("dpkg-query", "-W", "-f", form).splitlines():
        package, wanted, provides = line.split("\t")
        needs[package] = _names(wanted)
        provided |= dict.fromkeys(_names(provides), package)
    found: set[str] = set()
    todo = list(names)
    while todo:
        package = todo.pop()
        package = package if package in needs else provided.get(package, "")
        if package and package not in found and package not in _NOT:
            found.add(package)
            todo += needs[package]
    return found


def _names(field: str) -> list[str]:
    return re.findall(r"(?:^|[,|])\s*([a-z0-9.+-]+)", field)


def _paths(packages: set[str]) -> list[str]:
    """Where the files of these really lie, folders first."""
    listed = _asked("dpkg", "-L", *sorted(packages)).splitlines()
    found = {*_ALSO, *(str(one) for one in Path("/etc/alternatives").iterdir())}
    for path in listed:
        if not path.startswith("/") or path == "/." or path.startswith(_LEFT_OUT):
            continue
        real = str(Path(path).parent.resolve() / Path(path).name)
        if real.count("/") > 1 and os.path.lexists(real):
            found.add(real)
    return sorted(found)


def _asked(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _folder(tar: tarfile.TarFile, name: str, mode: int) -> None:
    one = tarfile.TarInfo(name)
    one.type, one.mode = tarfile.DIRTYPE, mode
    tar.addfile(one)


def _text(tar: tarfile.TarFile, name: str, text: str) -> None:
    one = tarfile.TarInfo(name)
    one.size = len(text)
    tar.addfile(one, io.BytesIO(text.encode()))
