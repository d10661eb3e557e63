"""A Hypothesis state machine that drives a World at random and compares it with lists (``world_model``).

    run_state_machine_as_test(machine_for(Subject("sqlite:agents.db")))

The only module that imports Hypothesis. Each run of the machine has an app and an event loop of its own, two
open instances, and a wall clock that jumps.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import os
import uuid
from collections.abc import Awaitable, Coroutine
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harness_durable import clock
from harness_durable.errors import Conflict, NotFound, SessionBusy, WriterFenced
from harness_durable.testing.world_child import load_opener
from harness_durable.testing.world_model import Append, Model, Session, Worker
from harness_durable.testing.worlds.bench import Subject, refused
from harness_durable.testing.worlds.process import expect
from harness_durable.world import Claim, Owner, Record, RowUpdate, World

T = TypeVar("T")
HOUR = 3_600_000

PICK = st.integers(0, 7)
NAMES = st.sampled_from(("a", "a", "b"))
COUNTS = st.integers(1, 3)
ROWS = st.sampled_from((None, "parked", "now", "long ago", "in an hour"))
BODIES = st.binary(max_size=40)


class JumpingClock:
    """The wall clock can be set; everything else is the real clock."""

    def __init__(self) -> None:
        self._real, self.offset = clock.current(), 0

    def now_ms(self) -> int:
        return self._real.now_ms() + self.offset

    def monotonic(self) -> float:
        return self._real.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._real.sleep(seconds)


def row_update(name: str | None) -> RowUpdate | None:
    """Due times lie a second or more from now, so that no answer depends on the pace of the test."""
    due = {"now": -2_000, "long ago": -500_000, "in an hour": HOUR}
    if name is None:
        return None
    return RowUpdate(name, clock.now_ms() + due[name] if name in due else None)


class WorldMachine(RuleBasedStateMachine):
    """Drives ``subject``; see :func:`machine_for`."""

    subject: Subject

    @initialize()
    def open(self) -> None:
        self.runner = asyncio.Runner()
        self.clock = JumpingClock()
        self._clock_in_use = clock.use(self.clock)
        self._clock_in_use.__enter__()
        self.app = f"machine-{uuid.uuid4().hex[:12]}"
        self.model = Model()
        self._ids = itertools.count(1)
        self.worlds = [self.run(self._open()) for _ in range(2)]
        for instance in range(2):
            self.register(instance)
        self.create(0, "a", 1, b"begun", "now")
        self.claim_by_name(0, "a", take_over=False)

    def teardown(self) -> None:
        if not hasattr(self, "worlds"):
            return
        for world in self.worlds:
            self.run(world.aclose())
        self.runner.close()
        self._clock_in_use.__exit__(None, None, None)

    def run(self, coroutine: Coroutine[object, object, T]) -> T:
        return self.runner.run(coroutine)

    async def _open(self) -> World:
        return await load_opener(self.subject.opener)(self.subject.url, self.app)

    def world(self, pick: int) -> World:
        return self.worlds[pick % len(self.worlds)]

    def fresh(self, count: int, body: bytes) -> list[Record]:
        ids = (f"r{next(self._ids)}" for _ in range(count))
        return [Record(one, "machine.note", clock.now_ms(), body) for one in ids]

    def told_offset(self) -> int:
        """What a store with a clock of its own takes off a due time that it is told now."""
        return self.clock.offset if self.subject.own_clock else 0

    def due_at(self, name: str) -> int:
        session = self.model.sessions[name]
        return (session.row.due or 0) - session.offset

    def live(self, pick: int) -> Worker:
        live = [worker for worker in self.model.workers if worker.state == "live"]
        return live[pick % len(live)]

    # ----------------------------------------------------------------------------- the log

    @rule(pick=PICK, name=NAMES, count=COUNTS, body=BODIES, row=ROWS)
    def create(self, pick: int, name: str, count: int, body: bytes, row: str | None) -> None:
        records, update = self.fresh(count, body), row_update(row) or RowUpdate("parked", None)
        made = self.run(self.world(pick).create(name, records, update))
        expect(made is (name not in self.model.sessions), f"create({name!r}) gave {made}")
        if made:
            session = self.model.sessions[name] = Session(update, offset=self.told_offset())
            session.add(0, records)

    @rule(pick=PICK, name=NAMES, stale=st.integers(0, 2), count=COUNTS, body=BODIES, row=ROWS)
    def append_as_outsider(
        self, pick: int, name: str, stale: int, count: int, body: bytes, row: str | None
    ) -> None:
        if session := self.model.sessions.get(name):
            head = max(0, session.head - stale)
            self._append(pick, Append(name, head, 0, self.fresh(count, body)), row_update(row))

    @precondition(lambda self: self.model.drivers)
    @rule(pick=PICK, which=PICK, count=COUNTS, body=BODIES, row=ROWS)
    def append_as_driver(self, pick: int, which: int, count: int, body: bytes, row: str | None) -> None:
        """Whoever claimed, also long ago, goes on from the head that it knows."""
        driver = self.model.drivers[which % len(self.model.drivers)]
        append = Append(driver.session, driver.head, driver.epoch, self.fresh(count, body))
        verdict = self._append(pick, append, row_update(row))
        if verdict in ("moved", "ok"):
            driver.head = self.model.sessions[driver.session].head

    @precondition(lambda self: self.model.drivers)
    @rule(pick=PICK, which=PICK)
    def append_as_driver_who_read_the_log(self, pick: int, which: int) -> None:
        """A superseded driver that knows the newest head is refused all the same."""
        driver = self.model.drivers[which % len(self.model.drivers)]
        head = self.model.sessions[driver.session].head
        self._append(pick, Append(driver.session, head, driver.epoch, self.fresh(1, b"")), None)

    def _append(self, pick: int, append: Append, row: RowUpdate | None) -> str:
        model, name = self.model, append.session
        verdict = model.verdict(name, append.head, append.epoch)
        body = append.records[0].body
        blobs = {hashlib.sha256(body).hexdigest(): body}
        call = self.world(pick).append(
            name,
            expected_head=append.head,
            epoch=append.epoch,
            records=append.records,
            blobs=blobs,
            row=row,
        )
        if verdict == "gone":
            self.run(refused(call, NotFound, "an append to no session"))
        elif verdict == "fenced":
            self.run(refused(call, WriterFenced, f"an append by epoch {append.epoch}"))
        elif verdict == "moved":
            error = self.run(refused(call, Conflict, f"an append at {append.head}"))
            between = model.sessions[name].log[append.head :]
            expect(list(error.records) == between, "the conflict carries other records")
        else:
            head = self.run(_given(call))
            model.appended(append, blobs, row, self.told_offset())
            expect(head == model.sessions[name].head, f"append returned head {head}")
        return verdict

    @precondition(lambda self: self.model.appends)
    @rule(pick=PICK, which=st.integers(0, 99))
    def repeat_an_append_whose_answer_was_lost(self, pick: int, which: int) -> None:
        append = self.model.appends[-1 - which % len(self.model.appends)]
        call = self.world(pick).append(
            append.session, expected_head=append.head, epoch=append.epoch, records=append.records
        )
        head = self.run(_given(call))
        wanted = append.head + len(append.records)
        expect(head == wanted, f"a repeated append returned {head}, not {wanted}")

    # ---------------------------------------------------------------------------- ownership

    @rule(instance=st.integers(0, 1))
    def register(self, instance: int) -> None:
        owner = Owner(str(uuid.uuid4()), os.uname().nodename, os.getpid())
        self.run(self.worlds[instance].register(owner))
        self.model.workers.append(Worker(owner, instance))

    @precondition(lambda self: any(one.state == "live" for one in self.model.workers))
    @rule(pick=PICK, limit=st.integers(1, 3))
    def claim(self, pick: int, limit: int) -> None:
        worker = self.live(pick)
        must, may = self.model.offers(clock.now_ms() - self.told_offset())
        claims = self.run(self.worlds[worker.instance].claim(worker.owner, limit))
        names = [claim.session for claim in claims]
        expect(len(set(names)) == len(names), f"claim offered {names}")
        expect(set(names) <= must | may, f"claim offered {names} where {must | may} are due and free")
        expect(len(names) == limit or must <= set(names), f"claim({limit}) gave {names} of {must}")
        due = [self.due_at(name) for name in names]
        expect(due == sorted(due), f"claim offered {names}, which are due at {due}")
        passed = [self.due_at(name) for name in must - set(names)]
        late = f"claim({limit}) gave {names} and passed over what is due longer"
        expect(not due or all(other >= due[-1] for other in passed), late)
        for claim in claims:
            self._claimed(worker, claim.session, claim.epoch)

    @precondition(lambda self: any(one.state == "live" for one in self.model.workers))
    @rule(pick=PICK, name=NAMES, take_over=st.booleans())
    def claim_by_name(self, pick: int, name: str, take_over: bool) -> None:
        session = self.model.sessions.get(name)
        if session is None or not any(one.state == "live" for one in self.model.workers):
            return
        worker = self.live(pick)
        call = self.worlds[worker.instance].claim_session(worker.owner, name, take_over=take_over)
        if session.hold == "held" and session.holder is not worker and not take_over:
            self.run(refused(call, SessionBusy, "claiming what a live worker holds"))
        elif session.hold == "unsure" and not take_over:
            if self.run(_succeeds(call, SessionBusy)):
                self._claimed(worker, name, session.epoch + 1)
        else:
            self._claimed(worker, name, self.run(_given(call)).epoch)

    @precondition(lambda self: self.model.drivers)
    @rule(pick=PICK, which=PICK, count=COUNTS)
    def supersede_a_driver_that_goes_on(self, pick: int, which: int, count: int) -> None:
        """What I6 is about, as one step, because chance alone rarely gets there."""
        driver = self.model.drivers[which % len(self.model.drivers)]
        self.claim_by_name(pick, driver.session, take_over=True)
        for head in (driver.head, self.model.sessions[driver.session].head):
            append = Append(driver.session, head, driver.epoch, self.fresh(count, b"late"))
            self._append(pick, append, None)

    def _claimed(self, worker: Worker, name: str, epoch: int) -> None:
        session, world = self.model.sessions[name], self.worlds[worker.instance]
        expect(epoch > session.epoch, f"a claim has epoch {epoch} after {session.epoch}")
        (record,) = self.run(_given(world.read(name, after=session.head)))
        expect(record.kind == "session.claimed" and record.epoch == epoch, f"no claim record: {record}")
        self.model.claimed(worker, Claim(name, epoch, record.seq, None), record)

    @precondition(lambda self: self.model.drivers)
    @rule(pick=PICK, which=PICK)
    def release(self, pick: int, which: int) -> None:
        driver = self.model.drivers[which % len(self.model.drivers)]
        self.run(_given(self.world(pick).release(driver.session, driver.epoch)))
        self.model.released(driver)

    @precondition(lambda self: any(one.state == "live" for one in self.model.workers))
    @rule(pick=PICK)
    def renew(self, pick: int) -> None:
        worker = self.live(pick)
        self.run(_given(self.worlds[worker.instance].renew(worker.owner)))

    @precondition(lambda self: any(one.state == "live" for one in self.model.workers))
    @rule(pick=PICK)
    def leave(self, pick: int) -> None:
        worker = self.live(pick)
        self.run(_given(self.worlds[worker.instance].unregister(worker.owner)))
        worker.state = "left"

    @rule(instance=st.integers(0, 1))
    def crash_and_reopen(self, instance: int) -> None:
        """Its workers vanish without a word. (A true SIGKILL needs a process: see the suite.)"""
        self.run(self.worlds[instance].aclose())
        self.model.vanished(instance)
        self.worlds[instance] = self.run(self._open())

    @rule(by=st.sampled_from((-48 * HOUR, -HOUR, HOUR, 48 * HOUR)))
    def jump_the_wall_clock(self, by: int) -> None:
        """What is due may change; who is live must not."""
        self.clock.offset += by

    # ------------------------------------------------------------------------------ the rest

    @rule(pick=PICK, name=NAMES, body=BODIES)
    def put_a_snapshot(self, pick: int, name: str, body: bytes) -> None:
        if session := self.model.sessions.get(name):
            session.snapshot = (session.head, body)
            self.run(self.world(pick).put_snapshot(name, session.head, body))

    @rule(pick=PICK, name=NAMES)
    def ask_for_what_is_not_there(self, pick: int, name: str) -> None:
        if name in self.model.sessions:
            return
        world, nobody = self.world(pick), self.model.workers[0]
        append = world.append(name, expected_head=0, epoch=0, records=self.fresh(1, b""))
        self.run(refused(append, NotFound, "an append to no session"))
        self.run(refused(world.put_snapshot(name, 1, b""), NotFound, "a snapshot of no session"))
        self.run(refused(world.delete(name), NotFound, "deleting no session"))
        if nobody.state == "live":
            claim = self.worlds[nobody.instance].claim_session(nobody.owner, name)
            self.run(refused(claim, NotFound, "claiming no session"))

    @rule(pick=PICK, name=NAMES, sure=st.booleans())
    def delete(self, pick: int, name: str, sure: bool) -> None:
        session = self.model.sessions.get(name)
        if session is None or not sure:
            return
        call = self.world(pick).delete(name)
        if session.hold == "held":
            self.run(refused(call, SessionBusy, "deleting what a live worker holds"))
        elif session.hold == "free":
            self.run(_given(call))
            self.model.deleted(name)
        elif self.run(_succeeds(call, SessionBusy)):
            self.model.deleted(name)

    # ---------------------------------------------------------------------------- invariants

    @invariant()
    def every_log_is_what_was_acknowledged(self) -> None:
        if hasattr(self, "worlds"):
            self.run(self._compare())

    async def _compare(self) -> None:
        for world in self.worlds:
            rows = {row.session: row for row in await world.sessions()}
            expect(sorted(rows) == sorted(self.model.sessions), f"the sessions are {sorted(rows)}")
            for name, session in self.model.sessions.items():
                row, log = rows[name], await world.read(name)
                expect(log == session.log, f"the log of {name} is {log}, not {session.log}")
                facts = (row.head, row.epoch, row.status, row.due)
                wanted = (session.head, session.epoch, session.row.status, session.row.due)
                expect(facts == wanted, f"the row of {name} is {facts}, not {wanted}")
                alive = f"{name}: owner_alive is {row.owner_alive}, but it is {session.hold}"
                expect(session.hold == "unsure" or row.owner_alive is (session.hold == "held"), alive)
                expect(await world.snapshot(name) in (None, session.snapshot), "another snapshot")
                blobs = {sha: body async for sha, body in world.blobs(name)}
                expect(blobs == session.blobs, f"the blobs of {name} are {blobs}")


async def _given(call: Awaitable[T]) -> T:
    return await call


async def _succeeds(call: Awaitable[object], unless: type[Exception]) -> bool:
    """Both answers are right; which one was it?"""
    try:
        await call
    except unless:
        return False
    return True


def machine_for(subject: Subject) -> type[WorldMachine]:
    """The machine for one World; every run uses a fresh app in that store."""
    return type("Machine", (WorldMachine,), {"subject": subject})
