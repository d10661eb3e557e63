"""The demo itself: a worker that is killed, a worker that finds out, and what is true in the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import anyio
import msgspec

from harness_durable.demo.stage import Stage
from harness_durable.errors import NotFound
from harness_durable.journal import Reader
from harness_durable.policy import told
from harness_durable.state import Session
from harness_durable.testing.provider.ledger import Ledger
from harness_durable.worlds import open_world

SESSION = "demo"
TASK = "Fix the failing test, then deploy version 1.4.2."
MOST_WORKERS = 6
KILLED = -9

Say = Callable[[str], None]


class Outcome(msgspec.Struct, frozen=True):
    """What a judge sees: from the log, from the provider's ledger, and from the file with the effects."""

    status: str
    text: str
    lives: int
    workers: int
    effects: int
    unknown: int
    model_calls: int
    paid_twice: int


class Cast(msgspec.Struct, frozen=True):
    """Who plays: the provider's and the World's URL, the adapter, the sandbox, and the death."""

    provider: str
    world: str
    adapter: str
    sandbox: str
    crash_at: str
    death: str


def command(*words: str) -> list[str]:
    """A command line for the demo's session, as a person would type it."""
    return [sys.executable, "-m", "harness_durable.cli.main", *words, "--tools", "harness_durable.demo.tools"]


def run_worker(stage: Stage, cast: Cast, crash: dict[str, str]) -> int:
    """One worker process; its exit code, negative for a signal."""
    options = ["--session", SESSION, "--message-id", "task", "--adapter", cast.adapter]
    options += ["--sandbox", cast.sandbox, "--workspace", str(stage.workspace)]
    environment = stage.environment(cast.provider, cast.world) | crash
    return subprocess.run(
        command("run", TASK, *options), env=environment, stdout=subprocess.DEVNULL
    ).returncode


def play(stage: Stage, cast: Cast, *, heading: Say, say: Say) -> None:
    """Kill the first worker at ``crash_at``, then let others go on until one ends by itself."""
    crash = {"HARNESS_DURABLE_CRASH_AT": cast.crash_at, "HARNESS_DURABLE_CRASH_DEATH": cast.death}
    heading(f"1. A worker drives the agent. It will be killed at {cast.crash_at}")
    code = run_worker(stage, cast, crash)
    if code != KILLED:
        heading(f"The worker was not killed: it ended with {code} and never came to {cast.crash_at}")
        return
    heading(f"2. kill -9. {_DEAD[cast.death]}")
    say(f"  deployments.log holds {_lines(stage.effects)}.")
    say("  The log ends here; what came after, nobody was told:\n")
    head = anyio.run(_head, cast.world)
    environment = stage.environment(cast.provider, cast.world)
    look = [
        sys.executable,
        "-m",
        "harness_durable.cli.main",
        "trace",
        SESSION,
        "--since",
        str(max(0, head - 3)),
    ]
    subprocess.run(look, env=environment, stdout=sys.stderr)
    say("\n  What will the next worker do, and why? `harness-durable recover --dry-run` says:\n")
    subprocess.run(command("recover", SESSION, "--dry-run"), env=environment, stdout=sys.stderr)
    for number in range(2, MOST_WORKERS + 1):
        again = "" if number == 2 else f" ({number - 1} were killed)"
        heading(f"3. Another worker starts{again}. The same turn goes on")
        if run_worker(stage, cast, {}) >= 0:
            return


_DEAD = {
    "worker": "The worker is dead. Its agent lives on in the keeper, and waits",
    "harness": "The worker, the keeper and the agent are dead",
    "machine": "The worker, the keeper and the agent are dead, and the agent's files are gone",
}


def _lines(count: int) -> str:
    return {0: "no line", 1: "1 line"}.get(count, f"{count} lines")


async def played_before(world: str) -> bool:
    """Does this World hold the demo's session already?"""
    store = await open_world(world)
    try:
        await store.session(SESSION)
    except NotFound:
        return False
    finally:
        await store.aclose()
    return True


async def _head(world: str) -> int:
    reader, state = await _ending(world)
    await reader.world.aclose()
    return state.seq


async def judge(stage: Stage, world: str) -> Outcome:
    """What is true in the end."""
    reader, state = await _ending(world)
    try:
        turn = state.last_turn
        text = await reader.text(turn.text) if turn is not None and turn.text is not None else ""
    finally:
        await reader.world.aclose()
    tally = Ledger.read(stage.ledger)
    return Outcome(
        status=turn.status if turn is not None else "none",
        text=text,
        lives=len(state.lives),
        workers=len({worker for life in state.lives.values() for worker in life.workers}),
        effects=stage.effects,
        unknown=sum(call.outcome == "unknown" for call in state.tool_calls.values()),
        model_calls=sum(tally.delivered.values()),
        paid_twice=sum(count - 1 for count in tally.paid_twice().values()),
    )


async def told_the_model(world: str) -> list[tuple[str, str]]:
    """Tools whose call was cut off, and what the model was told instead of a result."""
    reader, state = await _ending(world)
    await reader.world.aclose()
    return [
        (call.name, told(call))
        for call in state.tool_calls.values()
        if call.outcome in ("unknown", "not_started")
    ]


async def _ending(world: str) -> tuple[Reader, Session]:
    reader = Reader(await open_world(world), SESSION)
    try:
        return reader, await reader.load()
    except NotFound:
        return reader, Session()
