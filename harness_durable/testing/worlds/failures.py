"""Checks of what is left after kills, torn writes, damage and full disks: W10 and W12."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from harness_durable import clock
from harness_durable.errors import DamagedLog, StorageUnavailable
from harness_durable.testing.world_child import (
    BATCH,
    Append,
    ClaimOne,
    FileLimit,
    Pour,
    batch,
)
from harness_durable.testing.worlds.bench import (
    Bench,
    Faults,
    FillsUp,
    Untried,
    add,
    begin,
    dense,
    note,
    refused,
    together,
    worker,
)
from harness_durable.testing.worlds.process import expect
from harness_durable.world import Record, RowUpdate, StoredRecord, World

Hook = Callable[[], Awaitable[None]]

KILLS = 4
LIMITS = (0, 100, 1000, 4096, 5000, 8192, 10_000, 20_000, 40_000)
"""Sizes in bytes past which no file may grow: most of them lie in the middle of an append."""


async def reopening_finds_everything(bench: Bench) -> str:
    world = await bench.world()
    mine = await worker(world)
    later = RowUpdate("later", 4_000_000_000_000)
    for name in ("a", "b", "c"):
        await begin(world, name, row=later)
    claim = await world.claim_session(mine, "b")
    head = await add(world, "b", claim.head, claim.epoch, count=5)
    await world.append(
        "b", expected_head=head, epoch=claim.epoch, records=[note()], blobs={"0" * 64: b"blob"}
    )
    await world.put_snapshot("b", 3, b"fold")
    await world.release("b", claim.epoch)
    await world.unregister(mine)
    logs = {name: await world.read(name) for name in ("a", "b", "c")}
    rows = await world.sessions()
    await bench.close(world)
    world = await bench.world()
    found = await world.sessions()
    expect(found == rows, f"the rows after reopening are {found}, not {rows}")
    expect([row.session for row in found] == ["a", "b", "c"], "sessions() is not in order of id")
    page = [row.session for row in await world.sessions(after="a", limit=1)]
    expect(page == ["b"], f"sessions(after='a', limit=1) gave {page}")
    for name, log in logs.items():
        expect(await world.read(name) == log, f"the log of {name} is not the same after reopening")
    expect(await world.blob("b", "0" * 64) == b"blob", "a blob is not the same after reopening")
    expect(await world.snapshot("b") in (None, (3, b"fold")), "another snapshot is there")
    return "3 sessions: rows, records, blob"


async def a_kill_while_writing_loses_no_whole_append(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s")
    mine = await worker(world)
    children = await bench.workers(KILLS)
    kept = 0
    for n, child in enumerate(children):
        claim = (await child.must(ClaimOne(0.0, "s", take_over=True))).claims[0]
        await child.send(Pour(0.0, "s", claim.head, claim.epoch, f"p{n}"))
        head = claim.head
        for _ in range(1 + 3 * n):
            head = (await child.reply()).heads[0]
        await clock.sleep(0.0007 * n)  # so that the kills meet different places of an append
        await child.kill()
        for reply in await child.rest():
            head = reply.heads[0]
        await bench.close(world)
        world = await bench.world()
        log = await world.read("s")
        dense(log, "a log after a kill")
        poured = _written_by(log, claim.head)
        whole = [record for k in range(len(poured) // BATCH) for record in batch(f"p{n}", k)]
        expect(len(poured) % BATCH == 0, f"{len(poured)} records are there: part of an append")
        expect(_ids(poured) == _ids(whole), "the log does not hold what the killed process wrote")
        expect(len(log) >= head, f"acknowledged up to {head}, but the log ends at {len(log)}")
        kept += len(poured) // BATCH
        await world.register(mine)
        taken = await world.claim_session(mine, "s", take_over=True)
        expect(taken.head == len(log) + 1, f"the next claim is at {taken.head}, not {len(log) + 1}")
        await add(world, "s", taken.head, taken.epoch)
    return f"{KILLS} processes killed while writing, {kept} whole appends found"


def _written_by(log: list[StoredRecord], after: int) -> list[StoredRecord]:
    return [record for record in log if record.seq > after]


def _ids(records: list[StoredRecord] | list[Record]) -> list[str]:
    return [record.id for record in records]


async def a_torn_append_is_cut_off(bench: Bench) -> str:
    """Only with a hook: how to tear an append depends on how the World stores it."""
    if bench.faults is None:
        return Untried("a torn write was not tried: this World offers no faults(url)")
    async with bench.apart(bench.faults) as (place, faults):
        return await _torn(place, faults)


async def _torn(bench: Bench, faults: Faults) -> str:
    child = await bench.child()
    world = await bench.world()
    await begin(world, "s")
    await bench.close(world)
    first, second = batch("p", 0), batch("p", 1)
    await child.must(Append(0.0, "s", 1, 0, tuple(first)))
    await child.must(Append(0.0, "s", 1 + BATCH, 0, tuple(second)))
    await child.kill()
    if not await faults.tear(bench.app, "s"):
        return Untried("a torn write was not tried: this World's appends cannot be torn from outside")
    world = await bench.world()
    log = await world.read("s")
    dense(log, "a log with a torn end")
    expect(await world.salvage("s") == (log, []), "salvage of a log without damage is not the log")
    expect(_ids(log[1:]) == _ids(first), f"the log holds {_ids(log[1:])}, not the last whole append")
    head = await world.append("s", expected_head=len(log), epoch=0, records=second)
    await bench.close(world)
    world = await bench.world()
    again = await world.read("s")
    expect(len(again) == head, "what was appended after the repair is not there after reopening")
    return "the torn append is gone, those before it are there, the next one holds"


async def damage_is_reported_and_hides_no_neighbour(bench: Bench) -> str:
    if bench.faults is None:
        return Untried("damage was not tried: this World offers no faults(url)")
    world = await bench.world()
    head = await begin(world, "s")
    for _ in range(6):
        head = await add(world, "s", head)
    before = await world.read("s")
    await bench.close(world)
    if not await bench.faults.damage(bench.app, "s", 4):
        return Untried("damage was not tried: this World cannot be damaged from outside")
    world = await bench.world()
    good: list[StoredRecord] = []
    error: DamagedLog | None = None
    try:
        while more := await world.read("s", after=len(good)):
            good += more
    except DamagedLog as damaged:
        error = damaged
    expect(error is not None, "a damaged record was not reported")
    expect(good == before[: len(good)], "the records before the damage are not what was written")
    neighbours = await world.read("s", after=4)
    expect(neighbours == before[4:], "the records after the damage are hidden")
    ahead = await world.read("s", limit=3)
    expect(ahead == before[:3], "the records before the damage are hidden")
    saved, damages = await world.salvage("s")
    expect(saved == before[:3] + before[4:], f"salvage gave records {[record.seq for record in saved]}")
    expect(len(damages) == 1, f"salvage reports {len(damages)} damages, not 1")
    return str(error)


async def a_full_disk_is_an_error_and_passes(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s")
    child = await bench.worker()
    claim = (await child.must(ClaimOne(0.0, "s"))).claims[0]
    head, failures, unclear = claim.head, 0, 0
    for n, size in enumerate(LIMITS):
        records = tuple(note(b"x" * 3000, record_id=f"full-{n}-{part}") for part in range(3))
        append = Append(0.0, "s", head, claim.epoch, records)
        await child.must(FileLimit(size=size))
        answer = await child.do(append)
        await child.must(FileLimit(size=None))
        if answer.error:
            failures, unclear = failures + 1, unclear + answer.unclear
            sentence = f"a file that may not grow past {size} bytes gave {answer.error}: {answer.text}"
            expect(answer.error == StorageUnavailable.__name__, sentence)
            if not answer.unclear:
                found = len(await world.read("s"))
                expect(found == head, f"{found - head} records of a failed append are in the log")
        settled = await child.must(append)
        head += 3
        expect(settled.heads == (head,), f"with space again, the append gave {settled.heads}, not {head}")
    log = await world.read("s")
    dense(log, "a log that met a full disk")
    wanted = [f"full-{n}-{part}" for n in range(len(LIMITS)) for part in range(3)]
    expect(_ids(_written_by(log, claim.head)) == wanted, "the log does not hold each append once")
    if not failures and isinstance(bench.faults, FillsUp):
        faults = bench.faults
        return await _unwritable(bench, faults.fill_store, faults.empty_store)
    if not failures:
        return Untried("a full disk was not tried: this World's files are not written by its own process")
    return f"{failures} appends failed on full files ({unclear} unclear); work went on without reopening"


async def a_broken_store_is_an_error_and_passes(bench: Bench) -> str:
    if bench.faults is None:
        return Untried("breaking the store was not tried: this World offers no faults(url)")
    return await _unwritable(bench, bench.faults.break_store, bench.faults.heal_store)


async def _unwritable(bench: Bench, hurt: Hook, heal: Hook) -> str:
    world = await bench.world()
    head = await begin(world, "x")
    records = [[note(b"a%d" % n)] for n in range(3)]
    await hurt()
    try:
        errors = [await _unavailable(world, head, each) for each in records]
        await refused(begin(world, "t"), StorageUnavailable, "creating a session")
    finally:
        await heal()
    if not any(error.unclear for error in errors):
        found = len(await world.read("x"))
        expect(found == head, f"{found - head} records of failed appends are in the log")
    head = await world.append("x", expected_head=head, epoch=0, records=records[0])
    await together(add(world, "x", head), begin(world, "u"))
    log = await world.read("x")
    expect(_ids(log[1:2]) == _ids(records[0]), "the settled append is not in the log")
    expect(len(log) == 3, f"the log has {len(log)} records, not 3")
    return str(errors[0])


async def _unavailable(world: World, head: int, records: list[Record]) -> StorageUnavailable:
    call = world.append("x", expected_head=head, epoch=0, records=records)
    return await refused(call, StorageUnavailable, "an append to a broken store")
