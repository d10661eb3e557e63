"""The folder that a URL names: on which file system it is, and whether that one's locks and syncs hold."""

from __future__ import annotations

import os
from pathlib import Path

from harness_durable.errors import BadSetting

ALLOW = "HARNESS_DURABLE_ALLOW_NETWORK_FS"

_NETWORK = frozenset(
    (
        *(
            "9p",
            "afs",
            "beegfs",
            "ceph",
            "cifs",
            "fuse.ceph",
            "fuse.gcsfuse",
            "fuse.glusterfs",
            "fuse.rclone",
        ),
        *("fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"),
    )
)
_VOLATILE = frozenset(("tmpfs", "ramfs"))


def root_of(url: str) -> Path:
    """The folder that ``file:DIR`` names. Raises ``BadSetting``."""
    folder = url.partition(":")[2]
    if folder.startswith("//"):
        folder = folder[2:]
    if not folder:
        raise BadSetting(f"World URL {url!r} names no folder; write it as file:DIR, e.g. file:./agents")
    return Path(os.path.abspath(os.path.expanduser(folder)))  # noqa: PTH100, PTH111


def kind_of(folder: Path, table: str | None = None) -> str:
    """The type of the file system that holds ``folder``, such as ``ext4``; ``unknown`` where the kernel
    does not say. ``table`` is for tests: the text of /proc/self/mountinfo."""
    if table is None:
        try:
            table = Path("/proc/self/mountinfo").read_text()
        except OSError:
            return "unknown"
    target = Path(os.path.realpath(folder))  # realpath, because the folder need not exist yet
    best, kind = -1, "unknown"
    for line in table.splitlines():
        fields, dash, after = line.partition(" - ")
        columns, types = fields.split(), after.split()
        if not dash or len(columns) < 5 or not types:
            continue
        mount = Path(columns[4].replace("\\040", " "))
        if (mount == target or mount in target.parents) and len(mount.parts) >= best:
            best, kind = len(mount.parts), types[0]
    return kind


def is_near(kind: str) -> bool:
    """Whether a file's size is known without asking another machine or process, which may not answer."""
    return kind not in _NETWORK and not kind.startswith("fuse")


def check(folder: Path, kind: str) -> tuple[str, ...]:
    """Sentences of warning. Raises ``BadSetting`` for a network file system, unless it was allowed."""
    if kind in _NETWORK and os.environ.get(ALLOW) != "1":
        raise BadSetting(
            f"{folder} is on a network file system ({kind}), whose locks and syncs cannot be trusted; "
            f"use a local folder, or set {ALLOW}=1 if only one host uses it"
        )
    if kind in _NETWORK:
        return (f"{folder} is on {kind}: only one host may use it, or sessions will be driven twice",)
    if kind in _VOLATILE:
        return (f"{folder} is on {kind}: a restart of the machine loses every session; use a disk",)
    return ()
