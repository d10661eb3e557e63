"""Lives that nobody comes back for are ended; a life that somebody may come back for never is."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from harness_durable import recovery
from harness_durable.errors import DamagedLog, SandboxUnavailable, StorageUnavailable
from harness_durable.runtime.equipment import Equipment
from harness_durable.runtime.orphans import Sweeper
from harness_durable.runtime.worker import Worker
from harness_durable.sandbox import FoundLife, LifeRef, LifeSpec, Link
from harness_durable.state import Life, Session
from harness_durable.world import RowUpdate, StoredRecord
from harness_durable.worlds import origin
from tests.runtime.kit import (
    HandClock,
    Harness,
    Place,
    Store,
    Works,
    accepted,
    equipped,
    is_,
    state_of,
    until,
)
from tests.runtime.test_service_slots import serving
from tests.unit.memory_world import OTHER
from tests.unit.session_kit import SESSION, begun, life, taken


class Host(Place):
    """A place that can tell which lives it has, and whose they are."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, FoundLife] = {}

    async def start(self, spec: LifeSpec, epoch: int) -> tuple[LifeRef, Link]:
        self.put(spec.life, spec.session, spec.origin)
        return await super().start(spec, epoch)

    def put(self, name: str, session: str, whose: str) -> None:
        """There is a life of that name."""
        self.lives.add(name)
        self.found[name] = FoundLife(self.locate(name), session, whose)

    async def list_lives(self) -> Sequence[FoundLife]:
        return [found for name, found in self.found.items() if name in self.lives]


async def swept(world: Store, equipment: Equipment) -> list[str]:
    async with Worker.open(world, equipment) as worker:
        return await Sweeper(worker).sweep()


def with_lives(*ended: int | None) -> Session:
    lives = {
        f"L{number}": Life(f"L{number}", number, "m-1", "local", "run", "here", "1", 1, ended=end)
        for number, end in enumerate(ended, 1)
    }
    return Session(lives=lives)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (with_lives(None), ""),
        (with_lives(5), "it is over"),
        (with_lives(None, None), "a newer life"),
        (with_lives(5, None), "it is over"),
        (Session(), "does not know"),
    ],
)
def test_only_the_log_decides(state: Session, why: str) -> None:
    told = recovery.orphaned(state, "L1")
    assert (why in told, bool(told)) == (True, bool(why))


async def test_a_life_that_another_host_has_given_up_is_ended_here(caplog: pytest.LogCaptureFixture) -> None:
    """Its worker here was away; the session went on elsewhere, and the log says that this life is over."""
    world, here = Store(), Host()
    equipment = equipped(None, here)
    journal = await begun(world)
    here.put("L1", SESSION, equipment.origin)
    assert await swept(world, equipment) == []
    await journal.life_ended("L1", "lost with its worker; it was on here, which cannot be reached from there")
    with caplog.at_level("INFO"):
        assert await swept(world, equipment) == ["L1"]
    assert (here.reaped, here.lives) == (["L1"], set())
    assert any("L1 of session s was left behind" in message for message in caplog.messages)


async def test_the_newest_life_is_left_alone_however_long_nobody_has_driven_it() -> None:
    world, here = Store(), Host()
    equipment = equipped(None, here)
    await begun(world)
    here.put("L1", SESSION, equipment.origin)
    await world.release(SESSION, 1)
    assert await swept(world, equipment) == []
    await taken(world, OTHER)  # also under a newer owner, who may attach to it at any moment
    assert await swept(world, equipment) == []
    assert here.lives == {"L1"}


async def test_an_older_life_is_ended_as_soon_as_there_is_a_newer_one() -> None:
    world, here = Store(), Host()
    equipment = equipped(None, here)
    journal = await begun(world)
    here.put("L1", SESSION, equipment.origin)
    here.put("L2", SESSION, equipment.origin)
    await life(journal, "L2")
    assert await swept(world, equipment) == ["L1"]
    assert here.lives == {"L2"}


