"""``send``, ``steer``, ``stop``, ``answer``: what anyone may say to a session, whoever drives it."""

from __future__ import annotations

import getpass
import sys
import uuid
from typing import TYPE_CHECKING

import click

from harness_durable.cli.common import asynchronous, json_option, opened, print_json, say, world_options
from harness_durable.errors import BadInput

if TYPE_CHECKING:
    from harness_durable.journal import Inbox
    from harness_durable.journal.inbox import WhenBusy
    from harness_durable.world import World


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
@click.option("--when-busy", type=click.Choice(["queue", "steer", "reject"]), default="queue")
@json_option
@asynchronous
async def send(
    session: str,
    text: str,
    world: str | None,
    app: str | None,
    message_id: str | None,
    when_busy: WhenBusy,
    as_json: bool,
) -> None:
    """Send TEXT (- for standard input) to SESSION. When this returns, the message is durable."""
    message = message_id or f"m-{uuid.uuid4().hex[:10]}"
    async with opened(world, app) as (store, _):
        inbox = await _inbox(store, session)
        fresh = await inbox.accept(message, read_text(text), when_busy)
        nobody = await _undriven(store, session)
    _report(as_json, session=session, message=message, accepted=fresh)
    _who_takes_it(session, fresh, nobody)


@click.command()
@click.argument("session")
@click.argument("text")
@world_options
@json_option
@asynchronous
async def steer(session: str, text: str, world: str | None, app: str | None, as_json: bool) -> None:
    """Say TEXT to the running turn of SESSION; if none is running, it becomes a message."""
    message = f"m-{uuid.uuid4().hex[:10]}"
    async with opened(world, app) as (store, _):
        inbox = await _inbox(store, session)
        fresh = await inbox.accept(message, read_text(text), "steer")
        nobody = await _undriven(store, session)
    _report(as_json, session=session, message=message, accepted=fresh)
    _who_takes_it(session, fresh, nobody)


@click.command()
@click.argument("session")
@world_options
@json_option
@asynchronous
async def stop(session: str, world: str | None, app: str | None, as_json: bool) -> None:
    """Ask for the running turn of SESSION to be stopped."""
    async with opened(world, app) as (store, _):
        asked = await (await _inbox(store, session)).request_stop(getpass.getuser())
    if not asked and not as_json:
        say(f"session {session!r} has no running turn")
    _report(as_json, session=session, stopping=asked)


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
    async with opened(world, app) as (store, _):
        inbox = await _inbox(store, session)
        await inbox.answer(request, allow=allow, by=getpass.getuser(), reason=reason)
    _report(as_json, session=session, request=request, allow=allow)


async def _inbox(store: World, session: str) -> Inbox:
    from harness_durable.journal import Inbox

    return await Inbox.open(store, session)


async def _undriven(store: World, session: str) -> bool:
    return not (await store.session(session)).owner_alive


def _who_takes_it(session: str, fresh: bool, nobody: bool) -> None:
    """A remark for people; the answer is on stdout."""
    if not fresh:
        say("this message id is known already; the first message counts")
    elif nobody:
        say(f"nobody drives {session} now; a `harness-durable worker` or `recover {session}` takes it up")


def _report(as_json: bool, **fields: object) -> None:
    if as_json:
        print_json(fields)
    else:
        click.echo(" ".join(f"{name}={value}" for name, value in fields.items()))
