"""The demo itself: a worker that is killed, a worker that finds out, and what is true in the end."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import msgspec

from harness_durable.demo.stage import Stage
from harness_durable.journal import Reader
from harness_durable.state import Session
from harness_durable.testing.provider.ledger import Ledger
from harness_durable.worlds import open_world

SESSION = "demo"
TASK = "Fix the failing test, then deploy version 1.4.2."
MOST_WORKERS = 6


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


def run_worker(
    stage: Stage, environment: dict[str, str], adapter: str, sandbox: str, crash: dict[str, str]
) -> int:
    """One worker process; its exit code, negative for a signal."""
    command = [sys.executable, "-m", "harness_durable.cli.main", "run", TASK]
    options = ["--session", SESSION, "--message-id", "task", "--adapter", adapter, "--sandbox", sandbox]
    options += ["--workspace", str(stage.workspace), "--tools", "harness_durable.demo.tools"]
    done = subprocess.run([*command, *options], env=environment | crash, stdout=subprocess.DEVNULL)
    return done.returncode


def play(
    stage: Stage,
    *,
    url: str,
    world: str,
    adapter: str,
    sandbox: str,
    crash_at: str,
    death: str,
    say: Callable[[str], None],
) -> None:
    """Kill the first worker at ``crash_at``, then let others go on until one ends by itself."""
    environment = stage.environment(url, world)
    crash = {"HARNESS_DURABLE_CRASH_AT": crash_at, "HARNESS_DURABLE_CRASH_DEATH": death}
    say(f"A worker starts. It will be killed at {crash_at!r} ({death}).")
    code = run_worker(stage, environment, adapter, sandbox, crash)
    if code != -9:
        say(f"The worker ended by itself with {code}: it never came to {crash_at!r}.")
        return
    say(f"kill -9. The file of deployments has {stage.effects} line(s); the model was told nothing.")
    for number in range(2, MOST_WORKERS + 1):
        say(f"Worker {number} starts on the same World.")
        if run_worker(stage, environment, adapter, sandbox, {}) >= 0:
            return


async def judge(stage: Stage, world: str) -> Outcome:
    """What is true in the end."""
    store = await open_world(world)
    try:
        reader = Reader(store, SESSION)
        state = await reader.load()
        turn = state.last_turn
        text = await reader.text(turn.text) if turn is not None and turn.text is not None else ""
    finally:
        await store.aclose()
    tally = Ledger.read(stage.ledger)
    return Outcome(
        status=turn.status if turn is not None else "none",
        text=text,
        lives=len(state.lives),
        workers=_workers(state),
        effects=stage.effects,
        unknown=sum(call.outcome == "unknown" for call in state.tool_calls.values()),
        model_calls=sum(tally.delivered.values()),
        paid_twice=sum(count - 1 for count in tally.paid_twice().values()),
    )


def _workers(state: Session) -> int:
    return len({worker for life in state.lives.values() for worker in life.workers})
