"""Worker services on one Postgres, with faults at a given moment; and a short share of the long campaign."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import cast

import pytest

from harness_durable import clock
from harness_durable.runtime.api import Durable
from harness_durable.testing.provider.ledger import Ledger
from harness_durable.testing.provider.policies import Steps
from tests.crash.chores import POLICY, ask
from tests.crash.invariants import Expectation, around, examine_session
from tests.crash.scene import Scene, wait_for
from tests.crash.service_campaign import LEASE, SCHEMA, Wanted, campaign
from tests.worlds.postgres_kit import until
from tests.worlds.postgres_support import CURRENT, Cluster

Service = subprocess.Popen[bytes]


def chore(scene: Scene, session: str, nap: float) -> Steps:
    return Steps(steps=2, pair_every=0, effects=str(scene.effects), nap=nap, tag=f"{session}-")


async def sent(scene: Scene, *sessions: str, nap: float) -> None:
    """One message to each."""
    async with Durable.open(scene.world, drive=False, app=scene.app) as durable:
        for session in sessions:
            await ask(durable, session, "m-1", chore(scene, session, nap), scene.workspace)


def begun(scene: Scene, *sessions: str) -> None:
    """Each has had its first effect, and its command still runs."""
    wait_for(lambda: all(f"{name}-0a" in scene.effects.read_text() for name in sessions), "the first effects")


async def settled(scene: Scene, *sessions: str) -> None:
    """All turns are over, and everybody has let go."""
    world = await scene.opened()
    try:

        async def parked() -> bool:
            rows = [await world.session(name) for name in sessions]
            return all(row.due is None and row.owner is None for row in rows)

        await until(parked, 60)
    finally:
        await world.aclose()


async def judged(scene: Scene, *sessions: str) -> None:
    """Nothing is wrong; every harness has lived through it, so that nothing was paid again either."""
    tally = Ledger.read(scene.ledger)
    world = await scene.opened()
    try:
        reports = [await examine_session(world, name, tally, Expectation()) for name in sessions]
    finally:
        await world.aclose()
    tokens = tuple(token for name in sessions for token in chore(scene, name, 0).all_tokens())
    found = around(scene, tally, Expectation(once=tokens))
    assert [*found, *(line for report in reports for line in report.violations)] == [], scene.tail()
    told = [(report.turns, report.lives, report.unknown) for report in reports]
    assert told == [({"m-1": "completed"}, 1, 0)] * len(sessions), scene.tail()
    assert sum(tally.delivered.values()) == 3 * len(sessions), "an answer was paid again"


def stopped(*services: Service) -> list[int]:
    """Told to stop, they leave in peace; their exit codes."""
    for service in services:
        service.send_signal(signal.SIGTERM)
    return [service.wait(timeout=60) for service in services]


async def test_a_database_that_is_away_for_longer_than_a_lease_costs_a_turn_nothing(tmp_path: Path) -> None:
    server = Cluster(CURRENT, "fsync = off")
    try:
        with Scene(tmp_path, server.url(SCHEMA), policy=POLICY) as scene:
            service = scene.service()
            await sent(scene, "one", nap=2.0)
            begun(scene, "one")
            server.stop(signal.SIGQUIT)
            away = clock.monotonic()
            wait_for(lambda: scene.said("stops driving"), "the worker to give up its lease")
            wait_for(lambda: clock.monotonic() - away > LEASE, "the lease to be over")
            server.start()
            await settled(scene, "one")
            assert stopped(service) == [0], scene.tail()
            await judged(scene, "one")
    finally:
        server.destroy()


async def test_what_two_workers_had_that_died_at_once_a_third_one_takes_over(tmp_path: Path) -> None:
    names = ("one", "two", "three", "four")
    with Scene(tmp_path, "postgres", policy=POLICY) as scene:
        pair = [scene.service(options=("--concurrency", "2")) for _ in range(2)]
        await sent(scene, *names, nap=3.0)
        begun(scene, *names)
        heir = scene.service(options=("--concurrency", "4"))
        for service in pair:
            service.kill()
        for service in pair:
            service.wait()
        await settled(scene, *names)
        assert stopped(heir) == [0], scene.tail()
        await judged(scene, *names)


async def test_a_worker_that_wakes_after_its_lease_is_fenced_and_goes_on_serving(tmp_path: Path) -> None:
    """It wakes while its heir drives the session, and has something to write: the lease, to begin with."""
    with Scene(tmp_path, "postgres", policy=POLICY) as scene:
        sleeper = scene.service()
        await sent(scene, "one", nap=3.0)
        begun(scene, "one")
        sleeper.send_signal(signal.SIGSTOP)
        try:
            heir = scene.service()
            wait_for(lambda: scene.said(": attach ("), "the other worker to attach")
        finally:
            sleeper.send_signal(signal.SIGCONT)
        wait_for(lambda: scene.said("stops driving"), "the first one to notice")
        await settled(scene, "one")
        assert stopped(heir) == [0], scene.tail()
        await sent(scene, "two", nap=0.1)
        await settled(scene, "two")
        assert stopped(sleeper) == [0], scene.tail()
        await judged(scene, "one", "two")


def test_a_short_campaign_of_services_breaks_no_invariant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = Wanted(workers=2, sessions=4, seconds=25, restarts=1, messages=2, troubles=12, seed=20261130)
    summary = campaign(wanted, tmp_path)
    assert summary["violations"] == [], capsys.readouterr().out
    assert (summary["messages"], summary["restarts"]) == (8, 1)
    assert cast(int, summary["kills"]) > 0
