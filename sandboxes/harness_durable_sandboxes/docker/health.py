"""What ``doctor`` says of the Docker sandbox."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

import anyio

from harness_durable.errors import HarnessDurableError
from harness_durable.sandbox import Finding, LifeSpec

from . import image
from .engine import Engine, Json
from .options import Options, words

if TYPE_CHECKING:
    from .sandbox import DockerSandbox

_SLEEP = ("sh", "-c", "exit 0")


async def findings(sandbox: DockerSandbox, engine: Engine, options: Options) -> AsyncIterator[Finding]:
    """From the outside in: each is only looked at if those before it are well."""
    try:
        about = await engine.call(lambda api: api.info())
    except HarnessDurableError as error:
        yield Finding("engine", "fail", str(error))
        return
    for found in _of_engine(engine.url, about):
        yield found
    try:
        known = await image.check(engine, options.image)
        yield Finding("image", "ok", f"{options.image}, {int(known['Size']) / 1e6:.0f} MB")
        await _try(sandbox, options)
        yield Finding(
            "life",
            "ok",
            "container: no network, no root, a root file system that cannot be written; nothing of a life "
            "outlives its keeper",
        )
    except HarnessDurableError as error:
        yield Finding("life", "fail", str(error))


def _of_engine(url: str, about: Json) -> Iterable[Finding]:
    yield Finding("engine", "ok", f"{about['ServerVersion']} at {url}, on {about['OperatingSystem']}")
    if trouble := unfit(about):
        yield Finding("engine", "fail", trouble)
    limits = {"memory": "MemoryLimit", "swap": "SwapLimit", "cpus": "CpuCfsQuota", "pids": "PidsLimit"}
    lacking = [name for name, key in limits.items() if not about.get(key)]
    version = about.get("CgroupVersion", "1")
    if lacking:
        yield Finding(
            "limits",
            "warn",
            f"this kernel cannot limit {', '.join(lacking)} (cgroup v{version}): see its boot options",
        )
    else:
        yield Finding(
            "limits", "ok", f"memory, swap, cpus and pids; deaths for want of memory (cgroup v{version})"
        )
    if about.get("LiveRestoreEnabled"):
        yield Finding("restart", "ok", "lives go on while the engine restarts")
    else:
        yield Finding(
            "restart",
            "warn",
            "a restart of the engine ends all lives, and their turns go on in new ones; with "
            '"live-restore": true in its daemon.json they would not notice',
        )


def unfit(about: Json) -> str:
    """Why this engine cannot be used; empty if it can."""
    security = " ".join(str(one) for one in about.get("SecurityOptions") or ())
    if about.get("OSType") != "linux":
        return "it does not run Linux containers; use one that does"
    if "Docker Desktop" in str(about.get("OperatingSystem")):
        return (
            "Docker Desktop keeps sockets of containers in its virtual machine; use an engine of this machine"
        )
    if "rootless" in security or "userns" in security:
        return (
            "it gives containers other user ids than this machine's, so that files would not be theirs; use "
            "one that is neither rootless nor has userns-remap"
        )
    return ""


async def _try(sandbox: DockerSandbox, options: Options) -> None:
    """A life that does nothing."""
    life = f"check-{secrets.token_hex(6)}"
    spec = LifeSpec(
        life,
        life,
        _SLEEP,
        {"PATH": "/usr/bin:/bin"},
        "/",
        {},
        secrets.token_hex(16),
        60,
        options=words(options),
    )
    ref, link = await sandbox.start(spec, 1)
    with anyio.CancelScope(shield=True):
        await link.aclose()
        await sandbox.reap(ref)
