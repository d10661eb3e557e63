"""Which media are withheld from a provider that refuses a request because of them, and what stands there.

A refused image stays in the harness's own history, so that every later request would be refused as well. The
history is the harness's; what goes upstream is ours. What surprises: the decision is for the whole session
and is looked up by the file's digest, so it holds in every later life, whatever the harness sends."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from harness_durable.gateway.wire import Wire
from harness_durable.journal import Journal
from harness_durable.journal.requests import answered, join
from harness_durable.payload import Media
from harness_durable.state import Session, Withheld

STATUSES = (400, 413)
"""With which a provider refuses what a request holds."""

_LONGEST = 200
"""Characters of the provider's reason that the model gets to read."""
_PLACE = re.compile(r"^(\w+: )?\w+(\.\w+)+: ")
"""Where in the request it was; this is no longer there."""
_ABOUT_MEDIA = re.compile(
    r"\b(images?|documents?|pdfs?|media|videos?|audio|base64|size|too large|range of input length)\b",
    re.IGNORECASE,
)


def notes(state: Session) -> dict[str, str]:
    """What the model reads instead of each of the media that are withheld, by digest: the same text in every
    request, so that the provider's cache goes on working."""
    return {digest: _note(withheld) for digest, withheld in state.withheld.items()}


def _note(withheld: Withheld) -> str:
    reason = " ".join(_PLACE.sub("", withheld.reason).split())[:_LONGEST]
    media = withheld.media
    return (
        f"[{media.kind.capitalize()} withheld by harness-durable: the provider refused it ({reason}). "
        f"{media}. The original is kept in the session's log. "
        "If it is needed, use a smaller or a converted copy.]"
    )


async def refused_media(
    journal: Journal, wire: Wire, *, status: int, said: str, body: bytes, agent: str | None
) -> Sequence[Media]:
    """Those of a refused request that are to be withheld: what the error points at; else, if it is about
    media or size, what no answered request of this conversation had; else the largest. Empty: it is about
    something else. ``said`` are the provider's words, ``body`` what went upstream."""
    found = wire.media(body) if status in STATUSES else ()
    if not found:
        return ()
    meant = wire.blamed(found, said)
    if meant is None:
        if status != 413 and not _ABOUT_MEDIA.search(said):
            return ()
        proven = await _proven(journal, wire, agent)
        fresh = [one for one in found if one.media.digest not in proven]
        meant = fresh or [max(found, key=lambda one: one.media.size)]
    return tuple({one.media.digest: one.media for one in meant}.values())


async def _proven(journal: Journal, wire: Wire, agent: str | None) -> Mapping[str, Media]:
    """Media that the provider has taken before, by digest."""
    proven: dict[str, Media] = {}
    async for part in answered(journal.reader, journal.state, agent):
        for one in wire.media(join([b"{}", part], wire.list_field)):
            proven[one.media.digest] = one.media
    return proven
