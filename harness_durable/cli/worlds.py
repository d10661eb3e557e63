"""``harness-durable worlds``: which Worlds there are, whether one keeps its promises; migrating, copying.

What surprises: ``check`` is the conformance suite that a World's author runs. It starts and kills processes
on the store, in apps of its own, which it removes, so that it can be run against a store that is in use.
"""

from __future__ import annotations

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING

import click
import msgspec

from harness_durable import registry
from harness_durable.cli.common import asynchronous, json_option, print_json, print_rows, say
from harness_durable.cli.copy import copy
from harness_durable.settings import resolve
from harness_durable.worlds import migrations, open_world, redact

if TYPE_CHECKING:
    from harness_durable.testing.checks import CheckResult


async def run_check(url: str, as_json: bool, slack: float = 1.0) -> int:
    """Print a row for each promise as it is checked; the exit code: 0 if all are kept, else 1.

    Raises ``UsageError`` for a URL that cannot be opened, before anything is checked.
    """
    from harness_durable.testing.worlds import check_world
    from harness_durable.testing.worlds.bench import fresh_app, remove_app

    world = await open_world(url, fresh_app())
    try:
        await remove_app(world)
    finally:
        await world.aclose()
    broken = partly = 0
    async with aclosing(check_world(url, slack=slack)) as results:
        async for result in results:
            broken += not result.ok
            partly += result.ok and not result.tried
            if as_json:
                print_json(msgspec.to_builtins(result))
            else:
                _print_row(result)
    if not as_json:
        kept = "all promises are kept" if not broken else f"promises broken: {broken}"
        rest = f"; kept, but only partly tried: {partly}" if partly else ""
        say(f"{redact(url)}: {kept}{rest}")
    return 1 if broken else 0


def _print_row(result: CheckResult) -> None:
    """A line for people on a terminal, tab-separated fields for programs."""
    mark, word, style = ("✓", "kept", "green") if result.ok else ("✗", "broken", "bold red")
    if result.ok and not result.tried:
        mark, word, style = "!", "kept, partly tried", "yellow"
    if not sys.stdout.isatty():
        print_rows((), [(word, result.id, result.promise, result.detail)])
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"{mark} {word:6} ", style).append(f"{result.id:4}", "bold").append(result.promise))
    console.print(Padding(Text(result.detail, "dim"), (0, 0, 0, 14)))


@click.group()
def worlds() -> None:
    """Where sessions are stored: list the kinds, check or migrate one, copy sessions to another."""


worlds.add_command(copy)


@worlds.command("list")
@json_option
def list_schemes(as_json: bool) -> None:
    """Print the URL schemes that can be used here, ours first."""
    for scheme in registry.known("world"):
        if as_json:
            print_json({"scheme": scheme})
        else:
            click.echo(f"{scheme}:")


@worlds.command()
@click.argument("url")
@json_option
@click.option(
    "--slack",
    type=click.FloatRange(0.1, 1000),
    default=1.0,
    show_default=True,
    help="Multiply every time limit by this, for a machine that is busy.",
)
@asynchronous
async def check(url: str, as_json: bool, slack: float) -> None:
    """Check that the World at URL keeps its promises, W1 to W14. Exits with 1 if it does not."""
    sys.exit(await run_check(url, as_json, slack))


@worlds.command()
@click.argument("url", required=False)
@click.option(
    "--print", "only_print", is_flag=True, help="print the SQL for somebody else to run; connect to nothing"
)
@json_option
@asynchronous
async def migrate(url: str | None, only_print: bool, as_json: bool) -> None:
    """Bring the store at URL (else the one of HARNESS_DURABLE_WORLD) to this version's schema.

    Workers do the same when they start, as many at once as there are. This is for doing it before, or as
    another role than theirs. Only forward: older workers refuse a newer schema, and lose nothing.
    """
    settings = resolve({"world": url}).settings
    shown, script = redact(settings.world), migrations(settings.world)
    if script is not None and only_print:
        click.echo(script, nl=False)
        return
    schema = None if script is None else await _migrated(settings.world, settings.app)
    if as_json:
        print_json({"world": shown, "migrations": script is not None, "schema": schema})
    elif schema is None:
        say(f"{shown}: this kind of World has no migrations; it is made when it is first written to")
    else:
        click.echo(f"{shown}: up to date, schema {schema}")


async def _migrated(url: str, app: str) -> str:
    """To open a World is to migrate it. The schema's name and version, as the World tells them."""
    world = await open_world(url, app)
    try:
        return (await world.describe()).details.get("schema", "")
    finally:
        await world.aclose()
