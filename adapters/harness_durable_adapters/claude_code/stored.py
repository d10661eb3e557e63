"""The transcript as the log has it: read line by line, changed only where a rebuild changed it, and given to
the harness piece by piece. No step holds all of it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence

from harness_durable.journal import Journal
from harness_durable.journal.driver import Splice

from .lost import is_pending
from .slim import slim
from .transcript import Finding, Line, Parser, read

_NOTE = 1 << 20
"""Bytes that no note of ours has."""


async def slim_lines(journal: Journal, file: str) -> tuple[list[Line], list[Finding], int]:
    """What a rebuild must know of every line, what is wrong with some, and how many lines the log has."""
    parser = Parser(journal.state.native_id, slim)
    async for raw in journal.transcript_lines(file):
        parser.take(raw)
    return *parser.end(), parser.count


async def changes(
    journal: Journal, file: str, old: Sequence[Line], count: int, new: Sequence[Line]
) -> list[Splice]:
    """What makes the ``count`` lines in the log, of which ``old`` can be read, into the ``new`` ones."""
    hung = {line.number: line for line in new if line.hung}
    written: dict[int, bytes] = {}
    if hung:
        number = 0
        async for raw in journal.transcript_lines(file):
            whole = read(raw) if number in hung else None
            if whole is not None:
                written[number] = whole.changed(parentUuid=hung[number].value["parentUuid"]).raw
            number += 1
    return splices({line.number: line.raw for line in old if line.raw}, count, new, written)


def splices(
    held: Mapping[int, bytes], count: int, new: Sequence[Line], written: Mapping[int, bytes]
) -> list[Splice]:
    """``held``: lines of the log that are in memory, by number; ``written``: slim lines as they are by now.
    Lines of the log keep their order."""
    found: list[Splice] = []
    fresh: list[bytes] = []
    place = 0

    def close(end: int) -> None:
        if (fresh or end > place) and fresh != [held.get(number) for number in range(place, end)]:
            found.append(Splice(place, end - place, tuple(fresh)))
        fresh.clear()

    for line in new:
        if line.number < 0 or line.hung:
            fresh.append(written[line.number] if line.hung else line.raw)
        else:
            close(line.number)
            place = line.number + 1
    close(count)
    return found


async def own_lines(journal: Journal, file: str) -> AsyncGenerator[bytes]:
    """The file's lines for the harness."""
    async for raw in journal.transcript_lines(file):
        if raw.strip() and not _is_ours(raw):
            yield raw


def _is_ours(raw: bytes) -> bool:
    line = read(raw) if len(raw) < _NOTE and b"harness-durable-" in raw else None
    return line is not None and is_pending(line)
