"""Worker services under a supervisor that starts whatever has ended, at once, as init systems do."""

from __future__ import annotations

import random
import signal
import subprocess
from collections.abc import Callable, Collection

import anyio

from tests.crash.scene import Scene

LOOK = 0.1
"""Seconds between two looks at the processes."""
PAUSED = 5.0
"""Seconds for which a worker is stopped: longer than its lease."""


class Fleet:
    """``count`` workers of a scene. ``excused`` says whether the store is away, or was just now: then one may
    end with an error, and counts in ``exits``. ``failed`` says which else ended by themselves, and how."""

    def __init__(
        self, scene: Scene, count: int, rng: random.Random, slots: int, excused: Callable[[], bool]
    ) -> None:
        self._scene, self._rng, self._excused = scene, rng, excused
        self._options = ("--concurrency", str(slots), "--drain", "2")
        self._workers = [self._start() for _ in range(count)]
        self._told = set[int]()
        self.kills = self.pauses = self.deploys = self.exits = 0
        self.failed: list[str] = []

    def _start(self) -> subprocess.Popen[bytes]:
        return self._scene.service(options=self._options)

    @property
    def alive(self) -> set[int]:
        """Their pids, those of stopped ones too."""
        return {worker.pid for worker in self._workers if worker.poll() is None}

    async def supervise(self) -> None:
        """For ever. Whoever was not told to end, and ends, has failed."""
        while True:
            for place, worker in enumerate(self._workers):
                if (code := worker.poll()) is not None:
                    if worker.pid in self._told:
                        pass
                    elif code == 1 and self._excused():
                        self.exits += 1
                    else:
                        self.failed.append(f"a worker ended by itself with {code}")
                    self._workers[place] = self._start()
            await anyio.sleep(LOOK)

    async def trouble(self, busy: Collection[int]) -> str:
        """Something that happens to workers, rather to those that are ``busy``; what it was. Mostly one is
        killed, sometimes two at once."""
        what = self._rng.choices(("kill", "kill two", "pause", "deploy"), (12, 3, 2, 2))[0]
        luck = {worker.pid: self._rng.random() - (worker.pid in busy) for worker in self._workers}
        chosen = sorted(self._workers, key=lambda one: luck[one.pid])[: 2 if what == "kill two" else 1]
        if what == "pause":
            self.pauses += 1
            await self._pause(chosen[0])
            return "a worker was stopped past its lease, and goes on"
        self._told |= {worker.pid for worker in chosen}
        for worker in chosen:
            worker.send_signal(signal.SIGTERM if what == "deploy" else signal.SIGKILL)
        if what == "deploy":
            self.deploys += 1
            return "a worker is told to stop"
        self.kills += len(chosen)
        return f"{len(chosen)} killed"

    async def _pause(self, worker: subprocess.Popen[bytes]) -> None:
        worker.send_signal(signal.SIGSTOP)
        try:
            await anyio.sleep(PAUSED)
        finally:
            worker.send_signal(signal.SIGCONT)

    def end(self) -> None:
        """Tell all to stop; those that do not do so in peace have failed."""
        for worker in self._workers:
            worker.send_signal(signal.SIGTERM)
        for worker in self._workers:
            try:
                code = worker.wait(timeout=60)
            except subprocess.TimeoutExpired:
                worker.kill()
                code = worker.wait()
            if code != 0 and worker.pid not in self._told:
                self.failed.append(f"told to stop, a worker ended with {code}")
