"""Following a turn on the terminal: lines as events happen, text as it arrives."""

from __future__ import annotations

import sys
from datetime import datetime

import anyio
import click

from harness_durable import clock, fold
from harness_durable.cli.common import one_line, visible
from harness_durable.cli.story import tell
from harness_durable.cli.trace import STYLE
from harness_durable.journal import Reader
from harness_durable.runtime.api import Durable
from harness_durable.runtime.progress import shown
from harness_durable.state import Session


async def follow_turn(durable: Durable, session: str, turn: str) -> None:
    """Print the story to stderr until the turn is settled."""
    reader = Reader(durable.world, session)
    async with anyio.create_task_group() as tasks:
        if sys.stderr.isatty():
            tasks.start_soon(_show_progress, durable, session)
        await _lines(reader, turn)
        tasks.cancel_scope.cancel()


async def _lines(reader: Reader, turn: str) -> None:
    state, head = Session(), (await reader.world.session(reader.session)).head
    async for entry in reader.follow():
        fold.apply(state, entry)
        line = tell(state, entry)
        known = state.turns.get(turn)
        if line is not None and (known is None or entry.seq >= known.started_seq):
            when = datetime.fromtimestamp(entry.time / 1000).strftime("%H:%M:%S")
            mark = click.style(line.mark, fg=STYLE.get(line.tone), bold=True)
            click.echo(
                f"\r\033[K{when} {mark} {visible(line.text)}"
                if sys.stderr.isatty()
                else f"{when} {mark} {visible(line.text)}",
                err=True,
            )
        if known is not None and known.settled and entry.seq >= head:
            return


async def _show_progress(durable: Durable, session: str) -> None:
    """The end of the text that is arriving, on a line that is overwritten."""
    last = ""
    while True:
        await clock.sleep(0.1)
        text = shown(await durable.world.progress(session)).text
        if text != last:
            last = text
            tail = one_line(text[-300:], 300)[-90:]
            click.echo(f"\r\033[K  … {tail}", nl=False, err=True)
