"""Opening a World from its URL: ``file:DIR``, ``sqlite:PATH``, or what an entry point adds."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, cast

from harness_durable import registry
from harness_durable.errors import BadSetting
from harness_durable.world import World

if TYPE_CHECKING:  # the suites stand above this module
    from harness_durable.testing.worlds.bench import Faults

Opener = Callable[[str, str], Awaitable[World]]
"""What a World registers: ``open_world(url, app)``."""

_PARAMETER = re.compile(r"(?<=password=)[^&]*")


def redact(url: str) -> str:
    """The URL without its password, for people and logs: without what stands between a colon and the last @,
    since people paste passwords as they are, and without the value of a ``password`` parameter."""
    url = _PARAMETER.sub("***", url)
    scheme = url.partition(":")[0]
    mark = "://" if url.startswith("://", len(scheme)) else ":"
    rest = url[len(scheme + mark) :]
    before, at, host = rest.rpartition("@")
    user, colon, _ = before.partition(":")
    if not at or (scheme and not colon):
        return url
    return f"{scheme}{mark}{user}:***@{host}" if colon else f"{mark}***@{host}"


async def open_world(url: str, app: str = "default") -> World:
    """Open the store that ``url`` names, for one app.

    Raises ``BadSetting`` for a URL without a scheme, ``UnknownName`` for an unknown scheme,
    ``StorageUnavailable`` if the store cannot be reached or written.
    """
    scheme, colon, _ = url.partition(":")
    if not colon or not scheme:
        known = ", ".join(f"{name}:…" for name in registry.known("world"))
        raise BadSetting(
            f"World URL {redact(url)!r} has no scheme; use one of {known}, e.g. sqlite:agents.db"
        )
    opener = cast(Opener, registry.load("world", scheme))
    return await opener(url, app)


def faults(url: str) -> Faults | None:
    """How the conformance suite can hurt the World that ``url`` names: what ``faults(url)`` in the module of
    its ``open_world`` gives; None if there is no such function. Raises ``UnknownName``."""
    offered = _beside_opener(url.partition(":")[0], "faults")
    return cast("Callable[[str], Faults | None]", offered)(url) if offered is not None else None


def variables(scheme: str) -> tuple[str, ...]:
    """Environment variables that this kind of World reads itself: ``variables`` in the module of its
    ``open_world``. Raises ``UnknownName`` or ``BadSetting``."""
    return cast("tuple[str, ...]", _beside_opener(scheme, "variables") or ())


def _beside_opener(scheme: str, name: str) -> object:
    opener = cast(Opener, registry.load("world", scheme))
    return getattr(import_module(opener.__module__), name, None)
