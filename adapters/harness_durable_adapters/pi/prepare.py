"""Preparing a life: its session file is gathered from the log, and what has to be added is recorded."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence

from harness_durable.adapter import Launch, LifeContext
from harness_durable.crashpoints import reach
from harness_durable.errors import BadSetting
from harness_durable.journal import Journal
from harness_durable.journal.driver import Splice

from ..common.lines import pieces
from ..common.shapes import Json, encode
from . import install
from .entries import VERSION, Finding, Parser, parse, readable
from .evidence import gather, stamp
from .gate import READS
from .launch import Start, launch
from .naming import transcript_file
from .rebuild import Rebuilt, rebuild
from .repair import lost_entry, repaired

log = logging.getLogger("harness_durable.pi")


async def prepare(ctx: LifeContext) -> Launch:
    """Everything to start this life with. See ``Adapter.prepare``."""
    if ctx.login:
        raise BadSetting(
            "pi cannot use a login of its own under harness-durable; set HARNESS_DURABLE_UPSTREAM_AUTH=key"
        )
    journal = ctx.journal
    file = transcript_file(journal.state.native_id)
    parser = await _read(journal, file)
    if parser.count == 0:
        await journal.transcript_appended(ctx.life, {file: [encode(_header(ctx))]}, offset=0)
        parser = await _read(journal, file)
    elif not parser.sound:
        parser = await _repair(ctx, file, parser.findings)
    rebuilt = rebuild(parser.entries, await gather(ctx, parser.entries))
    if rebuilt.added:
        lines = [encode(entry) for entry in rebuilt.added]
        reason = _reason(rebuilt)
        log.info("session %s: %s", ctx.session, reason)
        await journal.transcript_replaced(file, [Splice(parser.count, 0, lines)], reason)
    reach("recovery.rebuilt")
    start = Start(
        install.PINNED.command(ctx.harness),
        ctx.agent,
        ctx.home,
        ctx.token,
        ctx.tools.specs(),
        entries=len(parser.entries) - 1 + len(rebuilt.added),
        policies={**dict.fromkeys(READS, "safe"), **ctx.agent.policies},
    )
    return launch(start, lambda: pieces(_lines(ctx, file)))


async def _read(journal: Journal, file: str) -> Parser:
    parser = Parser()
    async for raw in journal.transcript_lines(file):
        parser.take(raw)
    return parser


async def _repair(ctx: LifeContext, file: str, findings: Sequence[Finding]) -> Parser:
    """A file that was brought here and that the harness would read wrongly."""
    lines = [line async for line in ctx.journal.transcript_lines(file)]
    native = ctx.journal.state.native_id
    sound = [encode(_header(ctx)), *repaired(lines, native)]
    last = parse(sound).entries[-1]
    lost = lost_entry(findings, native, ctx.life, stamp(), "" if last.is_header else last.id)
    sound += [encode(lost)] if lost is not None else []
    reason = _found(findings) or "the session file had no header"
    log.warning("session %s: %s", ctx.session, reason)
    await ctx.journal.transcript_replaced(file, [Splice(0, None, sound)], reason)
    return parse(sound)


def _header(ctx: LifeContext) -> Json:
    native = ctx.journal.state.native_id
    return {"type": "session", "version": VERSION, "id": native, "timestamp": stamp(), "cwd": ctx.cwd}


async def _lines(ctx: LifeContext, file: str) -> AsyncGenerator[bytes]:
    """The file's lines for the harness, which works where the header says: where the workspace is here."""
    first = True
    async for raw in ctx.journal.transcript_lines(file):
        yield encode({**(readable(raw) or {}), "cwd": ctx.cwd}) if first else raw
        first = False


def _reason(rebuilt: Rebuilt) -> str:
    """In words, for people who read the log."""
    parts = [f"result written for {call}" for call in rebuilt.made_up]
    if rebuilt.cut:
        parts.append("the last response is given again")
    if rebuilt.told:
        parts.append(f"the model is told: {rebuilt.told}")
    return "; ".join(parts)


def _found(findings: Sequence[Finding]) -> str:
    parts: list[str] = []
    for trouble, count in Counter(finding.trouble for finding in findings).items():
        first = next(finding for finding in findings if finding.trouble == trouble)
        where = f"line {first.line}, byte {first.place.offset}, {first.place.length} bytes"
        parts.append(f"{count} {trouble} (first: {where})")
    return "; ".join(parts)
