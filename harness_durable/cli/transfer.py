"""``export`` and ``import``: a session as one file, moved between Worlds without loss, or for other tools."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import IO, TYPE_CHECKING

import click

from harness_durable.cli.common import asynchronous, opened, say, visible, world_options

if TYPE_CHECKING:
    from harness_durable.exports import Material, Redaction
    from harness_durable.world import World

ARCHIVE = "archive"
FORMATS = (ARCHIVE, "jsonl", "otlp", "perfetto", "markdown", "html")


@click.command()
@click.argument("session")
@click.option(
    "--to",
    "form",
    type=click.Choice(FORMATS),
    help="archive: all of it, what `import` reads [default]; the others are for people and other tools",
)
@click.option("--output", "-o", type=click.File("wb", lazy=True), help="file to write [default: stdout]")
@click.option("--no-content", is_flag=True, help="leave out what was said: names, sizes and times stay")
@click.option(
    "--redact",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="regular expression to take out; repeatable",
)
@click.option("--otlp-endpoint", metavar="URL", help="post the traces there, such as http://127.0.0.1:4318")
@click.option(
    "--salvage", is_flag=True, help="of a damaged log, write what can be read; exit code 1 if any is lost"
)
@world_options
@asynchronous
async def export(
    session: str,
    form: str | None,
    output: IO[bytes] | None,
    no_content: bool,
    patterns: tuple[str, ...],
    otlp_endpoint: str | None,
    salvage: bool,
    world: str | None,
    app: str | None,
) -> None:
    """Write SESSION to a file: every record and blob, with a checksum at the end; or, with --to, in a format
    that other tools read. From those, credentials of the usual shapes are taken out in any case.

    With --salvage the file of a damaged log is for reading; `import` refuses it.
    """
    form = form or ("otlp" if otlp_endpoint else ARCHIVE)
    _check(form, no_content or bool(patterns), otlp_endpoint, output is not None, salvage)
    async with opened(world, app) as store:
        if form == ARCHIVE:
            sys.exit(await _archive(store, session, output or _stdout(), salvage))
        from harness_durable.exports import Redaction

        redaction = Redaction(patterns, content=not no_content)
        if otlp_endpoint is not None:
            await _send(store, session, redaction, otlp_endpoint)
            return
        pieces = await _converted(store, session, form, redaction)
        to = output or _stdout()
        for piece in pieces:
            to.write(piece)


def _check(form: str, redacts: bool, endpoint: str | None, to_file: bool, salvage: bool) -> None:
    """What goes together. An archive that lacks something would be imported as if it were the session."""
    if form == ARCHIVE and redacts:
        raise click.UsageError(
            "an archive is the whole session; name a format that is for reading, such as --to jsonl"
        )
    if salvage and form != ARCHIVE:
        raise click.UsageError(f"--salvage writes an archive; leave out --to {form}")
    if endpoint is not None and (form != "otlp" or to_file):
        raise click.UsageError("--otlp-endpoint sends traces; leave out -o, and --to unless it is otlp")


def _stdout() -> IO[bytes]:
    return sys.stdout.buffer


async def _archive(store: World, session: str, output: IO[bytes], salvage: bool) -> int:
    from harness_durable.transfer import export_session, salvage_session

    lost: Sequence[str] = ()
    lines = export_session(store, session)
    if salvage:
        lines, lost = await salvage_session(store, session)
    async for line in lines:
        output.write(line)
    for damage in lost:
        say(f"warning: not in the file: {visible(damage)}")
    return 1 if lost else 0


async def _converted(store: World, session: str, form: str, redaction: Redaction) -> Iterator[bytes]:
    from harness_durable import exports

    await store.session(session)
    if form == "html":
        return await _html(store, session, redaction)
    material = await exports.gather(store, session, redaction)
    match form:
        case "jsonl":
            return exports.jsonl(material)
        case "otlp":
            return exports.otlp(material)
        case "perfetto":
            return exports.perfetto(material)
        case _:
            return _markdown(material)


def _markdown(material: Material) -> Iterator[bytes]:
    from harness_durable.cli.story import tell
    from harness_durable.cli.strip import strip
    from harness_durable.cli.trace import PAGE
    from harness_durable.exports import markdown

    return markdown(material, tell, visible, strip(material.state, PAGE))


async def _html(store: World, session: str, redaction: Redaction) -> Iterator[bytes]:
    from harness_durable.exports import RedactedReader
    from harness_durable.view.html import html_page

    reader = RedactedReader(store, session, redaction)
    name = redaction.name(session)
    page = await html_page(reader, name, content=redaction.content, clean=redaction.bytes)
    return iter((page.encode(),))


async def _send(store: World, session: str, redaction: Redaction, endpoint: str) -> None:
    from harness_durable.exports import gather, otlp
    from harness_durable.exports.sending import place, send

    url = place(endpoint)
    await store.session(session)
    sent = await send(otlp(await gather(store, session, redaction)), url)
    say(f"sent to {visible(endpoint)} in {sent} request{'s' if sent != 1 else ''}")


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

    async with opened(world, app, create=True) as store:
        session = await import_session(store, _chunks(file), name=name, tell=say)
    say(f"session {session} imported")
    click.echo(session)


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    while chunk := file.read(1 << 20):
        yield chunk
