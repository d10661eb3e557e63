"""``harness-durable trace``: what happened in a session, as text, markdown (when piped) or JSON."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import click
import msgspec

from harness_durable import codec, fold
from harness_durable.cli.common import (
    asynchronous,
    json_option,
    one_line,
    opened,
    print_json,
    world_options,
)
from harness_durable.cli.story import Line, tell
from harness_durable.events import Entry
from harness_durable.journal import Reader
from harness_durable.state import Session

STYLE = {"good": "green", "bad": "red", "warn": "yellow", "life": "cyan", "person": "magenta"}


@click.command()
@click.argument("session")
@world_options
@click.option("--follow", "-f", is_flag=True, help="go on as the log grows, with text as it arrives")
@click.option("--since", type=int, default=0, help="only events after this number")
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
    """Show what happened in SESSION: every life, also the lost ones."""
    async with opened(world, app) as (store, _):
        await store.session(session)
        reader = Reader(store, session)
        entries = reader.follow() if follow else reader.entries()
        if as_json:
            await _json(entries, since)
        else:
            await print_story(entries, since=since, markdown=markdown or not sys.stdout.isatty())


async def _json(entries: AsyncIterator[Entry], since: int) -> None:
    async for entry in entries:
        if entry.seq > since:
            print_json(as_dict(entry))


def as_dict(entry: Entry) -> dict[str, Any]:
    """An entry as people's tools read it."""
    fields: dict[str, Any] = msgspec.to_builtins(entry.event, builtin_types=(bytes,))
    return {
        "seq": entry.seq,
        "time": entry.time,
        "epoch": entry.epoch,
        **fields,
        "kind": codec.kind_of(entry.event),
    }


async def print_story(
    entries: AsyncIterator[Entry], *, since: int = 0, markdown: bool = False, to_stderr: bool = False
) -> Session:
    """Print a line per event that people care about; the state at the end."""
    state = Session()
    async for entry in entries:
        fold.apply(state, entry)
        line = tell(state, entry)
        if line is not None and entry.seq > since:
            click.echo(_markdown(entry, line) if markdown else _coloured(entry, line), err=to_stderr)
    return state


def _coloured(entry: Entry, line: Line) -> str:
    when = datetime.fromtimestamp(entry.time / 1000).strftime("%H:%M:%S")
    mark = click.style(line.mark, fg=STYLE.get(line.tone), bold=True)
    text = click.style(line.text, fg=STYLE.get(line.tone), dim=line.tone == "quiet")
    return f"{click.style(when, dim=True)} {entry.seq:>5} {mark} {text}"


def _markdown(entry: Entry, line: Line) -> str:
    text = one_line(line.text, 400).replace("`", "'").replace("<", "&lt;")
    return f"- {entry.seq} {line.mark} {text}"
