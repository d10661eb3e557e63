"""``export`` and ``import``: a session as one file, moved between Worlds without loss."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from typing import IO

import click

from harness_durable.cli.common import asynchronous, opened, say, visible, world_options


@click.command()
@click.argument("session")
@click.option("--output", "-o", type=click.File("wb"), default="-", help="file to write [default: stdout]")
@click.option(
    "--salvage", is_flag=True, help="of a damaged log, write what can be read; exit code 1 if any is lost"
)
@world_options
@asynchronous
async def export(session: str, output: IO[bytes], salvage: bool, world: str | None, app: str | None) -> None:
    """Write SESSION to a file: every record and blob, with a checksum at the end.

    With --salvage the file of a damaged log is for reading; `import` refuses it.
    """
    from harness_durable.transfer import export_session, salvage_session

    lost: Sequence[str] = ()
    async with opened(world, app) as (store, _):
        lines = export_session(store, session)
        if salvage:
            lines, lost = await salvage_session(store, session)
        async for line in lines:
            output.write(line)
    for damage in lost:
        say(f"warning: not in the file: {visible(damage)}")
    sys.exit(1 if lost else 0)


@click.command("import")
@click.argument("file", type=click.File("rb"))
@click.option("--as", "name", help="name of the session here [default: as it was]")
@world_options
@asynchronous
async def import_(file: IO[bytes], name: str | None, world: str | None, app: str | None) -> None:
    """Read a session from FILE (- for standard input). Refused if it exists already.

    A session with work to do waits to be woken with `recover`, so that it is not driven in two Worlds.
    `worlds copy --move` takes a session to another World in one step.
    """
    from harness_durable.transfer import import_session

    async with opened(world, app, create=True) as (store, _):
        session = await import_session(store, _chunks(file), name=name, tell=say)
    say(f"session {session} imported")
    click.echo(session)


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := file.read(1 << 20):
        yield chunk
