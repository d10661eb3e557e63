"""Following a session on the terminal: lines as events happen, and text as it arrives."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import click

from harness_durable import clock, fold
from harness_durable.cli.common import one_line, print_json, say, visible
from harness_durable.cli.story import tell
from harness_durable.cli.trace import columns, render
from harness_durable.errors import StorageUnavailable
from harness_durable.journal import Reader
from harness_durable.runtime.api import Durable
from harness_durable.runtime.groups import beside
from harness_durable.runtime.progress import Shown, shown
from harness_durable.state import Session
from harness_durable.world import World

CLEAR = "\r\033[K"
"""Wipes the line on which text arrives."""


async def follow_turn(
    durable: Durable, session: str, turn: str, since: int, begun: Session | None = None
) -> None:
    """Print the story to stderr, from the event after ``since`` until the turn is settled. ``begun``: the
    state by then."""
    state = begun or await Reader(durable.world, session).load(upto=since)
    width = columns(sys.stderr)
    async with arriving(durable.world, session, to_stderr=True) as clear:
        async for entry in durable.turn(session, turn).events(since):
            if entry.seq > state.seq:
                fold.apply(state, entry)
            line = tell(state, entry)
            if line is not None:
                click.echo(clear + render(entry, line, width), err=True)


@asynccontextmanager
async def arriving(world: World, session: str, *, to_stderr: bool) -> AsyncGenerator[str]:
    """Show the end of the text that is arriving, on a line that is overwritten; where there is no terminal,
    only what the harness waits for, once, on stderr. Gives what every other line has to begin with."""
    stream = sys.stderr if to_stderr else sys.stdout
    live = stream.isatty() and os.environ.get("TERM") != "dumb"
    async with beside() as tasks:
        if live:
            tasks.start_soon(_show, world, session, to_stderr)
        else:
            tasks.start_soon(_tell_waits, world, session)
        yield CLEAR if live else ""
    if live:
        click.echo(CLEAR, nl=False, err=to_stderr)


@asynccontextmanager
async def progress_as_json(world: World, session: str) -> AsyncGenerator[None]:
    """Print text that is arriving as lines of JSON: the end of it, again whenever there is more."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_print_progress, world, session)
        yield
        tasks.cancel_scope.cancel()


async def _print_progress(world: World, session: str) -> None:
    last = Shown("", "")
    while True:
        found = await _now(world, session)
        if found != last and found.text:
            print_json({"kind": "progress", "call": found.call, "text": found.text})
        last = found
        await clock.sleep(0.1)


async def _tell_waits(world: World, session: str) -> None:
    told = ""
    while True:
        found = await _now(world, session)
        if found.text and not found.call and found.text != told:
            told = found.text
            say(visible(told))
        await clock.sleep(0.1)


async def _now(world: World, session: str) -> Shown:
    """Whoever waits for a turn waits for the store, too: without it nothing is seen to arrive."""
    try:
        return shown(await world.progress(session))
    except StorageUnavailable:
        return Shown("", "")


async def _show(world: World, session: str, to_stderr: bool) -> None:
    last = ""
    width = max(20, shutil.get_terminal_size().columns - 5)
    while True:
        await clock.sleep(0.1)
        text = (await _now(world, session)).text
        if text != last:
            last = text
            tail = one_line(text[-400:], 2000)[-width:]
            click.echo(f"{CLEAR}  … {tail}" if tail else CLEAR, nl=False, err=to_stderr)
