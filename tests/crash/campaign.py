"""Random kills: ``python -m tests.crash.campaign --kills 200 --world sqlite``. The last line is JSON.

Every round is one turn, whose workers are killed at random moments with a random kind of death until it ends.
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
from pathlib import Path

import anyio

from harness_durable.testing.provider.policies.steps import Steps
from tests.crash.invariants import Report, examine
from tests.crash.scene import Scene

DEATHS = ("worker", "worker", "harness", "machine")
MOST_KILLS_A_TURN = 8


def one_turn(root: Path, world: str, adapter: str, rng: random.Random, left: int) -> tuple[Report, int, str]:
    """Kill until the turn is over; the report, the kills, and what the workers said last."""
    policy = Steps(steps=6, pair_every=2, custom_every=3, nap=0.2)
    kills = 0
    mood = rng.choice(("calm", "messy"))
    with Scene(root, world, policy=policy, adapter=adapter, mood=mood) as scene:
        while True:
            worker = scene.worker()
            if kills >= min(left, MOST_KILLS_A_TURN):
                worker.wait(timeout=180)
                break
            try:
                worker.wait(timeout=rng.uniform(0.3, 1.8))
                break
            except subprocess.TimeoutExpired:
                _die(scene, worker, rng.choice(DEATHS))
                kills += 1
        code = worker.returncode if worker.returncode == 0 else scene.finish()
        report = anyio.run(examine, scene)
        if code != 0:
            report.violations.append(f"the last worker ended with {code}")
        return report, kills, scene.tail()


def _die(scene: Scene, worker: subprocess.Popen[bytes], death: str) -> None:
    worker.kill()
    worker.wait()
    if death == "harness":
        scene.kill_lives()
    elif death == "machine":
        scene.lose_machine()


def campaign(kills: int, world: str, adapter: str, seed: int) -> dict[str, object]:
    """Turns until ``kills`` kills are done. Prints a line a turn."""
    rng = random.Random(seed)
    done = turns = lives = unknown = lost = calls = 0
    violations: list[str] = []
    began = time.monotonic()
    while done < kills:
        root = Path(tempfile.mkdtemp(prefix="hd-crash-"))
        report, fresh, tail = one_turn(root, world, adapter, rng, kills - done)
        done, turns = done + fresh, turns + 1
        lives, unknown = lives + report.lives, unknown + report.unknown
        lost, calls = lost + report.lost, calls + report.model_calls
        word = "ok" if not report.violations else "BROKEN"
        print(
            f"turn {turns}: {fresh} kills, {report.lives} lives, {report.unknown} unknown, "
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
        "world": world,
        "adapter": adapter,
        "turns": turns,
        "kills": done,
        "lives": lives,
        "unknown": unknown,
        "model_calls": calls,
        "paid_but_not_recorded": lost,
        "violations": violations,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--world", default="sqlite")
    parser.add_argument("--adapter", default="claude-code")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    wanted = parser.parse_args()
    result = campaign(wanted.kills, wanted.world, wanted.adapter, wanted.seed)
    print(json.dumps(result))
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
