"""``harness-durable diff``: what a session changed in its files, step by step or between two events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness_durable.cli.common import (
    asynchronous,
    json_option,
    opened,
    print_json,
    say,
    visible,
    world_options,
)

if TYPE_CHECKING:
    from harness_durable.changes import Difference, Step

SIGNS = {"added": "A", "modified": "M", "removed": "D"}


@click.command()
@click.argument("session")
@click.option("--step", type=click.IntRange(1), help="only this step; `trace` shows their numbers")
@click.option(
    "--from", "begin", type=click.IntRange(0), help="event before the changes [default: the first step]"
)
@click.option("--to", "end", type=click.IntRange(1), help="event after the changes [default: the last step]")
@click.option("--stat", is_flag=True, help="only which files")
@world_options
@json_option
@asynchronous
async def diff(
    session: str,
    step: int | None,
    begin: int | None,
    end: int | None,
    stat: bool,
    world: str | None,
    app: str | None,
    as_json: bool,
) -> None:
    """Show what changed in the files of SESSION, as its log has them.

    Without options: since the first step, which is how the files were when it began. Paths are as in the log,
    with \\xNN for what cannot be printed.
    """
    from harness_durable import changes
    from harness_durable.journal import Reader

    if step is not None and (begin is not None or end is not None):
        raise click.UsageError("--step is one step; name --from and --to without it")
    async with opened(world, app) as store:
        await store.session(session)
        reader = Reader(store, session)
        found = await changes.steps(reader)
        last = changes.step_at(found, session, end)
        if step is not None:
            last = changes.numbered(found, session, step)
            old = last.event.parent
        else:
            old = _root_before(found, session, begin)
        if not as_json:
            say(_head(last))
        count = 0
        async for difference in changes.differences(reader, old, last.event.root):
            count += 1
            if as_json:
                print_json(_fields(difference, stat))
            else:
                _print(difference, stat)
        if not count and not as_json:
            say("nothing changed")


def _root_before(found: list[Step], session: str, begin: int | None) -> str:
    """Before the first step there were no files that the log knows."""
    from harness_durable.changes import step_at

    if begin is not None and found and begin < found[0].seq:
        return ""
    return step_at(found, session, found[0].seq if begin is None and found else begin).event.root


def _head(last: Step) -> str:
    return f"files as of event {last.seq} (step {last.number})"


def _fields(difference: Difference, stat: bool) -> dict[str, str]:
    change = difference.change
    told = {
        "op": change.op,
        "path": change.path,
        "old": change.old,
        "new": change.new,
        "note": difference.note,
    }
    return told if stat else {**told, "diff": difference.text}


def _print(difference: Difference, stat: bool) -> None:
    """Nothing of it may steer a terminal: not a name, and not a line of a file."""
    change = difference.change
    note = f" ({visible(difference.note)})" if difference.note else ""
    click.echo(click.style(f"{SIGNS[change.op]} {shown(change.path)}{note}", bold=True))
    if stat:
        return
    for line in difference.text.split("\n")[:-1]:
        colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
        click.echo(click.style(visible(line.rstrip("\r")), fg=colour))


def shown(path: str) -> str:
    """A path of the log for a terminal: spaces as they are, all else that is odd stays escaped."""
    return visible(path.replace("\\x20", " "))
