"""How long is a killed session not driven? ``python -m bench.recovery [ROUNDS]``

Per World and death, from the start of the next worker's process (Python and all) until the session is driven
again: its next model request reaches the provider, or, after ``worker``, the next worker has attached. Beside
it, in the same rounds, the harness alone: from its start to its first model request. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

from harness_durable import events as ev
from harness_durable.journal import Reader
from harness_durable.testing.provider.ledger import Ledger
from harness_durable.testing.provider.policies.steps import Steps
from harness_durable.worlds import open_world
from harness_durable_adapters.claude_code.install import find
from tests.crash.scene import SESSION, Scene, wait_for


def harness_alone(root: Path) -> float:
    """Seconds from the harness's start to its first model request, without us."""
    binary = anyio.run(find).path
    with Scene(root, "sqlite", policy=Steps(steps=0)) as scene:
        command = [binary, "-p", "hello", "--model", "claude-sonnet-4-5", "--setting-sources", ""]
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "ANTHROPIC_BASE_URL": scene.url,
            "ANTHROPIC_API_KEY": "sk-bench",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        began = time.monotonic()
        subprocess.run(command, env=environment, cwd=root, stdin=subprocess.DEVNULL, capture_output=True)
        return Ledger.read(scene.ledger).lines[0].t - began


def after_death(root: Path, world: str, death: str) -> float:
    """Seconds from the next worker's start until the session is driven again."""
    policy = Steps(steps=2, pair_every=0, nap=2.0 if death == "worker" else 0.2)
    with Scene(root, world, policy=policy) as scene:
        crash = {"HARNESS_DURABLE_CRASH_AT": "tool.released", "HARNESS_DURABLE_CRASH_DEATH": death}
        if death == "worker":
            worker = scene.worker()
            wait_for(scene.has_effects, "a running command")
            worker.send_signal(signal.SIGKILL)
        else:
            worker = scene.worker(**crash)
        worker.wait()
        asked = len(Ledger.read(scene.ledger).lines)
        began, wall = time.monotonic(), time.time()
        if scene.worker().wait() != 0:
            raise SystemExit(scene.tail())
        if death == "worker":
            return anyio.run(_attached, scene.world) / 1000 - wall
        later = Ledger.read(scene.ledger).lines[asked:]
        return next(line.t for line in later if line.kind == "requested") - began


async def _attached(url: str) -> int:
    world = await open_world(url)
    try:
        entries = Reader(world, SESSION).entries()
        return next(iter([e.time async for e in entries if isinstance(e.event, ev.LifeAttached)]))
    finally:
        await world.aclose()


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    seconds: dict[str, list[float]] = {}
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="hd-bench-") as folder:
            seconds.setdefault("harness alone", []).append(harness_alone(Path(folder) / "alone"))
            for world in ("sqlite", "file"):
                for death in ("worker", "harness", "machine"):
                    root = Path(folder) / f"{world}-{death}"
                    seconds.setdefault(f"{world} {death}", []).append(after_death(root, world, death))
    alone = statistics.median(seconds["harness alone"])
    print(f"{'':24}{'median':>10}{'min':>10}{'max':>10}{'beyond the harness':>22}")
    for name, values in seconds.items():
        median = statistics.median(values)
        beyond = (
            ""
            if name == "harness alone"
            else f"{median - (0 if name.endswith('worker') else alone):>20.2f} s"
        )
        print(f"{name:24}{median:>8.2f} s{min(values):>8.2f} s{max(values):>8.2f} s{beyond:>22}")
    print(json.dumps({"v": 1, "rounds": rounds, "seconds": seconds}))


if __name__ == "__main__":
    main()
