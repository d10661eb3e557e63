"""How long is a killed session not driven?

From the start of the next worker's process, Python and all, until the session is driven again: until its next
model request reaches the provider, or, after the death of the worker alone, until the next one has attached
to the life that goes on. Where a harness had to be started again, its own start is shown beside it: from its
life's start to its first model request, measured in the same session before anything died. The events of a
long log are those of subagents, since a long transcript would make the harness's own start longer.
"""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from bench.measure import Options, Result, Table, interleaved
from harness_durable import events as ev
from harness_durable import fold
from harness_durable.journal import Reader
from harness_durable.payload import pack_text
from harness_durable.testing.provider.ledger import Ledger, Line
from harness_durable.testing.provider.policies.steps import Steps
from tests.crash.scene import SESSION, Scene, wait_for
from tests.view.logs import long, records

NAME = "recovery"
STEPS = 2


class Story(NamedTuple):
    """``events``: how many the log has before the message; ``snapshot``: its cache is there."""

    adapter: str
    world: str
    death: str
    events: int = 0
    snapshot: bool = True

    @property
    def name(self) -> str:
        log = f", {self.events:,} events" if self.events else ""
        return f"{self.adapter}, {self.world}{log}{'' if self.snapshot else ', snapshot lost'}"


DIES = {"worker": "the worker", "harness": "worker and harness", "machine": "the machine"}
STORIES = (
    *(Story("claude-code", world, death) for world in ("sqlite", "file") for death in DIES),
    *(Story("claude-code", "postgres", death) for death in ("worker", "machine")),
    *(
        Story(adapter, "sqlite", death)
        for adapter in ("codex", "opencode", "pi")
        for death in ("worker", "machine")
    ),
    *(Story("claude-code", "sqlite", "machine", count) for count in (100, 10_000, 100_000)),
    Story("claude-code", "sqlite", "worker", 100_000),
    Story("claude-code", "sqlite", "machine", 100_000, False),
)
QUICK = (Story("claude-code", "sqlite", "worker"), Story("claude-code", "sqlite", "machine", 10_000))


class Took(NamedTuple):
    """Seconds: until it was driven again, and of that what the harness takes for itself."""

    again: float
    own: float


def past(count: int) -> list[ev.AnyEvent]:
    """About so many events, after whose last the session is settled. All calls are a subagent's: no
    transcript of the harness has to hold them, which would make its own start longer."""
    log = [
        msgspec.structs.replace(event, agent="side")
        if isinstance(event, ev.ModelRequested | ev.ToolRequested)
        else event
        for event in long(count)
    ]
    while not isinstance(log[-1], ev.ToolCompleted):
        log.pop()
    life = next(event for event in reversed(log) if isinstance(event, ev.LifeStarted))
    done = ev.TurnCompleted(life.turn, pack_text("Done.").payload)
    return [*log, done, ev.LifeEnded(life.life, "settled")]


async def fill(scene: Scene, count: int, snapshot: bool) -> None:
    """Give the session a past of so many events, as if earlier turns had been driven."""
    world = await scene.opened()
    try:
        head = (await world.session(SESSION)).head
        made = records(past(count))[1:]
        for place in range(0, len(made), 2000):
            some = made[place : place + 2000]
            head = await world.append(SESSION, expected_head=head, epoch=0, records=some)
        if snapshot:
            state = await Reader(world, SESSION).load()
            await world.put_snapshot(SESSION, state.seq, fold.dump(state))
    finally:
        await world.aclose()


async def times(scene: Scene, of: type[ev.LifeStarted | ev.LifeAttached]) -> list[float]:
    """When (wall clock, s) these events were written."""
    world = await scene.opened()
    try:
        return [
            entry.time / 1000
            async for entry in Reader(world, SESSION).entries()
            if isinstance(entry.event, of)
        ]
    finally:
        await world.aclose()


def requests(scene: Scene) -> list[Line]:
    return [line for line in Ledger.read(scene.ledger).lines if line.kind == "requested"]


def wall(line: Line) -> float:
    return line.t + time.time() - time.monotonic()


def told(root: Path, story: Story) -> Took:
    """The session's first worker dies; the next one is timed."""
    policy = Steps(steps=STEPS, pair_every=0, nap=2.0 if story.death == "worker" else 0.1)
    with Scene(root, story.world, policy=policy, adapter=story.adapter) as scene:
        if story.events:
            scene.worker(HARNESS_DURABLE_CRASH_AT="message.accepted").wait()
            anyio.run(fill, scene, story.events, story.snapshot)
        if story.death == "worker":
            worker = scene.worker()
            wait_for(scene.has_effects, "a running command")
            worker.send_signal(signal.SIGKILL)
        else:
            worker = scene.worker(
                HARNESS_DURABLE_CRASH_AT="tool.released", HARNESS_DURABLE_CRASH_DEATH=story.death
            )
        worker.wait()
        asked, began = len(requests(scene)), time.time()
        if asked == 0:
            raise RuntimeError(f"{story.name}: nothing was asked before the death; {scene.tail()}")
        anyio.run(scene.put_back)
        if scene.worker().wait() != 0:
            raise RuntimeError(f"{story.name}: {scene.tail()}")
        if story.death == "worker":
            attached = anyio.run(times, scene, ev.LifeAttached)
            return Took(attached[-1] - began, 0.0)
        started = anyio.run(times, scene, ev.LifeStarted)
        mine = next(when for when in started if when >= wall(requests(scene)[0]) - 60)
        return Took(wall(requests(scene)[asked]) - began, wall(requests(scene)[0]) - mine)


def run(options: Options) -> Result:
    rounds = options.rounds or (1 if options.quick else 2)
    stories = {f"{s.name}: {DIES[s.death]}": s for s in (QUICK if options.quick else STORIES)}
    again = Table(
        "again", "From the next worker's start until the session is driven again", "s", False, digits=2
    )
    attach = Table(
        "attach", "From the next worker's start until it has attached to a life that went on", "s", False
    )
    attach.digits = 2
    result = Result(NAME, rounds, quick=options.quick, tables=[attach, again])
    names = options.of(list(stories))
    for number, name in interleaved(names, rounds):
        options.say(f"recovery: round {number + 1} of {rounds}: {name}")
        story = stories[name]
        with tempfile.TemporaryDirectory(prefix="hd-bench-") as folder:
            try:
                took = told(Path(folder) / "scene", story)
            except (RuntimeError, AssertionError) as error:
                options.say(str(error)[-3000:])
                result.missing[name] = str(error).strip().splitlines()[-1][:200]
                continue
        if story.death == "worker":
            attach.add(story.name, DIES[story.death], took.again)
        else:
            again.add(name, "in all", took.again)
            again.add(name, "the harness's own start", took.own)
            again.add(name, "beyond it", took.again - took.own)
    again.sort(names)
    attach.sort([story.name for story in stories.values()])
    return result
