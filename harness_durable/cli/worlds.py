"""``harness-durable worlds``: which Worlds there are, whether one keeps its promises; and copying.

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
from harness_durable.worlds import open_world, redact

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
    """Where sessions are stored: list the kinds, check one, copy sessions to another."""


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