async def test_lives_of_a_deleted_session_are_ended() -> None:
    world, here = Store(), Host()
    equipment = equipped(None, here)
    here.put("L1", "deleted", equipment.origin)
    assert await swept(world, equipment) == ["L1"]


async def test_a_sandbox_that_cannot_be_asked_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is one forgotten which this worker does not use, if somebody has used it here before."""

    class Away(Host):
        async def list_lives(self) -> Sequence[FoundLife]:
            raise SandboxUnavailable("its engine is away; start it")

    world, here = Store(), Host()
    equipment = equipped(None, Away(), run_dir=tmp_path)
    assert equipment.sandboxes() == ["local"]
    (tmp_path / "docker").mkdir()
    assert equipment.sandboxes() == ["local"], "there is no life in it"
    (tmp_path / "docker/L1").mkdir()
    assert equipment.sandboxes() == ["local", "docker"]
    equipment = Equipment(equipment.settings, _sandboxes={"local": Away(), "docker": here})
    here.put("L1", "deleted", equipment.origin)
    assert await swept(world, equipment) == ["L1"]
    assert any("in local could not be looked for: its engine" in message for message in caplog.messages)


async def test_a_local_life_is_found_by_a_worker_that_uses_another_sandbox(tmp_path: Path) -> None:
    """As after a change of the default: a crash before it left lives that nobody would look for."""

    class Away(Host):
        async def list_lives(self) -> Sequence[FoundLife]:
            raise SandboxUnavailable("its engine is away; start it")

    settings = equipped(None, None, run_dir=tmp_path / "run", sandbox="docker").settings
    equipment = Equipment(settings, _sandboxes={"docker": Away()})
    left = tmp_path / "run/L1"
    left.mkdir(parents=True)
    (left / "origin.json").write_text(json.dumps({"session": "deleted", "origin": equipment.origin}))
    assert await swept(Store(), equipment) == ["L1"]
    assert not left.exists()


async def test_lives_of_other_apps_and_other_worlds_are_none_of_our_business() -> None:
    world, here = Store(), Host()
    equipment = equipped(None, here, world="sqlite:one.db", app="mine")
    for number, (url, app) in enumerate([("sqlite:one.db", "yours"), ("sqlite:two.db", "mine")]):
        here.put(f"L{number}", "the-same-name", origin(url, app))
    here.put("old", "the-same-name", "")
    here.put("ours", "the-same-name", origin("sqlite:./one.db", "mine"))
    assert await swept(world, equipment) == ["ours"]
    assert here.reaped == ["ours"]


async def test_a_life_that_is_on_another_host_is_left_to_that_host() -> None:
    world, here = Store(), Host()
    equipment = equipped(None, here)
    journal = await begun(world)
    here.put("L1", SESSION, equipment.origin)
    here.foreign.add("L1")
    await journal.life_ended("L1", "over")
    assert await swept(world, equipment) == []


async def test_a_sweep_during_the_slow_start_of_a_life_does_not_end_it() -> None:
    """It is in the log before its directory is made, so that whoever sees the one knows the other."""
    world, here, works = Store(), Host(), Works()
    equipment = equipped(Harness(works), here)
    await accepted(world, "m-1")
    swept_meanwhile: list[list[str]] = []

    async def started() -> None:
        for _ in range(3):
            async with Worker.open(world, equipped(None, here)) as other:
                swept_meanwhile.append(await Sweeper(other).sweep())

    here.started = started
    async with serving(world, equipment):
        await works.begun.wait()
        assert swept_meanwhile == [[], [], []]
        works.enough.set()
        await until(is_(world, "completed"))
    assert len((await state_of(world)).lives) == 1


async def test_a_slow_owner_whose_session_went_on_elsewhere_loses_its_life_and_writes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reaper racing a slow owner: the log has decided before the reaper looks."""
    world, here, works = Store(), Host(), Works()
    await accepted(world, "m-1")
    async with serving(world, equipped(Harness(works), here)):
        await works.begun.wait()
        [name] = here.lives
        elsewhere = await taken(world, OTHER)  # and its owner here has not heard of it yet
        async with Worker.open(world, equipped(None, here)) as reaper:
            assert await Sweeper(reaper).sweep() == [], "the new owner may attach to it"
            await elsewhere.life_lost(name, "it was on here, which cannot be reached")
            assert await Sweeper(reaper).sweep() == [name]
        await until(lambda: _heard(caplog, "superseded"))
    records = await world.read(SESSION)
    last_claim = max(record.seq for record in records if record.kind == "session.claimed")
    assert all(record.epoch in (0, 2) for record in records if record.seq >= last_claim)


