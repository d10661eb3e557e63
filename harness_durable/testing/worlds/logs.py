"""Checks of the log itself: W1 (whole and dense), W4 (once), W5 (conflicts), W11 (lost answers)."""

from __future__ import annotations

from harness_durable import clock
from harness_durable.errors import BadInput, Conflict, StorageError, UsageError, WriterFenced
from harness_durable.testing.world_child import BATCH, Compete, Once, Pour, batch
from harness_durable.testing.worlds.bench import (
    PARKED,
    Bench,
    add,
    begin,
    content,
    dense,
    given,
    gone,
    note,
    refused,
    together,
    worker,
)
from harness_durable.testing.worlds.process import Child, expect
from harness_durable.world import MAX_RECORD

RACERS = 4
EACH = 12


async def appends_are_whole_and_dense(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    written = [note(b"first")]
    head = await begin(world, "s", *written)
    for size in (1, 7, 40):
        more = [note(b"%d of %d" % (n, size)) for n in range(size)]
        head = await world.append("s", expected_head=head, epoch=0, records=more)
        written += more
        expect(head == len(written), f"append returned head {head}, not {len(written)}")
    for reader in (world, other):
        log = await reader.read("s")
        dense(log, "a log read from its start")
        expect(content(log) == given(written), "the log does not hold what was appended, in order")
        part = await reader.read("s", after=5, limit=3)
        dense(part, "read(after=5, limit=3)", after=5)
        expect(len(part) == 3, f"read(limit=3) gave {len(part)} records")
        expect(await reader.read("s", after=head) == [], "read after the head gave records")
        row = await reader.session("s")
        expect(row.head == head, f"the row's head is {row.head}, not {head}")
    durability = (await world.describe()).durability
    expect(durability != "", "describe() does not say how durable an append is")
    return f"{head} records in 4 appends, read by two instances; durability as described: {durability}"


async def nothing_is_stored_of_what_is_refused(bench: Bench) -> str:
    world = await bench.world()
    head = await begin(world, "s")
    too_large = [note(b"small"), note(b"x" * (8 * MAX_RECORD))]
    try:
        await world.append("s", expected_head=head, epoch=0, records=too_large)
        seen = "a record of 8 MiB is taken"
        expect(len(await world.read("s")) == head + 2, "an append that succeeded is not in the log")
    except (UsageError, StorageError):
        seen = "a record of 8 MiB is refused"
        expect(len(await world.read("s")) == head, "part of a refused append is in the log")
    for bad in ("", "../s", "a/b", "-s", "s\n", "x" * 129):
        await refused(world.create(bad, [note()], PARKED), BadInput, f"create({bad!r})")
    missing = world.append("none", expected_head=0, epoch=0, records=[note()])
    await gone(missing, "append to no session")
    await gone(world.read("none"), "read of no session")
    await gone(world.session("none"), "the row of no session")
    return seen


async def racing_processes_leave_no_hole(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s")
    racers = await bench.workers(RACERS)
    start = clock.monotonic() + 0.05
    replies = await together(
        *(racer.must(Compete(start, "s", str(n), EACH)) for n, racer in enumerate(racers))
    )
    log = await world.read("s")
    dense(log, f"a log that {RACERS} processes raced for")
    expect(len(log) == 1 + RACERS * EACH, f"{len(log)} records, not {1 + RACERS * EACH}")
    for n, reply in enumerate(replies):
        found = tuple(record.seq for record in log if record.kind == f"check.{n}")
        expect(found == reply.heads, f"process {n} was told {reply.heads}; its records are at {found}")
    return f"{RACERS} processes, {RACERS * EACH} appends"


async def a_key_is_written_once_under_a_race(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s")
    racers = await bench.workers(RACERS)
    for key in ("m-1", "m-2", "m-3"):
        start = clock.monotonic() + 0.02
        replies = await together(
            *(racer.must(Once(start, "s", key, str(n))) for n, racer in enumerate(racers))
        )
        winners = [n for n, reply in enumerate(replies) if reply.wrote]
        places = {reply.heads for reply in replies}
        expect(len(winners) == 1, f"{len(winners)} of {RACERS} processes wrote key {key}")
        expect(len(places) == 1, f"the processes found key {key} at {sorted(places)}")
        log = await world.read("s")
        bodies = [record.body for record in log if record.kind == f"check.once:{key}"]
        expect(bodies == [str(winners[0]).encode()], f"key {key} is in the log as {bodies}")
    return f"3 keys, {RACERS} processes each"


async def a_session_is_created_once(bench: Bench) -> str:
    worlds = [await bench.world() for _ in range(3)]
    for n in range(8):
        records = [[note(b"%d" % place)] for place in range(len(worlds))]
        pairs = zip(worlds, records, strict=True)
        made = await together(*(world.create(f"s{n}", first, PARKED) for world, first in pairs))
        expect(sum(made) == 1, f"{sum(made)} of {len(worlds)} racing creations succeeded")
        log = await worlds[0].read(f"s{n}")
        expect(content(log) == given(records[made.index(True)]), "a refused creation left records")
        row = await worlds[1].session(f"s{n}")
        expect((row.head, row.epoch) == (1, 0), f"a new session has head, epoch {row.head, row.epoch}")
    return "8 creations raced by 3 instances"


async def a_moved_head_is_a_conflict(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    old = await begin(world, "s")
    head = old
    for count in (1, 2, 60):
        head = await add(other, "s", head, count=count)
        late = world.append("s", expected_head=old, epoch=0, records=[note(b"late")])
        error = await refused(late, Conflict, "an append at an old head")
        log = await world.read("s")
        expect(
            list(error.records) == log[old:],
            f"the conflict carries {[r.seq for r in error.records]}, not {old + 1} to {head}",
        )
        expect(len(log) == head, "an append that met a conflict is in the log")
    early = world.append("s", expected_head=head + 3, epoch=0, records=[note(b"early")])
    await refused(early, Conflict, "an append past the head")
    log = await other.read("s")
    expect(len(log) == head, "an append past the head is in the log")
    return f"1 to {head - old} records in between, and an append past the head"


async def the_same_records_again_are_not_doubled(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    mine = await worker(world)
    start = await begin(world, "s")
    claim = await world.claim_session(mine, "s")
    for epoch, base in ((claim.epoch, claim.head), (0, claim.head + 2)):
        records = [note(b"one"), note(b"two")]
        for again in (world, world, other):
            head = await again.append("s", expected_head=base, epoch=epoch, records=records)
            expect(head == base + 2, f"the same records again returned {head}, not {base + 2}")
    twice = [note(b"after")]
    base = claim.head + 4
    await world.append("s", expected_head=base, epoch=0, records=twice)
    await add(other, "s", base + 1, count=3)
    head = await world.append("s", expected_head=base, epoch=0, records=twice)
    expect(head == base + 1, f"records that others followed returned {head}, not their own end {base + 1}")
    raced = [note(b"raced")]
    base += 4
    calls = (each.append("s", expected_head=base, epoch=0, records=raced) for each in (world, other))
    heads = await together(*calls)
    expect(heads == [base + 1, base + 1], f"the same records raced gave heads {heads}")
    log = await other.read("s")
    dense(log, "a log with repeated appends")
    expect(len(log) == base + 1, f"{len(log)} records, not {base + 1}: something was doubled")
    return f"7 repetitions in {len(log) - start} records"


async def an_answer_lost_to_a_kill_is_settled(bench: Bench) -> str:
    world = await bench.world()
    head = await begin(world, "s")
    child = await bench.child()
    await child.send(Pour(0.0, "s", head, 0, "p"))
    for _ in range(5):
        head = (await child.reply()).heads[0]
    await child.kill()
    head = await _last_acknowledged(child, head)
    number = (head - 1) // BATCH
    found = await world.read("s", after=head)
    happened = bool(found)
    records = batch("p", number)
    settled = await world.append("s", expected_head=head, epoch=0, records=records)
    expect(settled == head + BATCH, f"settling gave head {settled}, not {head + BATCH}")
    log = await world.read("s")
    dense(log, "a log after a kill")
    ids = [record.id for record in log[1:]]
    wanted = [record.id for n in range(number + 1) for record in batch("p", n)]
    expect(ids == wanted, f"the log ends with {ids[-4:]}, not {wanted[-4:]}")
    return f"killed after {number} appends; the next one {'had' if happened else 'had not'} happened"


async def _last_acknowledged(child: Child, head: int) -> int:
    for reply in await child.rest():
        head = reply.heads[0]
    return head


async def a_refused_writer_is_not_settled_as_written(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    await begin(world, "s")
    first, second = await worker(world), await worker(other)
    claim = await world.claim_session(first, "s")
    await other.claim_session(second, "s", take_over=True)
    records = [note(b"lost?")]
    for _ in range(2):
        late = world.append("s", expected_head=claim.head, epoch=claim.epoch, records=records)
        await refused(late, WriterFenced, "repeating an append that never happened")
    ids = [record.id for record in await other.read("s")]
    expect(records[0].id not in ids, "the repeated append of a fenced writer is in the log")
    return "a fenced writer's repeated append stays refused"


async def a_fenced_writer_learns_that_it_had_written(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    await begin(world, "s")
    first, second = await worker(world), await worker(other)
    claim = await world.claim_session(first, "s")
    written = [note(b"before"), note(b"the take-over")]
    await world.append("s", expected_head=claim.head, epoch=claim.epoch, records=written)
    newer = await other.claim_session(second, "s", take_over=True)
    await add(other, "s", newer.head, newer.epoch)
    for again in (world, other):
        head = await again.append("s", expected_head=claim.head, epoch=claim.epoch, records=written)
        wanted = claim.head + 2
        expect(head == wanted, f"a fenced writer's repeat of what is there returned {head}, not {wanted}")
    more = world.append("s", expected_head=claim.head + 2, epoch=claim.epoch, records=[note(b"more")])
    await refused(more, WriterFenced, "what a fenced writer had not written")
    log = await world.read("s")
    expect(len(log) == newer.head + 1, "a fenced writer's repeat is in the log twice")
    return "told of what it had written before, refused with anything else"
