"""``export`` and ``import``: a session as one file, moved between Worlds without loss."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import IO

import click

from harness_durable.cli.common import asynchronous, opened, say, world_options


@click.command()
@click.argument("session")
@click.option("--output", "-o", type=click.File("wb"), default="-", help="file to write [default: stdout]")
@world_options
@asynchronous
async def export(session: str, output: IO[bytes], world: str | None, app: str | None) -> None:
    """Write SESSION to a file: every record and blob, with a checksum at the end."""
    from harness_durable.transfer import export_session

    async with opened(world, app) as (store, _):
        async for line in export_session(store, session):
            output.write(line)


@click.command("import")
@click.argument("file", type=click.File("rb"))
@world_options
@asynchronous
async def import_(file: IO[bytes], world: str | None, app: str | None) -> None:
    """Read a session from FILE (- for standard input). Refused if it exists already."""
    from harness_durable.transfer import import_session

    async with opened(world, app) as (store, _):
        session = await import_session(store, _chunks(file))
    say(f"session {session} imported")
    click.echo(session)


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := file.read(1 << 20):
        yield chunk
