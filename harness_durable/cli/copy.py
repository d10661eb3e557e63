"""``harness-durable worlds copy``: sessions from one World to another.

What surprises: nothing is remembered between two calls. Whatever cut the first one off, the same command
goes on where it stopped.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from harness_durable.cli.common import asynchronous, json_option, print_json, print_rows, say, visible

if TYPE_CHECKING:
    from harness_durable.copying import Report
    from harness_durable.world import World

Copy = Callable[[str], Awaitable["Report"]]


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.argument("sessions", metavar="[SESSION]...", nargs=-1)
@click.option("--app", help="app whose sessions are copied [default: HARNESS_DURABLE_APP or default]")
@click.option("--to-app", help="app that they belong to at TO [default: the same]")
@click.option("--move", is_flag=True, help="take them away at FROM; those with work go on at TO")
@click.option("--redirect", is_flag=True, help="with --move: also those on their way to a store that is lost")
@click.option("--dry-run", is_flag=True, help="only say what would be done")
@json_option
@asynchronous
async def copy(
    source: str,
    target: str,
    sessions: tuple[str, ...],
    app: str | None,
    to_app: str | None,
    move: bool,
    redirect: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Copy sessions from the World at FROM to the one at TO: all of an app, or those that are named.

    What arrives is read again and compared. A copy waits to be woken with `recover`, so that no message is
    worked on twice; with --move, sessions go on at TO by themselves. Cut off, the same command again goes on.
    Exits with 1 if a session could not be copied; the others are.
    """
    from harness_durable.settings import resolve

    app = resolve({"app": app}).settings.app
    to_app = to_app or app
    _refuse_same(source, app, target, to_app)
    if redirect and not move:
        raise click.UsageError("--redirect is for --move")
    results: Counter[str] = Counter()
    rows: list[Sequence[str]] = []
    async with _copier(source, app, target, to_app, move, redirect, dry_run) as (world, one):
        names = list(dict.fromkeys(sessions)) or await _names(world)
        for number, name in enumerate(names, 1):
            say(f"{number} of {len(names)}: {name}")
            result, fields = await _attempt(one, name)
            results[result] += 1
            if as_json:
                print_json(fields)
            rows.append([str(fields[field]) for field in ("session", "result", "records", "blobs", "note")])
    if not as_json:
        print_rows(("session", "result", "events", "blobs sent", "note"), rows)
    if not names:
        say(f"app {app!r} has no sessions at {_place(source)}")
    else:
        say(", ".join(f"{count} {result}" for result, count in results.items()))
    sys.exit(1 if FAILED & set(results) else 0)


FAILED = {"held", "unreadable", "refused", "failed"}
"""Results of sessions that are not at TO."""


async def _attempt(one: Copy, session: str) -> tuple[str, dict[str, object]]:
    """Copy one; what became of it. One that cannot be copied must not keep the others waiting."""
    from harness_durable import errors

    try:
        report = await one(session)
        return report.result, msgspec.to_builtins(report)
    except errors.StorageUnavailable:
        say("cut off; the same command again goes on here")
        raise
    except (errors.SessionBusy, errors.StorageError, errors.UsageError) as error:
        say(f"error: {visible(str(error))}")
        fields = {"session": session, "result": _word(error), "records": 0, "blobs": 0, "sent": 0}
        return _word(error), {**fields, "note": str(error)}


def _word(error: Exception) -> str:
    from harness_durable import errors

    if isinstance(error, errors.SessionBusy | errors.WriterFenced):
        return "held"
    if isinstance(error, errors.DamagedLog | errors.LogTooNew):
        return "unreadable"
    return "refused" if isinstance(error, errors.UsageError) else "failed"


@asynccontextmanager
async def _copier(
    source: str, app: str, target: str, to_app: str, move: bool, redirect: bool, dry: bool
) -> AsyncGenerator[tuple[World, Copy]]:
    """The World at FROM, and what copies one session from there."""
    from harness_durable.copying import copy_session
    from harness_durable.moving import Mover
    from harness_durable.worlds import open_world

    async with AsyncExitStack() as stack:
        old = await open_world(source, app, create=False)
        stack.push_async_callback(old.aclose)
        new = await open_world(target, to_app)
        stack.push_async_callback(new.aclose)
        if not move:
            yield old, lambda session: copy_session(old, new, session, say, dry=dry)
            return
        to = f"app {to_app!r} of {_place(target)}"
        mover = await stack.enter_async_context(Mover.open(old, new, to, say, redirect=redirect))
        yield old, mover.would_move if dry else mover.move


def _refuse_same(source: str, app: str, target: str, to_app: str) -> None:
    if app == to_app and _place(source) == _place(target):
        raise click.UsageError("FROM and TO are the same store, and the same app; name another with --to-app")


def _place(url: str) -> str:
    """The URL for people, and the same however a path is written."""
    from harness_durable.worlds import redact

    scheme, colon, rest = url.partition(":")
    if rest.startswith("//") or not colon:
        return redact(url)
    return f"{scheme}:{Path(rest).expanduser().resolve()}"


async def _names(world: World) -> list[str]:
    names: list[str] = []
    while page := await world.sessions(names[-1] if names else ""):
        names += [row.session for row in page]
    return names