async def test_every_worker_sweeps_at_its_start_and_again_and_again(hands: HandClock) -> None:
    world, here = Store(), Host()
    equipment = equipped(None, here, lease_seconds=3600)
    here.put("L1", "deleted", equipment.origin)
    async with serving(world, equipment):
        await until(lambda: _gone(here), hands)
        here.put("L2", "deleted", equipment.origin)
        await hands.advance(37)
        await until(lambda: _gone(here))


async def test_trouble_with_sweeping_is_only_logged(
    hands: HandClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Host):
        async def list_lives(self) -> Sequence[FoundLife]:
            raise StorageUnavailable("the disk is full; free some space")

    world = Store()
    await accepted(world, "m-1")
    async with serving(world, equipped(None, Broken(), lease_seconds=3600)):
        await until(is_(world, "completed"), hands)
    assert any("could not be looked for" in message for message in caplog.messages)


async def test_a_session_that_cannot_be_read_keeps_no_other_life_from_being_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Damaged(Store):
        async def read(self, session: str, after: int = 0, limit: int | None = None) -> list[StoredRecord]:
            if session not in self.stored:
                return await super().read(session, after, limit)
            raise DamagedLog(f"session {session!r}", 0, None, "one record")

    world, here = Damaged(), Host()
    equipment = equipped(None, here)
    await world.create("bad", [], RowUpdate("idle", None))
    here.put("L1", "bad", equipment.origin)
    here.put("L2", "deleted", equipment.origin)
    assert await swept(world, equipment) == ["L2"]
    assert here.lives == {"L1"}
    assert any("L1 of session bad is left as it is" in message for message in caplog.messages)


async def test_keepers_are_told_how_long_to_wait_for_a_worker() -> None:
    world, specs = Store(), list[LifeSpec]()

    class Asks(Place):
        async def start(self, spec: LifeSpec, epoch: int) -> tuple[LifeRef, Link]:
            specs.append(spec)
            return await super().start(spec, epoch)

    await accepted(world, "m-1")
    equipment = equipped(None, Asks(), orphan_ttl_seconds=120)
    async with serving(world, equipment):
        await until(is_(world, "completed"))
    assert [(spec.ttl, spec.session, spec.origin) for spec in specs] == [(120, SESSION, equipment.origin)]


async def _gone(here: Host) -> bool:
    await anyio.lowlevel.checkpoint()
    return not here.lives


async def _heard(caplog: pytest.LogCaptureFixture, word: str) -> bool:
    return any(word in message for message in caplog.messages)


async def test_what_a_host_keeps_beside_the_log_goes_with_the_session(tmp_path: Path) -> None:
    world = Store()
    await accepted(world)
    equipment = equipped(run_dir=str(tmp_path))
    gone, there, fresh = (equipment.beside(name) for name in ("gone", SESSION, "just-now"))
    for folder in (gone, there, fresh):
        (folder / "scratch").mkdir(parents=True)
    for folder in (gone, there):
        os.utime(folder, (0, 0))
    await swept(world, equipment)
    assert (gone.exists(), there.exists(), fresh.exists()) == (False, True, True)
