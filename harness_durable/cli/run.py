"""``harness-durable run``: send a message and drive the session here, showing what happens."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from harness_durable.cli.common import (
    asynchronous,
    importing,
    json_option,
    pairs,
    print_json,
    say,
    visible,
    world_options,
)
from harness_durable.cli.send import read_text, report
from harness_durable.errors import BadSetting, NotFound

if TYPE_CHECKING:
    from harness_durable.runtime.api import Durable
    from harness_durable.runtime.sessions import TurnResult
    from harness_durable.state import Session

EXIT = {"completed": 0, "failed": 1, "cancelled": 1, "needs_input": 3}


@click.command()
@click.argument("text")
@click.option("--session", "-s", help="session to use; created if it is not there [default: a new one]")
@click.option("--message-id", help="the same id again is the same message")
@click.option("--adapter", help="harness for a new session")
@click.option("--sandbox", help="where a new session's harness runs")
@click.option(
    "--sandbox-option",
    "sandbox_options",
    metavar="NAME=VALUE",
    multiple=True,
    help="an option of a new session's sandbox, such as image=NAME or allow=pypi.org; may be repeated",
)
@click.option("--model", help="model for a new session")
@click.option(
    "--workspace",
    type=click.Path(file_okay=False),
    default=".",
    show_default=True,
    help="folder that a new session works on",
)
@click.option(
    "--files",
    type=click.Choice(("durable", "kept", "scratch")),
    help="a new session's files: in the log, as they are on this host, or an empty folder of its own",
)
@click.option("--tools", "module", help="Python file or module whose @tool functions the agent gets")
@click.option("--ask", is_flag=True, help="in a new session ask before a call that is not safe; see `answer`")
@click.option("--detach", is_flag=True, help="only send; a `worker` drives it, and needs the harness")
@click.option("--quiet", "-q", is_flag=True, help="only the final text")
@world_options
@json_option
@asynchronous
async def run(
    text: str,
    session: str | None,
    message_id: str | None,
    module: str | None,
    ask: bool,
    detach: bool,
    quiet: bool,
    as_json: bool,
    workspace: str,
    sandbox_options: tuple[str, ...],
    **flags: Any,
) -> None:
    """Send TEXT (- for standard input) and drive the session until the turn is settled.

    Killed in between, run it again with the same --session and --message-id, or use `recover`.
    """
    with importing():
        import anyio

        from harness_durable.cli.tools import load_tools
        from harness_durable.runtime.api import Durable

    message, tools = read_text(text), load_tools(module)
    agent_flags = {name: flags.pop(name) for name in ("adapter", "sandbox", "model", "files")}
    async with Durable.open(**flags, drive=not detach) as durable:
        if not detach:
            durable.worker.equipment.check_provider()
        mode = "ask" if ask else "default"
        agent = durable.agent(
            **agent_flags,
            sandbox_options=pairs(sandbox_options),
            workspace=workspace,
            tools=tools,
            permission_mode=mode,
        )
        since = await _head(durable, session)
        if not since and agent.works_in_a_folder and not await anyio.Path(workspace).is_dir():
            raise BadSetting(f"the folder {workspace!r} does not exist; make it, or name another one")
        opened = await agent.session(session)
        begun = opened.copy() if since and not quiet else None
        if detach:
            turn = await opened.send(message, message_id=message_id)
            report(as_json, session=opened.id, message=turn.id)
            return
        await durable.refuse_if_held(opened.id)
        say(f"session {opened.id}" + (f", which has {since} events already" if since else ""))
        if message_id in (await opened.state()).messages:
            say("this message id is known already; the first message counts, and this is its turn")
        turn = await opened.send(message, message_id=message_id)
        result = await show_turn(
            durable, opened.id, turn.id, since=since, begun=begun, quiet=quiet or as_json
        )
        code = finish(opened.id, result, as_json)
        await see_out(durable, opened.id, quiet=quiet or as_json)
    sys.exit(code)


async def _head(durable: Durable, session: str | None) -> int:
    """How many events there are; what is older than this command is not shown again."""
    try:
        return 0 if session is None else (await durable.world.session(session)).head
    except NotFound:
        return 0


async def show_turn(
    durable: Durable, session: str, turn: str, *, since: int, begun: Session | None = None, quiet: bool
) -> TurnResult:
    """Print the story of a turn to stderr while it happens, from the event after ``since``; its result.
    ``begun`` is the session's state then, if it is known: it is taken on."""
    from harness_durable.cli.live import follow_turn

    if not quiet:
        await follow_turn(durable, session, turn, since, begun)
    return await durable.turn(session, turn).result()


async def see_out(durable: Durable, session: str, *, quiet: bool) -> None:
    """Return when nothing is driven here any more. Messages that were sent meanwhile are ours, too: to leave
    in the middle of their turns would cut their calls off."""
    while (turn := await durable.next_turn(session)) is not None:
        say(f"session {session} goes on with {visible(turn)}, which was sent meanwhile; Ctrl-C hands it back")
        await show_turn(durable, session, turn, since=await _head(durable, session), quiet=quiet)
    await durable.until_idle(session)


def finish(session: str, result: TurnResult, as_json: bool) -> int:
    """Print the answer on stdout; the exit code."""
    if as_json:
        print_json(
            {
                "session": session,
                "turn": result.turn,
                "status": result.status,
                "text": result.text,
                "reason": result.reason,
                "lives": result.lives,
                "unknown": list(result.unknown),
            }
        )
    elif result.status == "completed":
        click.echo(visible(result.text))
    else:
        say(f"turn {result.status}: {visible(result.reason)}")
        if result.status == "needs_input":
            say(f"look with `harness-durable trace {session}`; `harness-durable recover {session}` goes on")
        elif result.status == "failed":
            say(f"see `harness-durable trace {session}`; another message to the session tries again")
    return EXIT.get(result.status, 1)
