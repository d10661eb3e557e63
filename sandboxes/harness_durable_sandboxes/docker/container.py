"""What a container of a life is: what it sees of this host, and what it may use of it.

What surprises: folders have the same paths inside as here, so that transcripts, which are full of paths,
mean the same in every sandbox. Where the image keeps a folder above one of them for itself (``/root``), an
empty one takes its place."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from harness_durable.errors import BadSetting, WorkspaceMissing
from harness_durable.sandbox import LifeSpec

from .. import layout
from ..launch import KEEPER
from .engine import Json
from .options import Options

PORT = 8484
"""Where the relay listens: nobody else is in the container's network."""
_ROOT, _LIFE, _SESSION, _ORIGIN = (
    f"harness-durable.{name}" for name in ("root", "life", "session", "origin")
)
_COVERS = "covers"  # in the directory of a life
_KEEPER_INSIDE = "/opt/harness-durable/keeper"
_NOBODY, SOMEBODY = (65534, 65534), (1000, 1000)
_TOP = (
    *("/", "/bin", "/dev", "/etc", "/home", "/lib", "/lib64", "/opt", "/proc", "/root"),
    *("/run", "/sbin", "/sys", "/tmp", "/usr", "/var"),
)
_PROXY = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_NO_PROXY = ("NO_PROXY", "no_proxy")


def name_of(root: str, life: str) -> str:
    """The name of the container of a life. ``root`` tells the directory of lives from every other one."""
    return f"hd-{root[:12]}-{life}"


def labels(root: str, spec: LifeSpec) -> dict[str, str]:
    return {_ROOT: root, _LIFE: spec.life, _SESSION: spec.session, _ORIGIN: spec.origin}


def of_root(root: str) -> dict[str, list[str]]:
    """The engine's filter for all containers of a directory of lives."""
    return {"label": [f"{_ROOT}={root}"]}


def whose(marks: Mapping[str, str]) -> tuple[str, str, str]:
    """From its labels: life, session and origin."""
    return marks[_LIFE], marks.get(_SESSION, ""), marks.get(_ORIGIN, "")


def user_of(workspace: str, options: Options) -> tuple[int, int]:
    """Who the harness is: the owner of the workspace, so that its files stay theirs. Raises
    ``WorkspaceMissing`` or ``BadSetting``."""
    owner = _owner(workspace) if workspace else None
    if options.owner is not None:
        uid, gid = options.owner
    elif owner is None:
        uid, gid = (os.getuid(), os.getgid()) if os.getuid() else _NOBODY
    else:
        uid, gid = owner[0], owner[1] or owner[0]
        if uid == 0:
            raise BadSetting(
                f"{workspace} belongs to root, and no agent runs as root in a container: give the folder to "
                f"another user (chown -R 1000:1000 {workspace}), or name one who may write there with the "
                "sandbox option user=UID:GID"
            )
    if os.geteuid() not in (0, uid):
        raise BadSetting(
            f"the agent would run as user {uid}, and this worker is user {os.geteuid()}, who cannot hand "
            "files to it: run the worker as that user or as root, or work on a folder of your own"
        )
    return uid, gid


def user_for(workspace: str, options: Options) -> tuple[int, int]:
    """Who the harness of a new session will be, whose workspace need not be there yet. Raises
    ``BadSetting``."""
    try:
        return user_of(workspace, options)
    except WorkspaceMissing:
        return options.owner or ((os.getuid(), os.getgid()) if os.getuid() else SOMEBODY)


def _owner(workspace: str) -> tuple[int, int]:
    try:
        found = Path(workspace).stat()
    except OSError as error:
        raise WorkspaceMissing(
            f"the working directory {workspace} cannot be used ({error.strerror}); put it back, then go on"
        ) from error
    if not stat.S_ISDIR(found.st_mode):
        raise WorkspaceMissing(f"the working directory {workspace} is no folder; put it back, then go on")
    if workspace in _TOP:
        raise BadSetting(
            f"{workspace} cannot be the workspace of a container, which has one of its own there; use a "
            "folder below it"
        )
    return found.st_uid, found.st_gid


