"""``harness-durable recover``: continue what was cut off, or say what would be done, per call, and why."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from harness_durable import clock, recovery
from harness_durable.cli.common import (
    asynchronous,
    importing,
    json_option,
    opened,
    print_json,
    print_rows,
    say,
    visible,
    warn_of_damage,
    world_options,
)
from harness_durable.cli.story import given, named
from harness_durable.cli.times import shown
from harness_durable.errors import HarnessDurableError, SessionBusy
from harness_durable.journal import Reader
from harness_durable.runtime.equipment import Equipment
from harness_durable.tools import Tool
from harness_durable.world import World


@click.command()
@click.argument("session", required=False)
@click.option("--dry-run", is_flag=True, help="only say what would be done")
@click.option("--take-over", is_flag=True, help="also if a live worker holds the session")
@click.option(
    "--workspace",
    type=click.Choice(("found", "rollback")),
    default="found",
    show_default=True,
    help="durable files that changed unrecorded: as they are found, or back to the last recorded step",
)
@click.option("--tools", "module", help="Python file or module with the session's @tool functions")
@world_options
@json_option
@asynchronous
async def recover(
    session: str | None,
    dry_run: bool,
    take_over: bool,
    module: str | None,
    workspace: str,
    world: str | None,
    app: str | None,
    as_json: bool,
) -> None:
    """Continue SESSION, or every session that has work and no live worker.

    With --workspace rollback, what is found in the workspace instead is kept in the log; see `checkout`.
    """
    from harness_durable.cli.tools import load_tools
    from harness_durable.settings import check_run_dir, resolve

    tools = load_tools(module)
    settings = resolve({"world": world, "app": app}).settings
    async with opened(world, app) as store:
        names = [session] if session else await _stranded(store)
        codes = [0]
        if names:
            check_run_dir(settings.run_dir)
        if dry_run:
            for name in names:
                equipment = Equipment(settings, tuple(tools))
                codes.append(await _print_plan(store, name, equipment, as_json, take_over))
    if not names:
        say("nothing to recover")
    if not dry_run:
        how = _How(tools, take_over, workspace == "rollback", as_json)
        codes = [await _attempt(name, world, app, how) for name in names]
    sys.exit(max(codes, default=0))


async def _stranded(store: World) -> list[str]:
    found: list[str] = []
    after = ""
    while page := await store.sessions(after):
        found.extend(row.session for row in page if row.due is not None and not row.owner_alive)
        after = page[-1].session
    return found


async def _print_plan(
    store: World, session: str, equipment: Equipment, as_json: bool, take_over: bool
) -> int:
    """What the next worker on this host would do, call by call; the exit code. Claims nothing, writes
    nothing. A live holder is told first: without a take-over nothing is done before it is gone."""
    row = await store.session(session)
    held = row.owner is not None and row.owner_alive and not take_over
    if held:
        say(f"error: {SessionBusy(session, str(row.owner), None)}; this is the plan for when it is gone:")
    reader = Reader(store, session)
    state = await reader.load()
    await warn_of_damage(reader, state)
    try:
        plan = recovery.plan(state, await equipment.facts(state, rival=take_over))
    finally:
        await equipment.aclose()
    if as_json:
        calls = [{"call": c.call, "tool": c.name, "action": c.action, "why": c.why} for c in plan.calls]
        told = {"holder": str(row.owner)} if held else {}
        print_json({"session": session, "rung": plan.rung, "reason": plan.reason, "calls": calls, **told})
        return SessionBusy.exit_code if held else 0
    click.echo(f"{session}: {plan.rung} ({visible(plan.reason)})")
    pairs = [(state.tool_calls[call.call], call) for call in plan.calls]
    rows = [(named(tool), given(tool), call.action, call.why) for tool, call in pairs]
    if rows:
        print_rows(("tool", "input", "what happens", "why"), rows)
    return SessionBusy.exit_code if held else 0


class _How(NamedTuple):
    tools: Sequence[Tool]
    take_over: bool
    roll_back: bool
    as_json: bool


async def _attempt(session: str, world: str | None, app: str | None, how: _How) -> int:
    """Continue one session; the exit code. What goes wrong with one must not keep the others waiting."""
    try:
        return await _continue(session, world, app, how)
    except HarnessDurableError as error:
        whose = "" if repr(session) in str(error) else f"session {session}: "
        say(f"error: {whose}{visible(str(error))}")
        return error.exit_code


def _until(due: int | None) -> str:
    return f" until {shown(due)}" if due else ""


async def _continue(session: str, world: str | None, app: str | None, how: _How) -> int:
    from harness_durable.cli import rollback

    with importing():
        from harness_durable.cli.run import finish, see_out, show_turn
        from harness_durable.journal import Inbox
        from harness_durable.runtime.api import Durable

    async with Durable.open(world, app=app) as durable:
        inbox = await Inbox.open(durable.world, session)
        since = inbox.state.seq
        await warn_of_damage(inbox.reader, inbox.state)
        if how.take_over:
            claim = await durable.world.claim_session(durable.worker.owner, session, take_over=True)
            await durable.world.release(session, claim.epoch)
        else:
            await durable.refuse_if_held(session)
        await inbox.resume(getpass.getuser())
        state = await inbox.refresh()
        message = state.next_message(clock.now_ms())
        waiting = state.turn.id if state.turn else (message.id if message else "")
        hopeless = rollback.hopeless(state) if how.roll_back else ""
        if hopeless:
            say(f"session {session}: {hopeless}")
        if not waiting:
            say(f"session {session}: nothing to recover, it is {state.status}{_until(state.due)}")
            return 0
        durable.worker.equipment.check_provider()
        say(f"session {session}, which has {since} events already")
        roll_back = how.roll_back and not hopeless
        await durable.agent(tools=how.tools).session(session, roll_back=roll_back)
        result = await show_turn(durable, session, waiting, since=since, quiet=how.as_json)
        if roll_back:
            say(f"session {session}: {await rollback.told(inbox.reader, state)}")
        code = finish(session, result, how.as_json)
        await see_out(durable, session, quiet=how.as_json)
    return code
