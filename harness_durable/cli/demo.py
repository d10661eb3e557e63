"""``harness-durable demo``: a real harness is killed in the middle of a deployment, and comes back."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio
import click
import msgspec

from harness_durable import crashpoints
from harness_durable.cli.common import print_json, say, visible
from harness_durable.demo.stage import Stage
from harness_durable.demo.story import SESSION, TASK, Outcome, judge, play
from harness_durable.worlds import redact


@click.command()
@click.option("--adapter", default="claude-code", show_default=True)
@click.option("--sandbox", default="local", show_default=True)
@click.option(
    "--crash-at", type=click.Choice(crashpoints.POINTS), default="tool.effect_done", show_default=True
)
@click.option("--death", type=click.Choice(crashpoints.DEATHS), default="harness", show_default=True)
@click.option("--world", help="World URL [default: SQLite in the demo's own folder]")
@click.option("--keep", type=click.Path(file_okay=False), help="keep everything in this new folder")
@click.option("--json", "as_json", is_flag=True, help="a last line for machines")
def demo(
    adapter: str,
    sandbox: str,
    crash_at: str,
    death: str,
    world: str | None,
    keep: str | None,
    as_json: bool,
) -> None:
    """A death and a return in one minute: no key, no network, a real harness, a scripted model."""
    with tempfile.TemporaryDirectory(prefix="hd-demo-") as scratch:
        stage = Stage(Path(keep or scratch).resolve() / "demo")
        if stage.root.exists():
            raise click.UsageError(f"{stage.root} exists already; name a new folder")
        stage.set_up()
        url = world or f"sqlite:{stage.root / 'world.db'}"
        outcome = _act(stage, url, adapter, sandbox, crash_at, death)
    if as_json:
        print_json(msgspec.to_builtins(outcome))
    if outcome.status != "completed" or outcome.effects != 1 or outcome.paid_twice:
        sys.exit(1)


def _act(stage: Stage, url: str, adapter: str, sandbox: str, crash_at: str, death: str) -> Outcome:
    say(f"Task: {TASK}")
    say(f"A repository with one failing test, in {stage.workspace}. The log is in {redact(url)}.")
    with stage.provider() as provider:
        play(
            stage,
            url=provider,
            world=url,
            adapter=adapter,
            sandbox=sandbox,
            crash_at=crash_at,
            death=death,
            say=lambda text: say(click.style(f"\n── {text}", bold=True)),
        )
    say(click.style("\n── The whole trace, as `harness-durable trace` shows it", bold=True))
    anyio.run(_trace, url)
    outcome = anyio.run(judge, stage, url)
    say(click.style("\n── What is true", bold=True))
    for line in _verdict(outcome):
        click.echo(line, err=True)
    return outcome


async def _trace(url: str) -> None:
    from harness_durable.cli.trace import print_story
    from harness_durable.journal import Reader
    from harness_durable.worlds import open_world

    world = await open_world(url)
    try:
        await print_story(Reader(world, SESSION).entries(), to_stderr=True)
    finally:
        await world.aclose()


def _verdict(outcome: Outcome) -> list[str]:
    return [
        f"  the turn      {outcome.status}, after {outcome.lives} life/lives and {outcome.workers} worker(s)",
        f"  the model     {visible(outcome.text)}",
        f"  deployments   {outcome.effects} in the file, {outcome.unknown} call(s) reported as unknown",
        f"  model calls   {outcome.model_calls} paid, {outcome.paid_twice} of them twice",
    ]
