"""``harness-durable worlds``: which Worlds there are, and whether one keeps its promises here.

What surprises: ``check`` is the conformance suite that a World's author runs. It starts and kills processes
on the store, in apps of its own, so that it can be run against a store that is in use.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio
import click
import msgspec

from harness_durable import registry
from harness_durable.worlds import open_world, redact

if TYPE_CHECKING:
    from harness_durable.testing.checks import CheckResult


async def run_check(url: str, as_json: bool, slack: float = 1.0) -> int:
    """Print a row for each promise as it is checked; the exit code: 0 if all are kept, else 1.

    Raises ``UsageError`` for a URL that cannot be opened, before anything is checked.
    """
    from harness_durable.testing.worlds import check_world

    await (await open_world(url)).aclose()
    broken = 0
    async with aclosing(check_world(url, slack=slack)) as results:
        async for result in results:
            broken += not result.ok
            if as_json:
                click.echo(msgspec.json.encode(result))
            else:
                _print_row(result)
    if not as_json:
        kept = "all promises are kept" if not broken else f"promises broken: {broken}"
        click.echo(f"{redact(url)}: {kept}", err=True)
    return 1 if broken else 0


def _print_row(result: CheckResult) -> None:
    """A line for people on a terminal, tab-separated fields for programs."""
    mark, word = ("✓", "kept") if result.ok else ("✗", "broken")
    if not click.get_text_stream("stdout").isatty():
        click.echo("\t".join((word, result.id, result.promise, result.detail)))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console, style = Console(highlight=False), "green" if result.ok else "bold red"
    console.print(Text(f"{mark} {word:6} ", style).append(f"{result.id:4}", "bold").append(result.promise))
    console.print(Padding(Text(result.detail, "dim"), (0, 0, 0, 14)))


@click.group()
def worlds() -> None:
    """Where sessions are stored: list the kinds, check one."""


@worlds.command("list")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
def list_schemes(as_json: bool) -> None:
    """Print the URL schemes that can be used here, ours first."""
    for scheme in registry.known("world"):
        click.echo(msgspec.json.encode({"scheme": scheme}) if as_json else f"{scheme}:")


@worlds.command()
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@click.option(
    "--slack",
    type=click.FloatRange(0.1, 1000),
    default=1.0,
    show_default=True,
    help="Multiply every time limit by this, for a machine that is busy.",
)
@click.pass_context
def check(ctx: click.Context, url: str, as_json: bool, slack: float) -> None:
    """Check that the World at URL keeps its promises, W1 to W14. Exits with 1 if it does not."""
    ctx.exit(anyio.run(run_check, url, as_json, slack))
