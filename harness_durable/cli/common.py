"""What commands share: options, opening a World, printing. stdout is the answer, stderr the conversation."""

from __future__ import annotations

import functools
import json
import sys
import unicodedata
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

import anyio
import click

from harness_durable.settings import Settings, resolve
from harness_durable.world import World
from harness_durable.worlds import open_world

P = ParamSpec("P")
T = TypeVar("T")

_KEEP = {"\n", "\t"}
_BIDI = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")


def visible(text: str) -> str:
    """Text of an agent as it may go to a terminal: control and direction characters become visible marks."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_mark(character) for character in text)


def _mark(character: str) -> str:
    if character in _KEEP:
        return character
    if character in _BIDI or unicodedata.category(character) in ("Cc", "Cs"):
        return f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}"
    return character


def one_line(text: str, width: int) -> str:
    """The beginning of a text, on one line."""
    flat = " ".join(visible(text[: width * 4]).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def world_options(command: Callable[P, T]) -> Callable[P, T]:
    """``--world`` and ``--app``."""
    app = click.option("--app", help="app whose sessions are meant [default: HARNESS_DURABLE_APP or default]")
    world = click.option("--world", help="World URL [default: HARNESS_DURABLE_WORLD]")
    return world(app(command))


def json_option(command: Callable[P, T]) -> Callable[P, T]:
    """``--json``: one object a line, each with ``"v": 1``."""
    return click.option("--json", "as_json", is_flag=True, help="one JSON object a line")(command)


def asynchronous(body: Callable[P, Awaitable[T]]) -> Callable[P, T]:
    """Run a command's coroutine."""

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        async def call() -> T:
            return await body(*args, **kwargs)

        try:
            return anyio.run(call)
        except BaseExceptionGroup as group:
            from harness_durable.runtime.groups import heaviest

            raise heaviest(group) from group

    return run


@asynccontextmanager
async def opened(world: str | None, app: str | None) -> AsyncGenerator[tuple[World, Settings]]:
    """The World that flags and environment name."""
    settings = resolve({"world": world, "app": app}).settings
    found = await open_world(settings.world, settings.app)
    try:
        yield found, settings
    finally:
        await found.aclose()


def print_json(value: Mapping[str, Any]) -> None:
    click.echo(json.dumps({"v": 1, **value}, ensure_ascii=True, default=str))


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table on a terminal, tab-separated lines in a pipe."""
    if not sys.stdout.isatty():
        for row in rows:
            click.echo("\t".join(visible(cell).replace("\t", " ").replace("\n", " ") for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console().print(table)


def say(text: str) -> None:
    """A remark for the person at the terminal."""
    click.echo(text, err=True)
