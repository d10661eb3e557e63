"""``harness-durable recover``: continue what was cut off, or say what would be done, per call, and why."""

from __future__ import annotations

import getpass

import click

from harness_durable import recovery
from harness_durable.cli.common import (
    asynchronous,
    json_option,
    opened,
    print_json,
    print_rows,
    say,
    world_options,
)
from harness_durable.recovery import Plan
from harness_durable.world import World


@click.command()
@click.argument("session", required=False)
@click.option("--dry-run", is_flag=True, help="only say what would be done")
@click.option("--take-over", is_flag=True, help="also if a live worker holds the session")
@click.option("--tools", "module", help="Python file or module with the session's @tool functions")
@world_options
@json_option
@asynchronous
async def recover(
    session: str | None,
    dry_run: bool,
    take_over: bool,
    module: str | None,
    world: str | None,
    app: str | None,
    as_json: bool,
) -> None:
    """Continue SESSION, or every session that has work and no live worker."""
    async with opened(world, app) as (store, _):
        names = [session] if session else await _stranded(store)
        if dry_run:
            for name in names:
                _print_plan(name, await _plan(store, name, module), as_json)
            return
    if not names:
        say("nothing to recover")
    for name in names:
        await _continue(name, module, world, app, take_over, as_json)


async def _stranded(store: World) -> list[str]:
    found: list[str] = []
    after = ""
    while page := await store.sessions(after):
        found.extend(row.session for row in page if row.due is not None and not row.owner_alive)
        after = page[-1].session
    return found


async def _plan(store: World, session: str, module: str | None) -> Plan:
    """What the next worker on this host would do. Claims nothing, writes nothing."""
    from harness_durable.cli.tools import load_tools
    from harness_durable.journal import Reader
    from harness_durable.runtime.driver import facts_for
    from harness_durable.runtime.equipment import Equipment
    from harness_durable.settings import resolve

    state = await Reader(store, session).load()
    equipment = Equipment(resolve().settings, tuple(load_tools(module)))
    try:
        return recovery.plan(state, await facts_for(state, equipment))
    finally:
        await equipment.aclose()


def _print_plan(session: str, plan: Plan, as_json: bool) -> None:
    calls = [{"call": c.call, "tool": c.name, "action": c.action, "why": c.why} for c in plan.calls]
    if as_json:
        print_json({"session": session, "rung": plan.rung, "reason": plan.reason, "calls": calls})
        return
    click.echo(f"{session}: {plan.rung} ({plan.reason})")
    if plan.calls:
        rows = [(c.call, c.name, c.action, c.why) for c in plan.calls]
        print_rows(("call", "tool", "what happens", "why"), rows)


async def _continue(
    session: str, module: str | None, world: str | None, app: str | None, take_over: bool, as_json: bool
) -> None:
    from harness_durable.cli.run import finish, show_turn
    from harness_durable.cli.tools import load_tools
    from harness_durable.journal import Inbox
    from harness_durable.runtime.api import Durable

    async with Durable.open(world, app=app) as durable:
        inbox = await Inbox.open(durable.world, session)
        if take_over:
            claim = await durable.world.claim_session(durable.worker.owner, session, take_over=True)
            await durable.world.release(session, claim.epoch)
        else:
            await durable.refuse_if_held(session)
        await inbox.resume(getpass.getuser())
        state = await inbox.refresh()
        waiting = state.turn.id if state.turn else (state.queued[0].id if state.queued else "")
        if not waiting:
            say(f"session {session}: nothing to recover, it is {state.status}")
            return
        await durable.agent(tools=load_tools(module)).session(session)
        result = await show_turn(durable, session, waiting, quiet=as_json)
    finish(session, result, as_json)
