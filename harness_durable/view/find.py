"""Find: where a text stands in a session. The page has no bodies, so the server looks for it.

A search goes backwards from a place and stops after a while; the page asks again for what is before. It looks
at what people said, what models said, and what tools got and gave; not at the agent's own transcript, which
says all of that once more."""

from __future__ import annotations

import msgspec

from harness_durable import clock
from harness_durable import events as ev
from harness_durable.errors import DamagedLog, NotFound
from harness_durable.journal.reader import entry_of
from harness_durable.view.detail import payloads, readable
from harness_durable.view.sheet import Sheet

PAGE = 500
MOST = 200
"""Places in one answer."""

MOST_TIME = 0.25
"""Seconds after which an answer is given with what was found so far."""


class Found(msgspec.Struct, frozen=True):
    """``seqs``: events that have it, latest first. ``before``: where to go on; 0: that was all."""

    seqs: list[int]
    before: int


async def find(sheet: Sheet, words: str, before: int) -> Found:
    """Case does not matter. An empty text is nowhere."""
    wanted, seqs = words.casefold(), list[int]()
    end, began = before, clock.monotonic()
    while wanted and end > 1:
        start = max(0, end - 1 - PAGE)
        try:
            records = await sheet.reader.world.read(sheet.reader.session, start, end - 1 - start)
        except DamagedLog:
            records = []
        for record in reversed([one for one in records if one.seq < end]):
            end = record.seq
            if await _has(sheet, entry_of(record, sheet.reader.session), wanted):
                seqs.append(record.seq)
            if len(seqs) >= MOST or clock.monotonic() - began > MOST_TIME:
                return Found(seqs, end)
        end = start + 1
    return Found(seqs, 0)


async def _has(sheet: Sheet, entry: ev.Entry, wanted: str) -> bool:
    event = entry.event
    if isinstance(event, ev.TranscriptAppended | ev.TranscriptReplaced):
        return False
    if any(
        wanted in f"{one.title} {one.text} {' '.join(one.badges)}".casefold()
        for one in sheet.at(entry.seq)[:1]
    ):
        return True
    for name, _, payload in payloads(event):
        try:
            whole = await readable(sheet, entry.seq, name, payload)
        except (DamagedLog, NotFound):
            continue
        if wanted in whole.casefold():
            return True
    return False
