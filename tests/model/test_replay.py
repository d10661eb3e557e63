"""Random walks through ``Fence.tla``, replayed step by step on each real World.

What the model checker says of the model is worth something if the Worlds do what the model does: after each
step head, epoch, owner and due time have to be the twin's, and every refusal of the same kind.
"""

from __future__ import annotations

import itertools
import os
import random
import uuid
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from harness_durable.errors import HarnessDurableError
from harness_durable.world import Owner, Record, RowUpdate, StoredRecord, World
from harness_durable.worlds import open_world
from tests.model.twin import OK, Entry, Pen, Twin, broken
from tests.worlds import reference, subjects

WALKS, STEPS, DRIVERS = 30, 40, 3
DUE, PARKED = RowUpdate("queued", 1), RowUpdate("parked", None)


async def answer(call: Awaitable[object]) -> str:
    """What the World says: "ok", or the name of its refusal."""
    try:
        await call
    except HarnessDurableError as refusal:
        return type(refusal).__name__
    return OK


class Walk:
    """One session, on a store that two instances have open; a driver keeps to one of them."""

    def __init__(self, worlds: Sequence[World], session: str, seed: int) -> None:
        self.worlds, self.session, self.twin = worlds, session, Twin()
        self.random = random.Random(seed)
        self.owners: dict[int, Owner] = {}
        self.said: list[str] = []
        self._ids = itertools.count()

    def record(self, kind: str) -> Record:
        return Record(f"{self.session}-{next(self._ids)}", f"model.{kind}", 1, b"")

    def world(self, driver: int) -> World:
        return self.worlds[driver % len(self.worlds)]

    async def owner(self, driver: int) -> Owner:
        if driver not in self.owners:
            self.owners[driver] = Owner(str(uuid.uuid4()), "here", os.getpid())
            await self.world(driver).register(self.owners[driver])
        return self.owners[driver]

    async def step(self) -> None:
        driver = self.random.randrange(DRIVERS)
        pens = self.twin.pens
        steps = [self.accept, self.queue, self.polite, self.take_over, self.crash]
        steps += [self.work, self.work, self.park, self.release, self.read, self.repeat] if pens else []
        chosen = self.random.choice(steps)
        wanted, got = await chosen(driver)
        self.said.append(f"{chosen.__name__}({driver}): {got}")
        assert got == wanted, f"{self.said}: the model says {wanted}"
        await self.compare()

    # Each returns (what the model says, what the World says).

    async def accept(self, driver: int) -> tuple[str, str]:
        head = self.twin.head
        record = [self.record("message")]
        call = self.world(driver).append(self.session, expected_head=head, epoch=0, records=record, row=DUE)
        return self.twin.accept(), await answer(call)

    async def queue(self, driver: int) -> tuple[str, str]:
        """The sweep: whoever is due and free is claimed."""
        offered = self.twin.offered()
        claims = await self.world(driver).claim(await self.owner(driver), 1)
        if offered:
            self.twin.claim(driver, take_over=False)
        return str(offered), str([claim.session for claim in claims] == [self.session])

    async def polite(self, driver: int) -> tuple[str, str]:
        call = self.world(driver).claim_session(await self.owner(driver), self.session)
        return self.twin.claim(driver, take_over=False), await answer(call)

    async def take_over(self, driver: int) -> tuple[str, str]:
        call = self.world(driver).claim_session(await self.owner(driver), self.session, take_over=True)
        return self.twin.claim(driver, take_over=True), await answer(call)

    def pen(self) -> Pen:
        """Of anybody who ever claimed and has not died: mostly of the newest, often of one that slept."""
        pens = self.twin.pens
        return pens[-1] if self.random.random() < 0.6 else self.random.choice(pens)

    async def write(self, pen: Pen, kind: str) -> tuple[str, str]:
        call = self.world(pen.driver).append(
            self.session,
            expected_head=pen.head,
            epoch=pen.epoch,
            records=[self.record(kind)],
            row=PARKED if kind == "done" else None,
        )
        return self.twin.append(pen, kind), await answer(call)

    async def work(self, driver: int) -> tuple[str, str]:
        return await self.write(self.pen(), "work")

    async def park(self, driver: int) -> tuple[str, str]:
        pen = self.pen()
        wanted, got = await self.write(pen, "done")
        if wanted == got == OK:
            self.twin.release(pen)
            got = await answer(self.world(pen.driver).release(self.session, pen.epoch))
        return wanted, got

    async def release(self, driver: int) -> tuple[str, str]:
        """Given back although there is work: by whoever drives, or too late by one who was superseded."""
        pen = self.pen()
        call = self.world(pen.driver).release(self.session, pen.epoch)
        return self.twin.release(pen), await answer(call)

    async def read(self, driver: int) -> tuple[str, str]:
        """A driver looks at the log: whatever it missed, it goes on from the head."""
        pen = self.pen()
        missed = await self.world(pen.driver).read(self.session, pen.head)
        pen.head = missed[-1].seq if missed else pen.head
        return str(self.twin.head), str(pen.head)

    async def repeat(self, driver: int) -> tuple[str, str]:
        """A lost answer: anything that is in the log is appended again as it was."""
        log = await self.world(driver).read(self.session)
        old = self.random.choice(log)
        same = [Record(old.id, old.kind, old.time, old.body)]
        call = self.world(driver).append(
            self.session, expected_head=old.seq - 1, epoch=old.epoch, records=same
        )
        return OK, await answer(call)

    async def crash(self, driver: int) -> tuple[str, str]:
        call = self.world(driver).unregister(await self.owner(driver))
        del self.owners[driver]
        return self.twin.crash(driver), await answer(call)

    async def compare(self) -> None:
        twin = self.twin
        for world in self.worlds:
            row = await world.session(self.session)
            alive = row.owner if row.owner_alive else None
            assert (row.head, row.epoch) == (twin.head, twin.epoch), self.said
            assert (row.due is not None) == twin.due, self.said
            assert alive == (None if twin.owner is None else self.owners[twin.owner]), self.said

    async def end(self) -> None:
        """The log is the twin's, and keeps the model's invariants. Nothing is left for the next walk."""
        log = [entry_of(record) for record in await self.worlds[1].read(self.session)]
        assert [entry[::2] for entry in log] == [entry[::2] for entry in self.twin.log], self.said
        assert broken(self.twin.log, self.twin.due) == []
        for driver in list(self.owners):
            await self.crash(driver)
        await self.worlds[0].delete(self.session)


