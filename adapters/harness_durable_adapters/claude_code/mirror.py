"""The mirror: every line that the harness writes into its transcript goes into the log, with the outcomes and
deliveries that it tells of."""

from __future__ import annotations

from harness_durable.adapter import LifeContext
from harness_durable.gateway import rawjson
from harness_durable.journal.calls import Told

from ..common.shapes import Json, encode, objects, text_of, word
from .naming import file_name, main_file
from .transcript import Line, is_made_up, read


def lines_of(frame: Json) -> list[Line]:
    """The lines of a ``transcript_mirror`` frame. Those that are nested too deeply stay as they were said."""
    entries = frame.get("entries")
    if isinstance(entries, bytes):
        return [line for entry in rawjson.items(entries) if (line := read(bytes(entry))) is not None]
    return [Line(encode(entry), entry) for entry in objects(entries)]


async def mirror(ctx: LifeContext, frame: Json, lines: list[Line], offset: int) -> list[str]:
    """Take the ``lines`` of a frame. ``offset``: where the output stands after it. Returns the uuids of the
    user's messages that it shows to be delivered. A frame that the log has already changes nothing."""
    native = ctx.journal.state.native_id
    by_file: dict[str, list[Line]] = {}
    for line in lines:
        by_file.setdefault(_file(line, word(frame.get("filePath")), native), []).append(line)
    files = {file: [line.raw for line in part] for file, part in by_file.items()}
    await ctx.journal.transcript_appended(ctx.life, files, offset=offset, told=_outcomes(ctx, lines))
    return [uuid for line in lines for uuid in line.shows]


def _file(line: Line, path: str, native: str) -> str:
    """A line belongs to the session that it names, whatever file the harness put it into."""
    session = word(line.value.get("sessionId"))
    return main_file(session) if session and session != native else file_name(path, native)


def _outcomes(ctx: LifeContext, lines: list[Line]) -> list[Told]:
    """Outcomes that no hook told us: of calls that the harness refused before it asked us, mostly."""
    state = ctx.journal.state
    found: list[Told] = []
    for line in lines:
        for result in line.results:
            call = state.tool_calls.get(word(result.get("tool_use_id")))
            if call is None or not call.open or is_made_up(result):
                continue
            raw = text_of(result.get("content")).encode("utf-8", "backslashreplace")
            if call.released_in is None:
                found.append(Told(call.id, "not_started", raw))
            else:
                whole = "toolUseResult" in line.value and not line.outlined
                detail = encode(line.value["toolUseResult"]) if whole else None
                failed = result.get("is_error") is True
                found.append(Told(call.id, "failed" if failed else "completed", raw, detail))
    return found
