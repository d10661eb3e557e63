"""``harness-durable fork``: another session with the same past, and its own files and future."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from harness_durable.cli.common import (
    asynchronous,
    json_option,
    opened,
    print_json,
    say,
    visible,
    world_options,
)


@click.command()
@click.argument("session")
@click.option(
    "--at", type=click.IntRange(1), help="event of the log [default: the last one at which no turn was open]"
)
@click.option("--as", "name", help="name of the fork [default: SESSION-fork-...]")
@click.option(
    "--files",
    type=click.Path(path_type=Path),
    help="folder of the fork [default: one of its name beside the workspace of SESSION]",
)
@world_options
@json_option
@asynchronous
async def fork(
    session: str,
    at: int | None,
    name: str | None,
    files: Path | None,
    world: str | None,
    app: str | None,
    as_json: bool,
) -> None:
    """Fork SESSION after an event of its log; prints the name of the new session.

    The fork has the same past, and a workspace of its own: the files as they were then, which appear with
    its first message. SESSION is only read, and may be running. A turn that was open there is cancelled in
    the fork, and messages that were waiting are taken back.
    """
    from harness_durable.runtime.equipment import Equipment
    from harness_durable.runtime.forking import fork
    from harness_durable.settings import resolve

    settings = resolve({"world": world, "app": app}).settings
    async with opened(world, app) as store:
        forked = await fork(store, Equipment(settings), session, at=at, name=name, files=files)
    if as_json:
        print_json(msgspec.to_builtins(forked))
        return
    say(
        f"forked {session} at event {forked.at}; works in {visible(forked.workspace)}; {forked.blobs} blobs "
        f"copied ({forked.bytes / 1e6:.1f} MB)"
    )
    click.echo(forked.session)