def environment(options: Options) -> dict[str, str]:
    """What a life gets beside its own: the way to the hosts that it may reach."""
    if not options.hosts.rules:
        return {}
    proxy = f"http://127.0.0.1:{PORT}"
    return {**dict.fromkeys(_PROXY, proxy), **dict.fromkeys(_NO_PROXY, "127.0.0.1,localhost")}


def config(
    life: Path, spec: LifeSpec, options: Options, user: tuple[int, int], marks: Mapping[str, str]
) -> Json:
    """What the engine is asked to create. Raises ``BadSetting``."""
    return {
        "Image": options.image,
        "Entrypoint": ["python3", "-I", "-S", _KEEPER_INSIDE, str(life / "keeper")],
        "Cmd": [],
        "Env": [],
        "User": "{}:{}".format(*user),
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "Labels": dict(marks),
        "StopSignal": "SIGTERM",
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "ReadonlyRootfs": True,
            "Privileged": False,
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true"],
            "IpcMode": "private",
            "Init": False,  # the keeper is process 1 itself
            "Memory": options.memory_bytes,
            "MemorySwap": options.memory_bytes,
            "NanoCpus": options.nano_cpus,
            "PidsLimit": options.pids_limit,
            "Tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={options.tmp_bytes}"},
            "Mounts": _mounts(life, spec),
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "64k", "max-file": "1"}},
        },
    }


def make_covers(life: Path, wanted: Json) -> None:
    """The empty folders of this host that ``config`` wants to put over others."""
    for mount in wanted["HostConfig"]["Mounts"]:
        source = Path(mount["Source"])
        if source.parent == life / _COVERS:
            source.mkdir(parents=True)
            for folder in (source.parent, source):
                folder.chmod(0o755)


def _mounts(life: Path, spec: LifeSpec) -> list[Json]:
    """No path has two."""
    found = [_bind(str(KEEPER), _KEEPER_INSIDE, read_only=True)]
    found += [_bind(str(life / "keeper")), _bind(str(layout.home(life)))]
    found += [_bind(path, read_only=True) for path in spec.reads if Path(path).exists()]
    if spec.workspace:
        found.append(_bind(spec.workspace))
    targets = {str(mount["Target"]) for mount in found}
    covered = _within(spec.workspace, (*spec.hidden, str(life.parent)))
    found += [_bind(path) for path in _above(spec.workspace, covered)]
    for number, path in enumerate([*_closed(targets), *covered]):
        below = any(target.startswith(f"{path}/") for target in targets)
        found.append(_bind(str(life / _COVERS / str(number)), path, read_only=not below))
    return list({str(mount["Target"]): mount for mount in found}.values())


def _bind(source: str, target: str = "", *, read_only: bool = False) -> Json:
    return {"Type": "bind", "Source": source, "Target": target or source, "ReadOnly": read_only}


def _closed(targets: Iterable[str]) -> Iterable[str]:
    """Folders that an image has and keeps for itself, and below which something is to be seen. A tmpfs would
    not do: it takes over the mode of what it covers."""
    return ["/root"] if any(target.startswith("/root/") for target in targets) else []


def _above(workspace: str, covered: Iterable[str]) -> Iterable[str]:
    """The folders between the workspace and what is covered in it. As mounts of their own they cannot be
    moved to where the next life's covers would not be."""
    for path in map(Path, covered):
        for above in path.parents:
            if above == Path(workspace):
                break
            yield str(above)


def _within(workspace: str, hidden: Iterable[str]) -> list[str]:
    """Folders that are to be covered in the workspace. A file cannot be: whoever makes it anew uncovers it.
    Raises ``BadSetting``."""
    found: list[str] = []
    root = Path(workspace).resolve()
    for path in (Path(one).resolve() for one in (hidden if workspace else ())):
        if path == root or (path.is_file() and path.is_relative_to(root)):
            raise BadSetting(
                f"{workspace} holds {path}, which no agent may see: work on another folder, or keep that in "
                f"a folder of its own, such as {root}/.harness-durable"
            )
        if path.is_dir() and path.is_relative_to(root):
            found.append(str(Path(workspace) / path.relative_to(root)))
    return found
