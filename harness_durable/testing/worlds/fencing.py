"""Checks that a superseded owner writes nothing (W2) and that one claimer wins (W3)."""

from __future__ import annotations

import signal

from harness_durable import clock
from harness_durable.errors import SessionBusy, WriterFenced
from harness_durable.testing.world_child import Append, ClaimDue, ClaimOne, Pour
from harness_durable.testing.worlds.bench import (
    Bench,
    add,
    begin,
    dense,
    due_now,
    note,
    refused,
    together,
    worker,
)
from harness_durable.testing.worlds.process import Child, expect
from harness_durable.world import Claim, Owner, StoredRecord, World

RACERS = 4
SHORT_LEASE = 1.0


async def a_superseded_owner_is_refused(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    await begin(world, "s")
    first, second = await worker(world), await worker(other)
    old = await world.claim_session(first, "s")
    head = await add(world, "s", old.head, old.epoch)
    new = await other.claim_session(second, "s", take_over=True)
    expect(new.epoch > old.epoch, f"the take-over has epoch {new.epoch}, not more than {old.epoch}")
    expect(new.head == head + 1, f"the claim record is at {new.head}, not {head + 1}")
    expect(new.previous == first, f"the take-over names {new.previous} as previous, not {first}")
    current = await add(other, "s", new.head, new.epoch)
    for stale in (head, new.head, current):
        for instance in (world, other):
            late = instance.append("s", expected_head=stale, epoch=old.epoch, records=[note(b"late")])
            await refused(late, WriterFenced, f"an append by epoch {old.epoch} at head {stale}")
    await world.release("s", old.epoch)
    row = await other.session("s")
    expect(row.owner == second and row.owner_alive, "a release by the old epoch freed the session")
    after = await add(other, "s", current, new.epoch)
    log = await world.read("s")
    dense(log, "a log after a take-over")
    expect(len(log) == after, "the refused appends left something in the log")
    return "refused at every head, by both instances"


async def a_take_over_in_the_middle_of_writing(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s")
    mine = await worker(world)
    refusals = 0
    for n in range(3):
        child = await bench.worker()
        claim = (await child.must(ClaimOne(0.0, "s", take_over=True))).claims[0]
        await child.send(Pour(0.0, "s", claim.head, claim.epoch, f"p{n}"))
        for _ in range(3):
            await child.reply()
        taken = await world.claim_session(mine, "s", take_over=True)
        acknowledged, refusal = await _until_refused(child)
        expect(refusal == "WriterFenced", f"the old owner's next append met {refusal}")
        refusals += 1
        log = await world.read("s")
        dense(log, "a log that was taken over")
        _driven_by_the_last_claim(log)
        expect(acknowledged < taken.head, "an append was acknowledged after the claim")
        await add(world, "s", taken.head, taken.epoch)
    return f"{refusals} owners superseded while they wrote"


async def _until_refused(child: Child) -> tuple[int, str]:
    """(last acknowledged head, name of the error) of a process that pours."""
    head = 0
    while not (reply := await child.reply()).error:
        head = reply.heads[0]
    return head, reply.error


def _driven_by_the_last_claim(log: list[StoredRecord]) -> None:
    """Every record's epoch is 0 or that of the last claim before it."""
    epoch = 0
    for record in log:
        if record.kind == "session.claimed":
            expect(record.epoch > epoch, f"claim {record.seq} has epoch {record.epoch} after {epoch}")
            epoch = record.epoch
        expect(record.epoch in (0, epoch), f"{record.seq} has epoch {record.epoch} under {epoch}")


async def an_owner_stopped_past_its_lease_is_fenced(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s", row=due_now())
    mine = await worker(world)
    child = await bench.worker(lease=SHORT_LEASE)
    begun = clock.monotonic()
    old = (await child.must(ClaimDue())).claims[0]
    child.signal(signal.SIGSTOP)
    taken = await bench.until("a stopped owner's lease end", lambda: world.claim(mine, 1))
    waited = clock.monotonic() - begun
    expect(waited > SHORT_LEASE * 0.9, f"a lease of {SHORT_LEASE} s was ended after {waited:.2f} s")
    head = await add(world, "s", taken[0].head, taken[0].epoch)
    child.signal(signal.SIGCONT)
    for stale in (old.head, head):
        late = await child.do(Append(0.0, "s", stale, old.epoch, (note(b"late"),)))
        expect(late.error == "WriterFenced", f"the woken owner's append met {late.error or 'success'}")
    log = await world.read("s")
    dense(log, "a log whose old owner woke up")
    expect(len(log) == head, "the woken owner wrote something")
    _driven_by_the_last_claim(log)
    return f"displaced {waited:.1f} s into a lease of {SHORT_LEASE} s, then refused"


async def one_claimer_wins(bench: Bench) -> str:
    world = await bench.world()
    names = [f"s{n}" for n in range(6)]
    for name in names:
        await begin(world, name, row=due_now())
    racers = await bench.workers(RACERS)
    start = clock.monotonic() + 0.05
    replies = await together(*(racer.must(ClaimDue(start, 6)) for racer in racers))
    won = [claim.session for reply in replies for claim in reply.claims]
    expect(len(set(won)) == len(won), f"a session was given to two claimers: {sorted(won)}")
    rest = await world.claim(await worker(world), 10)
    everything = sorted(won + [claim.session for claim in rest])
    expect(everything == names, f"claims of {names} gave {everything}")
    for name in names:
        await _has_one_claim(world, name)
    return f"{len(names)} sessions, {RACERS} processes"


async def one_claimer_by_name_wins(bench: Bench) -> str:
    world = await bench.world()
    racers = await bench.workers(RACERS)
    for n in range(4):
        await begin(world, f"s{n}")
        start = clock.monotonic() + 0.02
        replies = await together(*(racer.do(ClaimOne(start, f"s{n}")) for racer in racers))
        outcome = sorted(reply.error for reply in replies)
        wanted = sorted(["", *["SessionBusy"] * (RACERS - 1)])
        expect(outcome == wanted, f"{RACERS} claims by name ended as {outcome}")
        await _has_one_claim(world, f"s{n}")
    return f"4 sessions, {RACERS} processes each"


async def _has_one_claim(world: World, session: str) -> None:
    log = await world.read(session)
    dense(log, f"the log of {session}")
    claims = [record for record in log if record.kind == "session.claimed"]
    expect(len(claims) == 1, f"{session} has {len(claims)} claim records")
    row = await world.session(session)
    expect(row.epoch == claims[0].epoch, f"{session}: row has epoch {row.epoch}, log {claims[0].epoch}")


async def epochs_only_grow(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s", row=due_now())
    claims: list[Claim] = []

    async def released(mine: Owner) -> None:
        claims.append(await world.claim_session(mine, "s"))
        await world.release("s", claims[-1].epoch)

    async def left(mine: Owner) -> None:
        claims.extend(await world.claim(mine, 1))
        await world.unregister(mine)

    for leave in (released, left, released, left):
        await leave(await worker(world))
        await bench.close(world)
        world = await bench.world()
    child = await bench.worker()
    claims += (await child.must(ClaimOne(0.0, "s"))).claims
    await child.kill()
    mine = await worker(world)
    claims += await bench.until("a killed owner's release", lambda: world.claim(mine, 1))
    claims.append(await world.claim_session(await worker(world), "s", take_over=True))
    epochs = [claim.epoch for claim in claims]
    expect(epochs == sorted(set(epochs)) and epochs[0] > 0, f"epochs in order: {epochs}")
    log = await world.read("s")
    found = [(r.epoch, r.seq) for r in log if r.kind == "session.claimed"]
    wanted = [(claim.epoch, claim.head) for claim in claims]
    expect(found == wanted, f"claim records (epoch, seq) {found}, claims {wanted}")
    return f"epochs {epochs} over release, leaving, reopening, kill and take-over"


async def a_take_over_needs_to_be_asked_for(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    await begin(world, "s", row=due_now())
    first, second = await worker(world), await worker(other)
    await world.claim_session(first, "s")
    busy = await refused(other.claim_session(second, "s"), SessionBusy, "claiming a held session")
    expect(str(first.pid) in str(busy), f"the sentence does not name the holder: {busy}")
    expect(await other.claim(second, 5) == [], "claim offered a held session")
    return str(busy)


async def a_holder_that_claims_again_gets_a_new_epoch(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s", row=due_now())
    mine = await worker(world)
    old = await world.claim_session(mine, "s")
    expect(await world.claim(mine, 5) == [], "claim offered a session to the worker that holds it")
    new = await world.claim_session(mine, "s")
    expect(new.epoch > old.epoch, f"the holder's second claim has epoch {new.epoch} after {old.epoch}")
    expect(new.previous == mine, f"the holder's second claim names {new.previous} as previous")
    expect(new.displaced, "the holder's second claim says that its first driver is dead")
    late = world.append("s", expected_head=new.head, epoch=old.epoch, records=[note(b"late")])
    await refused(late, WriterFenced, "an append by the holder's first epoch")
    await add(world, "s", new.head, new.epoch)
    return f"epoch {new.epoch} fences the holder's own epoch {old.epoch}"


async def a_release_alone_fences_nobody(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    await begin(world, "s")
    mine = await worker(world)
    claim = await world.claim_session(mine, "s")
    await world.release("s", claim.epoch)
    head = await add(world, "s", claim.head, claim.epoch)
    newer = await other.claim_session(await worker(other), "s")
    expect(newer.head == head + 1, f"the next claim is at {newer.head}, not {head + 1}")
    late = world.append("s", expected_head=newer.head, epoch=claim.epoch, records=[note(b"late")])
    await refused(late, WriterFenced, "an append after release and the next claim")
    return "taken after the release, refused after the next claim"


async def a_deleted_sessions_writer_is_fenced_from_the_next(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    await begin(world, "s")
    mine = await worker(world)
    claim = await world.claim_session(mine, "s")
    await world.release("s", claim.epoch)
    await other.delete("s")
    head = await begin(other, "s")
    for stale in (head, claim.head):
        late = world.append("s", expected_head=stale, epoch=claim.epoch, records=[note(b"late")])
        await refused(late, WriterFenced, "an append by a driver of the deleted session")
    expect(len(await other.read("s")) == head, "a deleted session's driver wrote to the one made anew")
    return "refused in the session that was made anew"


async def a_claim_says_whether_the_previous_owner_may_live(bench: Bench) -> str:
    world = await bench.world()
    mine, rival = await worker(world), await worker(world)
    for name in ("killed", "stopped", "taken", "released"):
        await begin(world, name)
    killed, stopped = await bench.worker(), await bench.worker(lease=SHORT_LEASE)
    for child, name in ((killed, "killed"), (stopped, "stopped")):
        first = (await child.must(ClaimOne(0.0, name))).claims[0]
        expect(not first.displaced and first.previous is None, f"a first claim says {first}")
    await killed.kill()
    stopped.signal(signal.SIGSTOP)
    await world.claim_session(rival, "taken")
    released = await world.claim_session(rival, "released")
    await world.release("released", released.epoch)

    async def claimed(name: str) -> Claim | None:
        try:
            return await world.claim_session(mine, name)
        except SessionBusy:
            return None

    async def displaced(name: str) -> bool:
        claim = await bench.until(f"claiming {name!r}", lambda: claimed(name))
        return claim.displaced

    expect(not await displaced("killed"), "a killed owner is said to be alive, maybe")
    expect(await displaced("stopped"), "an owner that was stopped past its lease is said to be dead")
    expect(not await displaced("released"), "an owner that released is said to be displaced")
    taken = await world.claim_session(mine, "taken", take_over=True)
    expect(taken.displaced, "a live owner is taken over by name, and said to be dead")
    return "killed and released: no; stopped past its lease and taken over: maybe"
