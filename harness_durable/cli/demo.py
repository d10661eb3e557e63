"""``harness-durable demo``: a real harness is killed in the middle of a deployment, and comes back."""

from __future__ import annotations

import sys
import tempfile
import textwrap
from pathlib import Path

import anyio
import click
import msgspec

from harness_durable import crashpoints, registry
from harness_durable.adapter import Adapter
from harness_durable.cli.common import print_json, say, visible
from harness_durable.demo.stage import Stage
from harness_durable.demo.story import (
    SESSION,
    TASK,
    Cast,
    Outcome,
    judge,
    play,
    played_before,
    told_the_model,
)
from harness_durable.worlds import redact

TRACE_HINT = (
    "The lines below are the trace: what `harness-durable trace` reads from the log, as it is written."
)


ON_ITS_WAY = ("model.streaming", "model.upstream_done")
"""Deaths while an answer is between the provider and the log: that one answer must be asked for again."""


@click.command()
@click.option("--adapter", default="claude-code", show_default=True)
@click.option("--sandbox", default="local", show_default=True)
@click.option(
    "--crash-at",
    metavar="POINT",
    type=click.Choice(crashpoints.POINTS),
    default="tool.effect_done",
    show_default=True,
    help="where the first worker is killed; a wrong POINT lists them all",
)
@click.option(
    "--death",
    type=click.Choice(crashpoints.DEATHS),
    default="harness",
    show_default=True,
    help="what dies: the worker; also keeper and harness; also the harness's files",
)
@click.option("--world", help="World URL [default: SQLite in the demo's own folder]")
@click.option("--keep", type=click.Path(file_okay=False), help="keep everything in this new folder")
@click.option("--json", "as_json", is_flag=True, help="a last line for machines, on stdout")
def demo(
    adapter: str,
    sandbox: str,
    crash_at: str,
    death: str,
    world: str | None,
    keep: str | None,
    as_json: bool,
) -> None:
    """A death and a return in one minute: no key, no network, a real harness, a scripted model.

    Exits with 1 unless the turn is completed with exactly one effect, and nothing was paid twice.
    """
    with tempfile.TemporaryDirectory(prefix="hd-demo-") as scratch:
        stage = Stage(Path(keep or scratch).resolve() / "demo")
        if stage.root.exists():
            raise click.UsageError(f"{stage.root} exists already; name a new folder")
        version = anyio.run(_version, adapter)
        url = world or f"sqlite:{stage.root / 'world.db'}"
        if world is not None and anyio.run(played_before, url):
            raise click.UsageError(f"{redact(url)} has a session {SESSION!r} already; name a new World")
        stage.set_up()
        if sandbox != "local":
            stage.give_away()
        _introduce(url, f"{adapter} {version}", kept=bool(keep or world))
        with stage.provider() as provider:
            play(stage, Cast(provider, url, adapter, sandbox, crash_at, death), heading=_heading, say=say)
        outcome = anyio.run(judge, stage, url)
        _conclude(outcome, anyio.run(told_the_model, url))
    if keep:
        say(f"\nLook yourself: harness-durable trace {SESSION} --world {redact(url)}")
    if as_json:
        print_json(msgspec.to_builtins(outcome))
    excused = 1 if crash_at in ON_ITS_WAY else 0
    if outcome.status != "completed" or outcome.effects != 1 or outcome.paid_twice > excused:
        sys.exit(1)


async def _version(adapter: str) -> str:
    """Raises ``HarnessMissing`` before anything is set up."""
    found: Adapter = registry.load("adapter", adapter)()
    return (await found.find()).version


def _heading(text: str) -> None:
    say(click.style(f"\n── {text}\n", bold=True))


def _told(text: str) -> None:
    say(f"  {text}")


def _introduce(url: str, harness: str, *, kept: bool) -> None:
    _heading("0. A coding agent is going to deploy, and will be killed at the worst moment")
    _told(f"the agent     a real {harness}, unpatched; its model is scripted, so no key is needed")
    _told(f"the task      {TASK}")
    _told("the danger    `deploy` adds a line to deployments.log, and that cannot be undone")
    _told(f"the log       {redact(url)}" + ("" if kept else " (--keep DIR keeps it)"))
    say("")
    _told(TRACE_HINT)


def _conclude(outcome: Outcome, told: list[tuple[str, str]]) -> None:
    if told:
        _heading("4. What the model was told in place of a result that nobody knows")
        for tool, words in told:
            _told(f"{tool.rpartition('__')[2] or tool}:")
            say(textwrap.indent(textwrap.fill(visible(words), 90), "    | "))
    _heading("5. What is true" if told else "4. What is true")
    lost = f"{_count(outcome.unknown, 'call', 'calls')} reported to the model as unknown"
    _told(f"the turn      {outcome.status}, in {_count(outcome.lives, 'life', 'lives')} of the agent")
    _told(f"              under {_count(outcome.workers, 'worker', 'workers')}, without a made-up message")
    _told(f"deployments   {outcome.effects} in deployments.log; {lost}")
    _told(f"model calls   {outcome.model_calls} paid for, {outcome.paid_twice} of them twice")
    if outcome.paid_twice:
        _told("              (an answer that was between the provider and the log had to be asked for again)")
    _told(f"the agent     {visible(outcome.text)}")


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