def entry_of(record: StoredRecord) -> Entry:
    kind = "claim" if record.kind == "session.claimed" else record.kind.removeprefix("model.")
    return Entry(kind, -1, record.epoch)


@pytest.mark.parametrize("world", subjects.URLS)
async def test_a_world_walks_as_the_model_does(world: str, tmp_path: Path) -> None:
    url = subjects.URLS[world](tmp_path)
    await walk_on([await open_world(url, "model") for _ in range(2)])


@pytest.mark.parametrize("mutant", ["no-cas", "no-fence", "release-any", "no-outbox", "two-owners"])
async def test_a_world_that_walks_otherwise_is_found_out(mutant: str, tmp_path: Path) -> None:
    url = subjects.plain(tmp_path, mutant).url
    with pytest.raises(AssertionError):
        await walk_on([await reference.open_world(url, "model") for _ in range(2)])


async def walk_on(worlds: Sequence[World]) -> None:
    try:
        for seed in range(WALKS):
            session = f"walk-{seed}"
            walk = Walk(worlds, session, seed)
            await worlds[0].create(session, [walk.record("message")], DUE)
            for _ in range(STEPS):
                await walk.step()
            await walk.end()
    finally:
        for each in worlds:
            await each.aclose()


@pytest.mark.parametrize(
    ("log", "due", "wrong"),
    [
        ([Entry("claim", 0, 1), Entry("claim", 1, 2), Entry("work", 0, 1)], True, "OneWriter at 3"),
        ([Entry("claim", 0, 2), Entry("claim", 1, 2)], True, "EpochsGrow at 2"),
        ([Entry("claim", 0, 1), Entry("done", 0, 1), Entry("message", -1, 0)], False, "NoMessageForgotten"),
    ],
)
def test_the_twin_knows_a_broken_log(log: list[Entry], due: bool, wrong: str) -> None:
    assert broken(log, due) == [wrong]
