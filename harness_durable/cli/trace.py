"""``harness-durable trace``: what happened in a session, as text, markdown (when piped) or JSON."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from datetime import datetime
from typing import TextIO

import click

from harness_durable import fold
from harness_durable.cli.common import (
    asynchronous,
    json_option,
    one_line,
    opened,
    print_json,
    say,
    visible,
    warn_of_remarks,
    world_options,
)
from harness_durable.cli.story import Line, tell
from harness_durable.cli.strip import strip
from harness_durable.errors import DamagedLog
from harness_durable.events import Entry
from harness_durable.journal import Reader
from harness_durable.state import Session
from harness_durable.world import World

STYLE = {"good": "green", "bad": "red", "warn": "yellow", "life": "cyan", "person": "magenta"}

WHOLE = frozenset("?✘▲╳↻■")
"""Signs of lines whose end says why, or what to do: they may take more than one line of a terminal."""

PAGE = 100
"""How wide the lives are drawn where there is no terminal."""


@click.command()
@click.argument("session")
@world_options
@click.option("--follow", "-f", is_flag=True, help="go on as the log grows, with text as it arrives")
@click.option("--since", type=click.IntRange(0), default=0, help="only events after this number")
@click.option("--md", "markdown", is_flag=True, help="markdown, as when piped")
@json_option
@asynchronous
async def trace(
    session: str,
    world: str | None,
    app: str | None,
    follow: bool,
    since: int,
    markdown: bool,
    as_json: bool,
) -> None:
    """Show what happened in SESSION: every life, also the lost ones, line by line and then drawn to time.

    A damaged log is shown up to the damage; with --json also what is behind it. With --follow --json, text
    that is arriving comes as lines of kind "progress", which have no number.
    """
    async with opened(world, app) as store:
        await store.session(session)
        await warn_of_remarks(store, session)
        reader = Reader(store, session)
        entries = reader.follow() if follow else reader.entries()
        markdown = markdown or not sys.stdout.isatty()
        if as_json:
            trouble = _Trouble()
            if follow:
                from harness_durable.cli.live import progress_as_json

                async with progress_as_json(store, session):
                    await _json(entries, since)
            else:
                await _json(_around_damage(store, session, trouble), since)
            sys.exit(1 if trouble.told else 0)
        elif follow and not markdown:
            from harness_durable.cli.live import arriving

            async with arriving(store, session, to_stderr=False) as clear:
                await print_story(entries, since=since, begin=clear)
        else:
            await print_story(entries, since=since, markdown=markdown)


class _Trouble:
    """What was said of damage already."""

    def __init__(self) -> None:
        self.told = ""

    def tell(self, damaged: DamagedLog) -> None:
        if str(damaged) != self.told:
            self.told = str(damaged)
            say(f"error: {visible(self.told)}")


async def _around_damage(store: World, session: str, trouble: _Trouble) -> AsyncGenerator[Entry]:
    """Every entry that can be read: damage must not hide its neighbours."""
    reader, after = Reader(store, session), 0
    head = (await store.session(session)).head
    while after < head:
        try:
            async for entry in reader.entries(after):
                yield entry
                after = entry.seq
            return
        except DamagedLog as damaged:
            trouble.tell(damaged)
            after += 1


async def _json(entries: AsyncIterator[Entry], since: int) -> None:
    from harness_durable.exports.jsonl import as_dict

    async for entry in entries:
        if entry.seq > since:
            print_json(as_dict(entry))


async def print_story(
    entries: AsyncIterator[Entry], *, since: int = 0, markdown: bool = False, begin: str = ""
) -> None:
    """Print a line per event that people care about, each after ``begin``; where the log ends, its lives."""
    state, width = Session(), columns(sys.stdout)
    async for entry in entries:
        fold.apply(state, entry)
        line = tell(state, entry)
        if line is not None and entry.seq > since:
            click.echo(begin + (_markdown(entry, line) if markdown else render(entry, line, width)))
    lanes = strip(state, width or PAGE)
    if lanes and markdown:
        click.echo("\n## Lives\n\n```text\n" + "\n".join(lanes) + "\n```")
    elif lanes:
        click.echo("\n" + "\n".join(lanes))


def columns(stream: TextIO) -> int | None:
    """How wide the terminal is; None if this is none, so that nothing need be cut."""
    if not stream.isatty():
        return None
    return shutil.get_terminal_size((0, 0)).columns or os.get_terminal_size(stream.fileno()).columns or 80


def render(entry: Entry, line: Line, width: int | None) -> str:
    """A line for people: the time of day, the event's number, the story, no wider than ``width`` cells. Safe
    whatever an agent said."""
    when = datetime.fromtimestamp(entry.time / 1000).strftime("%H:%M:%S.%f")[:-3]
    said = visible(line.text).replace("\n", " ")
    if width is not None and line.mark not in WHOLE:
        said = _fitted(said, width - len(f"{when} {entry.seq:>4} {line.mark} "))
    mark = click.style(line.mark, fg=STYLE.get(line.tone), bold=True)
    text = click.style(said, fg=STYLE.get(line.tone), dim=line.tone == "quiet")
    return f"{click.style(when, dim=True)} {entry.seq:>4} {mark} {text}"


def _fitted(text: str, room: int) -> str:
    """The beginning of a text, in at most ``room`` cells of a terminal."""
    from rich.cells import cell_len, set_cell_size

    room = max(room, 20)
    return text if cell_len(text) <= room else set_cell_size(text, room - 1).rstrip() + "…"


def _markdown(entry: Entry, line: Line) -> str:
    # Readable in a terminal, too: only what makes a reader of Markdown fetch or run something is taken out.
    text = one_line(line.text, 400).replace("`", "'").replace("<", "&lt;").replace("](", "]\\(")
    return f"- {entry.seq} {line.mark} {text}"
