"""Worker services on one Postgres, killed at random, with a database that restarts. The last line is JSON.

``python -m tests.crash.service_campaign --workers 3 --sessions 30 --minutes 10``. Clients send messages all
the time, each again until it is accepted; a supervisor starts what was killed. In the end every message must
have exactly one finished turn, every invariant must hold, and no session may have waited longer than
``LEASE`` plus ``SLACK`` for an owner while there was a worker (see ``waits``).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec
from anyio.to_thread import run_sync

from harness_durable import clock
from harness_durable.runtime.api import Durable
from harness_durable.testing.provider.ledger import Ledger
from harness_durable.testing.provider.policies import Steps
from tests.crash.chores import POLICY, ask
from tests.crash.fleet import Fleet
from tests.crash.invariants import Expectation, Report, around, examine_session
from tests.crash.scene import Scene
from tests.crash.waits import Waits
from tests.worlds.postgres_support import CURRENT, Cluster

LEASE, SLACK = 3.0, 5.0
SCHEMA = "crash"
SETTLING = 180.0
"""Seconds after the last message within which everything must have come to its end."""
GIVE_UP = 10.0
"""Seconds after a restart in which a worker may end with an error: one that starts while the database is away
tries for a while, and then leaves it to its supervisor."""
HOW = (signal.SIGINT, signal.SIGQUIT)
"""How the database is restarted, in turn: fast, and immediate."""


class Wanted(msgspec.Struct, frozen=True):
    """``troubles``: what happens to workers, a minute; ``messages``: how many a session gets, on average."""

    workers: int = 3
    sessions: int = 30
    seconds: float = 600.0
    restarts: int = 3
    messages: int = 4
    troubles: float = 4.0
    seed: int = 0


class Errand(msgspec.Struct, frozen=True):
    """A message to come: when (seconds from the start), to whom, and what it asks for."""

    at: float
    session: str
    message: str
    steps: Steps


class Campaign:
    """One run of it, on a server of its own."""

    def __init__(self, wanted: Wanted, scene: Scene, server: Cluster) -> None:
        self.wanted, self.scene, self.server = wanted, scene, server
        self.rng = random.Random(wanted.seed)
        self.errands = self._errands()
        self.accepted = self.restarts = 0
        self._began = clock.monotonic()
        self._away, self._back = False, -GIVE_UP

    def _errands(self) -> list[Errand]:
        """Each session has one at the least, and none comes after the time is over."""
        names = [f"s{number:02d}" for number in range(self.wanted.sessions)]
        more = self.rng.choices(names, k=self.wanted.sessions * (self.wanted.messages - 1))
        count: Counter[str] = Counter()
        found: list[Errand] = []
        times = sorted(self.rng.uniform(0, self.wanted.seconds) for _ in (*names, *more))
        for at, name in zip(times, self.rng.sample([*names, *more], len(times)), strict=True):
            count[name] += 1
            message = f"{name}-m{count[name]}"
            steps = Steps(
                steps=self.rng.randint(1, 3),
                effects=str(self.scene.effects),
                nap=round(self.rng.uniform(0.1, 1.5), 1),
                tag=f"{message}-",
                custom_every=2,
            )
            found.append(Errand(at, name, message, steps))
        return found

    def tell(self, what: str) -> None:
        print(f"{clock.monotonic() - self._began:6.1f} s  {what}", flush=True)

    # ---------------------------------------------------------------------------------- what happens

    async def run(self) -> tuple[Fleet, Waits]:
        """All of it, until everything is settled, or was given up."""
        # A slot for every session in each worker: whoever is alive has room for all, so none may wait.
        wanted = self.wanted
        fleet = Fleet(self.scene, wanted.workers, self.rng, wanted.sessions, self._is_away)
        place = (self.server.folder, self.server.port, self.server.user)
        waits = Waits(*place, SCHEMA, self.scene.app, lambda: fleet.alive)
        self._began = clock.monotonic()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fleet.supervise)
                tasks.start_soon(waits.run)
                async with anyio.create_task_group() as hands:
                    hands.start_soon(self._restart_database)
                    hands.start_soon(self._send)
                    hands.start_soon(self._trouble, fleet, waits)
                await self._settled(waits)
                tasks.cancel_scope.cancel()
        finally:
            await run_sync(fleet.end)
        return fleet, waits

    async def _send(self) -> None:
        """The clients: programs that drive nothing themselves."""
        async with (
            Durable.open(self.scene.world, drive=False, app=self.scene.app) as durable,
            anyio.create_task_group() as clients,
        ):
            for errand in self.errands:
                await clock.sleep(max(0.0, errand.at - (clock.monotonic() - self._began)))
                clients.start_soon(self._say, durable, errand)

    async def _say(self, durable: Durable, errand: Errand) -> None:
        place = self.scene.workspace / errand.session
        place.mkdir(exist_ok=True)
        await ask(durable, errand.session, errand.message, errand.steps, place)
        self.accepted += 1

    async def _trouble(self, fleet: Fleet, waits: Waits) -> None:
        while True:
            await clock.sleep(self.rng.expovariate(self.wanted.troubles / 60))
            if clock.monotonic() - self._began > self.wanted.seconds:
                return
            self.tell(await fleet.trouble(waits.busy))

    async def _restart_database(self) -> None:
        for number in range(self.wanted.restarts):
            at = self.wanted.seconds * (number + 1) / (self.wanted.restarts + 1)
            await clock.sleep(max(0.0, at - (clock.monotonic() - self._began)))
            how = HOW[number % len(HOW)]
            self._away = True
            await run_sync(self.server.restart, how)
            self._away, self._back = False, clock.monotonic()
            self.restarts += 1
            self.tell(f"the database was restarted ({how.name})")

    def _is_away(self) -> bool:
        return self._away or clock.monotonic() - self._back < GIVE_UP

    async def _settled(self, waits: Waits) -> None:
        give_up = clock.monotonic() + SETTLING
        quiet = 0
        while quiet < 10 and clock.monotonic() < give_up:
            await anyio.sleep(0.2)
            quiet = 0 if waits.due else quiet + 1
        self.tell("all is settled" if quiet else f"not settled: {sorted(waits.due)}")

    # ------------------------------------------------------------------------------------ the verdict

    async def judge(self, fleet: Fleet, waits: Waits) -> dict[str, object]:
        reports: dict[str, Report] = {}
        tally = Ledger.read(self.scene.ledger)
        world = await self.scene.opened()
        try:
            for session in sorted({errand.session for errand in self.errands}):
                reports[session] = await examine_session(
                    world, session, tally, Expectation(), self.scene.hosts
                )
        finally:
            await world.aclose()
        tokens = tuple(token for errand in self.errands for token in errand.steps.all_tokens())
        violations = [f"{name}: {line}" for name, found in reports.items() for line in found.violations]
        violations += self._unanswered(reports)
        violations += around(self.scene, tally, Expectation(once=tokens))
        violations += fleet.failed
        waited = waits.all()
        bound = LEASE + SLACK
        violations += [f"{name} waited {long:.1f} s for an owner" for long, name in waited if long > bound]
        lengths = [long for long, _ in waited]
        return {
            "v": 1,
            "seed": self.wanted.seed,
            "workers": self.wanted.workers,
            "sessions": len(reports),
            "messages": self.accepted,
            "turns": dict(Counter(turn for found in reports.values() for turn in found.turns.values())),
            "kills": fleet.kills,
            "pauses": fleet.pauses,
            "deploys": fleet.deploys,
            "restarts": self.restarts,
            "exits_while_it_was_away": fleet.exits,
            "lives": sum(found.lives for found in reports.values()),
            "resumed": sum(found.resumed for found in reports.values()),
            "unknown": sum(found.unknown for found in reports.values()),
            "model_calls": sum(tally.delivered.values()),
            "paid_but_not_recorded": sum(tally.delivered.values())
            - sum(found.recorded for found in reports.values()),
            "effects": len(tokens),
            "driven_at_once": waits.most,
            "looks": waits.looks,
            "waits": len(lengths),
            "seconds_without_any_worker": round(waits.nobody, 1),
            "wait_seconds": {
                "bound": bound,
                "longest": _rounded(lengths, 0.0),
                "p95": _rounded(lengths, 0.05),
                "median": _rounded(lengths, 0.5),
            },
            "violations": violations,
        }

    def _unanswered(self, reports: dict[str, Report]) -> list[str]:
        """Messages that have not exactly one finished turn."""
        found: list[str] = []
        for errand in self.errands:
            status = reports[errand.session].turns.get(errand.message, "none")
            if status != "completed":
                found.append(f"I2: the turn of {errand.message} is {status}")
        return found


def _rounded(lengths: Sequence[float], share: float) -> float:
    """Of lengths that are sorted, the longest first: the one that only this share exceeds."""
    return round(lengths[int(share * (len(lengths) - 1))], 2) if lengths else 0.0


def campaign(wanted: Wanted, root: Path) -> dict[str, object]:
    """Run it in ``root``, which is left as it is."""
    server = Cluster(CURRENT)
    try:
        with Scene(root, server.url(SCHEMA), policy=POLICY) as scene:
            run = Campaign(wanted, scene, server)
            result = anyio.run(run.judge, *anyio.run(run.run))
            if result["violations"]:
                print(scene.tail(), flush=True)
            return result
    finally:
        server.destroy()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    given = parser.parse_args()
    wanted = Wanted(given.workers, given.sessions, given.minutes * 60, given.restarts, seed=given.seed)
    root = Path(tempfile.mkdtemp(prefix="hd-service-"))
    result = campaign(wanted, root)
    if not result["violations"]:
        shutil.rmtree(root)
    else:
        print(f"kept in {root}", *result["violations"], sep="\n  ")  # type: ignore[misc]  # a list
    print(json.dumps(result))
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
