"""Random kills: ``python -m tests.crash.campaign --kills 200 --world sqlite``. The last line is JSON.

Every round is one turn, whose workers are killed at random moments with a random kind of death until it ends.
Meanwhile people interfere: in half of the turns they steer it, in one of six they stop it and send another.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import anyio

from harness_durable.testing.provider.policies import Steps
from harness_durable.worlds import redact
from tests.crash.invariants import Expectation, Report, examine
from tests.crash.scene import MESSAGE, NEEDS_A_PERSON, TOOL, Scene

DEATHS = ("worker", "worker", "harness", "machine")
KINDS = ("plain", "plain", "steered", "steered", "steered", "stopped")
"""What else happens in a turn, drawn anew for each."""
MOST_KILLS_A_TURN = 8
SLOWNESS = {"codex": 3.0, "opencode": 4.0, "pi": 3.0}
"""By adapter: how many times longer than usual a harness takes until it works, and can be hit at work."""
LATEST = 6.0
"""Seconds after a turn's start until which people interfere; some find it settled."""


def one_turn(
    root: Path, world: str, adapter: str, rng: random.Random, left: int, kind: str, deaths: Sequence[str]
) -> tuple[Report, int, str]:
    """Kill until the turn is over; the report, the kills, and what the workers said last."""
    policy = Steps(steps=6, pair_every=2, custom_every=3, nap=0.2)
    mood = rng.choice(("calm", "messy"))
    with Scene(root, world, policy=policy, adapter=adapter, mood=mood) as scene:
        slow = SLOWNESS.get(adapter, 1.0)
        people = _people(scene, rng, kind, LATEST * min(slow, 2.0))
        kills = _drive(scene, rng, min(left, MOST_KILLS_A_TURN), slow, deaths)
        for person in people:
            person.wait(timeout=60)
        # Only now nothing can come in any more. A turn that was stopped leaves the steps to the next message.
        last = "next" if kind == "stopped" else MESSAGE
        code = scene.finish(last)
        if code == NEEDS_A_PERSON:
            scene.client("recover", "--tools", str(TOOL)).wait(timeout=180)
            code = scene.finish(last)
        # Many kills may have it wait for a person, and a later message is that person's answer.
        ends = ("completed", "needs_input", *(("cancelled",) if kind == "stopped" else ()))
        report = anyio.run(examine, scene, Expectation(ends={MESSAGE: ends}))
        if not report.violations:
            anyio.run(scene.forget)
        given_up = code == NEEDS_A_PERSON and report.turns.get(MESSAGE) == "needs_input"
        if code != 0 and not given_up:
            report.violations.append(f"the last worker ended with {code}")
        return report, kills, scene.tail()


def _people(scene: Scene, rng: random.Random, kind: str, latest: float) -> list[subprocess.Popen[bytes]]:
    """Those who say something, each at a moment of their own."""
    if kind == "stopped":
        return [scene.client("stop", after=rng.uniform(0.5, latest))]
    steers = rng.randint(1, 3) if kind == "steered" else 0
    texts = [f"remark {number} of {steers}" for number in range(1, steers + 1)]
    return [scene.client("steer", text, after=rng.uniform(0.5, latest)) for text in texts]


def _drive(scene: Scene, rng: random.Random, most: int, slow: float, deaths: Sequence[str]) -> int:
    """Workers, each killed after a while, until one ends by itself or there were enough; the kills."""
    for kills in range(most):
        worker = scene.worker()
        try:
            worker.wait(timeout=rng.uniform(0.3, 1.8 * slow))
            return kills
        except subprocess.TimeoutExpired:
            scene.die(worker, rng.choice(deaths))
            anyio.run(scene.put_back)
    scene.worker().wait(timeout=180)
    return most


def campaign(
    kills: int, world: str, adapter: str, seed: int, deaths: Sequence[str] = DEATHS
) -> dict[str, object]:
    """Turns until ``kills`` kills are done. Prints a line a turn."""
    rng = random.Random(seed)
    done = turns = lives = unknown = lost = calls = steers = stopped = persons = 0
    violations: list[str] = []
    began = time.monotonic()
    while done < kills:
        root = Path(tempfile.mkdtemp(prefix="hd-crash-"))
        kind = rng.choice(KINDS)
        report, fresh, tail = one_turn(root, world, adapter, rng, kills - done, kind, deaths)
        done, turns = done + fresh, turns + 1
        lives, unknown = lives + report.lives, unknown + report.unknown
        lost, calls = lost + report.lost, calls + report.model_calls
        persons += report.persons
        steers, stopped = steers + report.steers, stopped + (report.turns.get(MESSAGE) == "cancelled")
        word = "ok" if not report.violations else "BROKEN"
        print(
            f"turn {turns} ({kind}): {fresh} kills, {report.lives} lives, {report.unknown} unknown, "
            f"{report.status}, {word}; {done}/{kills} kills after {time.monotonic() - began:.0f} s",
            flush=True,
        )
        if report.violations:
            violations += report.violations
            print(f"  kept in {root}", *report.violations, tail, sep="\n  ", flush=True)
        else:
            shutil.rmtree(root)
    return {
        "v": 1,
        "seed": seed,
        "world": redact(world),
        "adapter": adapter,
        "turns": turns,
        "kills": done,
        "lives": lives,
        "unknown": unknown,
        "model_calls": calls,
        "paid_but_not_recorded": lost,
        "steers": steers,
        "stopped": stopped,
        "needed_a_person": persons,
        "violations": violations,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--world", default="sqlite")
    parser.add_argument("--adapter", default="claude-code")
    parser.add_argument("--deaths", default=",".join(DEATHS), help="kinds, as often as they are to come")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    wanted = parser.parse_args()
    deaths = tuple(wanted.deaths.split(","))
    result = campaign(wanted.kills, wanted.world, wanted.adapter, wanted.seed, deaths)
    print(json.dumps(result))
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
