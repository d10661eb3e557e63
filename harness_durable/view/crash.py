"""Before and after a crash: what the model had been told, and what it was told on return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness_durable.errors import DamagedLog, NotFound
from harness_durable.payload import Payload
from harness_durable.view.messages import Said, said
from harness_durable.view.requests import request
from harness_durable.view.sheet import Sheet
from harness_durable.view.words import counted

if TYPE_CHECKING:
    from harness_durable.view.detail import Text

PIECE = 8 << 10
"""Characters of one message that are shown."""


async def around(sheet: Sheet, item: int) -> list[Text]:
    """Of the end of a life, or of its worker: the last request before it against the first one after it.
    Messages that both have are counted; those that were added are shown. ``seq`` of the latter is the request
    that had them."""
    from harness_durable.view.detail import Text

    end = sheet.versions(item)[0]
    asked = [one for one in sheet.rows if one.kind == "model" and one.state == "requested"]
    before = next((one for one in reversed(asked) if one.seq < end.seq and one.life == end.life), None)
    lives_on = end.kind == "attached"
    later = (one for one in asked if one.seq > end.seq and (lives_on or one.life > end.life))
    after = next(later, None)
    old = await _messages(sheet, before.item) if before is not None else None
    if before is None or old is None:
        return []
    last = old[-1] if old else Said("", "")
    told = f"{counted(len(old), 'message')}; the last one was from {last.role}:\n\n{last.text}"
    found = [Text(item, "", "Before: what the model had been told", told[:PIECE], min(len(told), PIECE))]
    new = await _messages(sheet, after.item) if after is not None else None
    if after is None or new is None:
        return found
    same = _common(old, new)
    dropped = f", {len(old) - same} changed or dropped" if same < len(old) else ""
    counts = f"{counted(same, 'message')} as before{dropped}, {len(new) - same} added"
    label = f"After: what it was told on return ({counts})"
    found.append(Text(after.item, "", label, "", 0))
    for number, message in enumerate(new[same:], same + 1):
        text = message.text[:PIECE]
        found.append(
            Text(
                after.item, "", f"Message {number} of {len(new)}, {message.role}", text, len(text), fresh=True
            )
        )
    return found


def _common(old: list[Said], new: list[Said]) -> int:
    same = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        same += 1
    return same


async def _messages(sheet: Sheet, item: int) -> list[Said] | None:
    found = await request(sheet, item)
    if found is None:
        return None
    return [await _said(sheet, part) for part in found.messages]


async def _said(sheet: Sheet, payload: Payload) -> Said:
    try:
        return said(await sheet.reader.content(payload))
    except (DamagedLog, NotFound) as missing:
        return Said("?", f"({missing})")
