"""``harness-durable checkout``: a session's files, as they were at some event, in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import click

from harness_durable.cli.common import asynchronous, opened, say, visible, world_options


@click.command()
@click.argument("session")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--at", "seq", type=click.IntRange(1), help="event of the log [default: the last one]")
@world_options
@asynchronous
async def checkout(session: str, folder: Path, seq: int | None, world: str | None, app: str | None) -> None:
    """Write the files of SESSION, as they were at an event of its log, into FOLDER.

    FOLDER must not be there, or be empty; nothing is ever overwritten. The session and its own workspace are
    left alone. What was left out when the files were saved (see `trace`) is not there.
    """
    import anyio

    from harness_durable import changes, workspace
    from harness_durable.journal import Reader

    async with opened(world, app) as store:
        await store.session(session)
        reader = Reader(store, session)
        step = changes.step_at(await changes.steps(reader), session, seq)
        place = await anyio.Path(folder).absolute()
        restored = await workspace.restore(
            step.event.root, Path(place), changes.reading(reader), at_ms=step.time
        )
    for path in restored.redacted:
        say(f"warning: the credentials in {visible(path)} were not saved; put them back")
    say(f"files as of event {step.seq} (step {step.number})")
    click.echo(visible(str(folder)))
