"""Opening a World from its URL: ``file:DIR``, ``sqlite:PATH``, or what an entry point adds."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import unquote

from harness_durable import registry
from harness_durable.errors import BadSetting, NotFound
from harness_durable.world import World

if TYPE_CHECKING:  # the suites stand above this module
    from harness_durable.testing.worlds.bench import Faults

Opener = Callable[[str, str], Awaitable[World]]
"""What a World registers: ``open_world(url, app)``."""

_PARAMETER = re.compile(r"(?<=[?&])([^=&]*)=([^&]*)")


def redact(url: str) -> str:
    """The URL without its password, for people and logs: without what stands between a colon and the last @,
    since people paste passwords as they are, and without the value of a ``password`` parameter."""
    url = _PARAMETER.sub(_without_password, url)
    scheme = url.partition(":")[0]
    mark = "://" if url.startswith("://", len(scheme)) else ":"
    rest = url[len(scheme + mark) :]
    before, at, host = rest.rpartition("@")
    user, colon, _ = before.partition(":")
    if not at or (scheme and not colon):
        return url
    return f"{scheme}{mark}{user}:***@{host}" if colon else f"{mark}***@{host}"


def _without_password(parameter: re.Match[str]) -> str:
    """A name may be spelled with percent signs."""
    return f"{parameter[1]}=***" if "password" in unquote(parameter[1]).lower() else parameter[0]


async def open_world(url: str, app: str = "default", *, create: bool = True) -> World:
    """Open the store that ``url`` names, for one app. ``create=False``: only if it is there already, as far
    as its kind can tell (see ``exists``).

    Raises ``BadSetting`` for a URL without a scheme, ``UnknownName`` for an unknown scheme, ``NotFound`` if
    there is no store and none is to be made, ``StorageUnavailable`` if it cannot be reached or written.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or not scheme:
        known = ", ".join(f"{name}:…" for name in registry.known("world"))
        raise BadSetting(
            f"World URL {redact(url)!r} has no scheme; use one of {known}, e.g. sqlite:agents.db"
        )
    opener = cast(Opener, registry.load("world", scheme))
    if not create and not await exists(url):
        raise NotFound(
            f"there is no World at {redact(url)}; check HARNESS_DURABLE_WORLD and --world "
            "(`harness-durable run` begins one)"
        )
    return await opener(url, app)


async def exists(url: str) -> bool:
    """Whether there is a World already: what ``exists(url)`` in the module of its ``open_world`` says, which
    makes nothing; true if there is no such function. Raises ``UnknownName``, and what opening it raises."""
    offered = _beside_opener(url.partition(":")[0], "exists")
    return await cast("Callable[[str], Awaitable[bool]]", offered)(url) if offered is not None else True


def faults(url: str) -> Faults | None:
    """How the conformance suite can hurt the World that ``url`` names: what ``faults(url)`` in the module of
    its ``open_world`` gives; None if there is no such function. Raises ``UnknownName``."""
    offered = _beside_opener(url.partition(":")[0], "faults")
    return cast("Callable[[str], Faults | None]", offered)(url) if offered is not None else None


def migrations(url: str) -> str | None:
    """What a database administrator has to run before this World can be opened by a role that may create
    nothing: what ``migrations(url)`` in the module of its ``open_world`` gives, which connects to nothing;
    None if there is no such function. Raises ``UnknownName`` and ``BadSetting``."""
    offered = _beside_opener(url.partition(":")[0], "migrations")
    return cast("Callable[[str], str]", offered)(url) if offered is not None else None


def variables(scheme: str) -> tuple[str, ...]:
    """Environment variables that this kind of World reads itself: ``variables`` in the module of its
    ``open_world``. Raises ``UnknownName`` or ``BadSetting``."""
    return cast("tuple[str, ...]", _beside_opener(scheme, "variables") or ())


def places(url: str) -> tuple[Path, ...]:
    """Files and folders of this host in which the World that ``url`` names keeps what it has: what
    ``places(url)`` in the module of its ``open_world`` says; none if there is no such function. They are
    never part of a workspace. Raises ``UnknownName`` and ``BadSetting``."""
    offered = _beside_opener(url.partition(":")[0], "places")
    return cast("Callable[[str], tuple[Path, ...]]", offered)(url) if offered is not None else ()


def origin(url: str, app: str) -> str:
    """A short name for one app's part of one World, the same for each process of this host that names it so.
    Nothing can be read back from it. Two names may mean the same store; never one name two stores.

    Raises ``UnknownName`` or ``BadSetting``."""
    scheme, _, rest = url.partition(":")
    where = redact(url) if rest.startswith("//") else str(Path(rest).expanduser().resolve())
    names = [name for name in variables(scheme) if "PASS" not in name]
    told = [scheme, where, app, *(f"{name}={os.environ.get(name, '')}" for name in names)]
    return hashlib.sha256("\0".join(told).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _beside_opener(scheme: str, name: str) -> object:
    opener = cast(Opener, registry.load("world", scheme))
    return getattr(import_module(opener.__module__), name, None)
