"""What commands share: options, opening a World, printing. stdout is the answer, stderr the conversation."""

from __future__ import annotations

import functools
import gc
import json
import logging
import re
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

if TYPE_CHECKING:  # --help must not pay for them
    from harness_durable.journal import Reader
    from harness_durable.state import Session
    from harness_durable.world import World

P = ParamSpec("P")
T = TypeVar("T")

# Controls but for line breaks and tabs, direction marks, line separators, what takes no room, half surrogate
# pairs, tags. Joiners (U+200C, U+200D) stay: scripts and emoji need them.
_HOSTILE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Text of an agent as it may go to a terminal: what could steer it, or hide, becomes a visible mark."""
    return _HOSTILE.sub(_mark, text)


def _mark(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number < 256:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"


def one_line(text: str, width: int) -> str:
    """The beginning of a text, on one line."""
    flat = " ".join(visible(text[: width * 4]).split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def pairs(words: Sequence[str]) -> dict[str, str]:
    """From NAME=VALUE, each. Raises ``click.UsageError``."""
    split = [word.partition("=") for word in words]
    for name, equals, _ in split:
        if not equals or not name.strip():
            raise click.UsageError(f"{name!r} is no NAME=VALUE; write it so, such as image=python:3.12")
    return {name.strip(): value.strip() for name, _, value in split}


def world_options(command: Callable[P, T]) -> Callable[P, T]:
    """``--world`` and ``--app``."""
    app = click.option("--app", help="app whose sessions are meant [default: HARNESS_DURABLE_APP or default]")
    world = click.option("--world", help="World URL [default: HARNESS_DURABLE_WORLD]")
    return world(app(command))


def json_option(command: Callable[P, T]) -> Callable[P, T]:
    """``--json``: one object a line, each with ``"v": 1``."""
    return click.option("--json", "as_json", is_flag=True, help="one JSON object a line")(command)


@contextmanager
def importing() -> Generator[None]:
    """For what a command imports before it drives. All of it stays, and is not looked through for garbage,
    now or later: each time would take longer than attaching to a life."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def asynchronous(body: Callable[P, Awaitable[T]]) -> Callable[P, T]:
    """Run a command's coroutine. To be told to stop (SIGTERM), and to lose the terminal (SIGHUP), is the same
    as Ctrl-C: a planned interruption. It does not go by way of SIGINT, which background jobs ignore."""

    @functools.wraps(body)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        import asyncio

        import anyio

        async def call() -> T:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            for number in (signal.SIGTERM, signal.SIGHUP):
                if task is not None and signal.getsignal(number) == signal.SIG_DFL:
                    loop.add_signal_handler(number, task.cancel)
            return await body(*args, **kwargs)

        logging.basicConfig(level=logging.WARNING, handlers=[Log("warning: ")])
        try:
            return anyio.run(call)
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        except BaseExceptionGroup as group:
            from harness_durable.runtime.groups import heaviest

            raise heaviest(group) from None

    return run


@asynccontextmanager
async def opened(world: str | None, app: str | None, *, create: bool = False) -> AsyncGenerator[World]:
    """The World that flags and environment name. Who only looks, or speaks to a session, makes none."""
    from harness_durable.errors import NotFound
    from harness_durable.origins import where
    from harness_durable.worlds import open_world, redact

    url, name = where(world, app)
    found = await open_world(url, name, create=create)
    try:
        yield found
    except NotFound as missing:  # it may be another World, or another app, that was meant
        raise NotFound(f"{missing} (looked in World {redact(url)}, app {name!r})") from None
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
    for number, column in enumerate(columns):
        table.add_column(column, overflow="fold", no_wrap=number == 0 and len(columns) > 1)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    Console().print(table)


class Log(logging.StreamHandler[Any]):
    """The log of a program goes to stderr; a reason in it may hold what an agent said."""

    def __init__(self, begin: str) -> None:
        super().__init__()
        self.begin = begin
        self.setFormatter(logging.Formatter("%(message)s"))

    def format(self, record: logging.LogRecord) -> str:
        return self.begin + visible(super().format(record))


def say(text: str) -> None:
    """A remark for the person at the terminal."""
    click.echo(text, err=True)


async def warn_of_damage(reader: Reader, state: Session) -> None:
    """For who recovers a session: reads the whole log. Raises ``DamagedLog`` if nobody can go on with it."""
    if (damaged := await reader.damage(state)) is not None:
        say(
            f"warning: session {reader.session} goes on from a snapshot; its history before is incomplete: "
            f"{visible(str(damaged))}"
        )


async def warn_of_remarks(store: World, session: str) -> None:
    """What the World finds odd about a session and loses nothing, such as a repair to come."""
    from harness_durable.world import Remarks

    if isinstance(store, Remarks):
        for remark in await store.remarks(session):
            say(f"warning: {visible(remark)}")
