"""How a life ended: what its keeper recorded, or what its sandbox finds out once the keeper is gone."""

from __future__ import annotations

from harness_durable.errors import HarnessDurableError
from harness_durable.sandbox import Ending, Exit, LifeRef, Link, Sandbox, TellsEnding

_BY_ITSELF = ("exit", "signal", "oom")
"""Ends of a harness whose keeper goes on."""


async def ending_of(sandbox: Sandbox, ref: LifeRef) -> Ending:
    """Of a life whose keeper may be gone. Raises ``SandboxUnavailable``."""
    found = await sandbox.ending(ref) if isinstance(sandbox, TellsEnding) else None
    return found or Ending("", "")


async def ending(sandbox: Sandbox, ref: LifeRef, link: Link) -> Ending:
    """Of a life that ended under our hands. Raises ``SandboxUnavailable``."""
    if link.exit is not None and link.exit.why in _BY_ITSELF:
        return _recorded(link.exit)
    return await ending_of(sandbox, ref)


def not_begun(trouble: HarnessDurableError) -> Ending:
    """Of a life that could not be started."""
    return Ending(trouble.why, "")


def with_ending(why: str, how: Ending) -> str:
    """The whole sentence."""
    return f"{why}: {how.sentence}" if how.sentence else why


def _recorded(exit: Exit) -> Ending:  # noqa: A002  (the link's word)
    if exit.why != "oom":
        return Ending(exit.why, "", exit.oom_kills)
    return Ending("oom", "it was killed because the memory of its sandbox was used up", exit.oom_kills)
