"""``send``, ``steer``, ``stop``, ``answer``: what anyone may say to a session, whoever drives it."""

from __future__ import annotations

import getpass
import sys
import uuid
from typing import TYPE_CHECKING

import click

from harness_durable.cli.common import (
    asynchronous,
    json_option,
    opened,
    print_json,
    say,
    world_options,
)
from harness_durable.errors import BadInput, StorageUnavailable

if TYPE_CHECKING:
    from harness_durable.journal import Inbox
    from harness_durable.journal.inbox import WhenBusy
    from harness_durable.world import World

TAKEN_SECONDS = 1.5
"""How long a message may lie there before its sender is told that nobody takes it."""


def read_text(text: str) -> str:
    """The argument, or standard input for ``-``. Raises ``BadInput`` if there is none."""
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace")
    if not text.strip():
        raise BadInput("the message is empty; say what the agent should do")
    return text


@click.command()
@click.argument("session")
@click.argument("text")
@world_options
@click.option("--message-id", help="the same id again is the same message")
@click.option(
    "--when-busy",
    type=click.Choice(["queue", "steer", "reject"]),
    default="queue",
    show_default=True,
    help="what to do while a turn is running",
)
@click.option("--at", help="no turn before this time: 18:30, 2026-12-24T18:30")
@click.option("--in", "delay", help="no turn before this long from now: 90s, 10m, 2h, 1d")
@click.option("--follow", "-f", is_flag=True, help="wait for its turn, show it, print its answer")
@json_option
@asynchronous
async def send(
    session: str,
    text: str,
    world: str | None,
    app: str | None,
    message_id: str | None,
    when_busy: WhenBusy,
    at: str | None,
    delay: str | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Send TEXT (- for standard input) to SESSION. When this returns, the message is durable.

    Whoever drives the session works on it, a `worker` or a program; this command never does, not even with
    --follow. With --at or --in, others that are sent meanwhile come first.
    """
    from harness_durable.cli.times import shown, when
    from harness_durable.runtime.sessions import in_ms

    message = f"m-{uuid.uuid4().hex[:10]}" if message_id is None else message_id
    not_before = in_ms(when(at, delay))
    async with opened(world, app) as store:
        inbox = await _inbox(store, session)
        since = inbox.state.seq
        fresh = await inbox.accept(message, read_text(text), when_busy, not_before=not_before)
        wakes = inbox.state.messages[message].not_before
        told: dict[str, object] = {"wakes": wakes} if wakes else {}
        if not follow:
            report(as_json, session=session, message=message, accepted=fresh, **told)
        if wakes:
            say(f"not before {shown(wakes)}")
        await _say_who_takes_it(store, session, fresh, wakes)
        turn = inbox.state.messages[message].turn or message
    if follow:
        await _follow(session, turn, world, app, since, as_json)


async def _follow(
    session: str, turn: str, world: str | None, app: str | None, since: int, as_json: bool
) -> None:
    """Look on until the turn is settled; the exit code is that of ``run``."""
    from harness_durable.cli.run import finish, show_turn
    from harness_durable.runtime.api import Durable

    async with Durable.open(world, drive=False, app=app) as durable:
        result = await show_turn(durable, session, turn, since=since, quiet=as_json)
    sys.exit(finish(session, result, as_json))


@click.command()
@click.argument("session")
@click.argument("text")
@world_options
@json_option
@asynchronous
async def steer(session: str, text: str, world: str | None, app: str | None, as_json: bool) -> None:
    """Say TEXT to the running turn of SESSION; if none is running, it becomes a message."""
    message = f"m-{uuid.uuid4().hex[:10]}"
    async with opened(world, app) as store:
        inbox = await _inbox(store, session)
        fresh = await inbox.accept(message, read_text(text), "steer")
        report(as_json, session=session, message=message, accepted=fresh)
        await _say_who_takes_it(store, session, fresh)


@click.command()
@click.argument("session")
@click.option("--message", help="take this message back, if its turn has not started")
@world_options
@json_option
@asynchronous
async def stop(session: str, message: str | None, world: str | None, app: str | None, as_json: bool) -> None:
    """Ask for the running turn of SESSION to be stopped, or for a waiting message to be taken back."""
    async with opened(world, app) as store:
        inbox = await _inbox(store, session)
        if message is not None:
            taken = await inbox.withdraw(message, getpass.getuser())
            if not taken and not as_json:
                say(f"message {message!r} does not wait; without --message, its running turn is stopped")
            report(as_json, session=session, message=message, withdrawn=taken)
            return
        asked = await inbox.request_stop(getpass.getuser())
    if not asked and not as_json:
        say(f"session {session!r} has no running turn")
    report(as_json, session=session, stopping=asked)


@click.command()
@click.argument("session")
@click.argument("request")
@click.option("--allow/--deny", default=None, help="what to answer")
@click.option("--reason", default="", help="told to the model")
@world_options
@json_option
@asynchronous
async def answer(
    session: str,
    request: str,
    allow: bool | None,
    reason: str,
    world: str | None,
    app: str | None,
    as_json: bool,
) -> None:
    """Answer the permission REQUEST of SESSION."""
    if allow is None:
        raise BadInput("say --allow or --deny")
    async with opened(world, app) as store:
        inbox = await _inbox(store, session)
        await inbox.answer(request, allow=allow, by=getpass.getuser(), reason=reason)
    report(as_json, session=session, request=request, allow=allow)


async def _inbox(store: World, session: str) -> Inbox:
    from harness_durable.journal import Inbox

    return await Inbox.open(store, session)


async def _say_who_takes_it(store: World, session: str, fresh: bool, wakes: int = 0) -> None:
    """A remark for people; the answer is on stdout. A worker that is up takes it within a moment."""
    from harness_durable import clock

    if not fresh:
        say("this message id is known already; the first message counts")
        return
    give_up = clock.monotonic() + TAKEN_SECONDS
    while not wakes and not await _taken(store, session):
        if clock.monotonic() > give_up:
            say(f"nobody drives {session} now; a `harness-durable worker` or `recover {session}` takes it up")
            return
        await clock.sleep(0.1)


async def _taken(store: World, session: str) -> bool:
    """False if that cannot be seen: the message is durable all the same, and to fail would be untrue."""
    try:
        row = await store.session(session)
    except StorageUnavailable:
        return False
    return row.owner_alive or row.due is None


def report(as_json: bool, **fields: object) -> None:
    """The answer of a command that only says something to a session."""
    if as_json:
        print_json(fields)
    else:
        click.echo(" ".join(f"{name}={value}" for name, value in fields.items()))
