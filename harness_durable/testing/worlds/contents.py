"""Checks that bytes come back as they went in (W8), and that waiting works (W9)."""

from __future__ import annotations

import hashlib
import os
import statistics

from harness_durable import clock
from harness_durable.errors import NotFound
from harness_durable.testing.world_child import Compete
from harness_durable.testing.worlds.bench import (
    Bench,
    add,
    begin,
    content,
    due_now,
    given,
    note,
    refused,
    together,
)
from harness_durable.testing.worlds.process import expect
from harness_durable.world import MAX_RECORD, Record, World

LARGE_BLOB = 64 << 20
SAME_PROCESS, ELSEWHERE = 0.050, 0.250
"""Seconds within which ``wait`` returns."""

BODIES: tuple[bytes, ...] = (
    b"",
    b"\0",
    bytes(range(256)),
    b"\0" * 5000,
    b"a\r\nb\rc\n",
    b'{"n": 9007199254740993, "s": "\\ud800", "v": 1}',
    "\ufeffé\u2028😀".encode(),
    b"\xff\xfe\xed\xa0\x80",
    b"\n\n",
)


async def records_come_back_byte_for_byte(bench: Bench) -> str:
    world = await bench.world()
    records = [note(body) for body in BODIES]
    records += [note(os.urandom(MAX_RECORD)), note(b"x" * MAX_RECORD)]
    records += [Record("id with spaces / é 😀 '\"", "kind.with-é", 2**53 + 1, b"odd names")]
    await begin(world, "s", *records[:2])
    await world.append("s", expected_head=2, epoch=0, records=records[2:])
    await bench.close(world)
    world = await bench.world()
    found = content(await world.read("s"))
    for wanted, got in zip(given(records), found, strict=True):
        expect(got == wanted, f"{wanted[3][:40]!r} ({len(wanted[3])} bytes) came back as {got[3][:40]!r}")
    return f"{len(records)} records, up to 1 MiB, after reopening"


async def blobs_come_back_byte_for_byte(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    head = await begin(world, "s")
    small = {_name(body): body for body in BODIES}
    packed = {_name(b"what the name stands for"): b"z\0 how it is stored"}
    await world.append("s", expected_head=head, epoch=0, records=[note()], blobs={**small, **packed})
    large = os.urandom(LARGE_BLOB)
    blobs = {_name(large): large}
    await world.append("s", expected_head=head + 1, epoch=0, records=[note()], blobs=blobs)
    kept = dict.fromkeys(packed, b"something else")
    await other.append("s", expected_head=head + 2, epoch=0, records=[note()], blobs=kept)
    wanted = {**small, **packed, **blobs}
    for name, body in wanted.items():
        found = await other.blob("s", name)
        expect(found == body, f"a blob of {len(body)} bytes came back as {len(found)} others")
    listed = {name: body async for name, body in other.blobs("s")}
    expect(listed == wanted, f"blobs() gave {len(listed)} blobs, not the {len(wanted)} stored")
    await refused(world.blob("s", _name(b"never stored")), NotFound, "reading no blob")
    await begin(world, "t")
    await refused(world.blob("t", _name(large)), NotFound, "reading another session's blob")
    return f"{len(wanted)} blobs, up to 64 MiB; a name that exists is kept"


async def snapshots_and_progress_come_back(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    await begin(world, "s")
    expect(await world.snapshot("s") is None, "a new session has a snapshot")
    expect(await world.progress("s") is None, "a new session has progress")
    for seq, body in enumerate([*BODIES, os.urandom(3 << 20)], 1):
        if seq > 1:  # a snapshot of records that are not there may be thrown away
            await world.append("s", expected_head=seq - 1, epoch=0, records=[note()])
        await world.put_snapshot("s", seq, body)
        found = await world.snapshot("s")
        expect(found == (seq, body), f"snapshot {seq} of {len(body)} bytes came back otherwise")
        await world.put_progress("s", body)
        expect(await world.progress("s") == body, f"progress of {len(body)} bytes came back otherwise")
    await bench.until("seeing progress from elsewhere", lambda: other.progress("s"))
    expect(len(await world.read("s")) == len(BODIES) + 1, "a snapshot or progress went into the log")
    return f"{len(BODIES) + 1} of each"


async def waiting_wakes_soon(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    head = await begin(world, "s")
    took: dict[str, float] = {}
    for name, waiter, limit in (("same", world, SAME_PROCESS), ("other", other, ELSEWHERE)):
        delays: list[float] = []
        for _ in range(9):
            delay = await _delay(waiter, world, head, 2.0 * bench.slack)
            delays.append(delay)
            head += 1
        took[name] = statistics.median(delays)
        late = f"wait() by the {name} instance took {took[name] * 1000:.0f} ms, not {limit * 1000:.0f}"
        expect(took[name] <= limit * bench.slack, late)
    child = await bench.child()
    delays = []
    for _ in range(5):
        await child.send(Compete(0.0, "s", "w", 1))
        found = await world.wait("s", head, 10.0 * bench.slack)
        written = (await world.read("s", after=head))[0].time
        delays.append((clock.now_ms() - written) / 1000)
        head += 1
        expect(found == head, f"wait() returned {found}; another process had written {head}")
        await child.reply()
    elsewhere = statistics.median(delays)
    limit = ELSEWHERE * bench.slack
    expect(elsewhere <= limit, f"wait() took {elsewhere * 1000:.0f} ms for another process's append")
    return (
        f"{took['same'] * 1000:.0f} ms same instance, {took['other'] * 1000:.0f} ms another one, "
        f"{elsewhere * 1000:.0f} ms another process"
    )


async def _delay(waiter: World, writer: World, head: int, patience: float) -> float:
    """Seconds between the return of an append and that of a ``wait`` for it."""

    async def wait() -> float:
        found = await waiter.wait("s", head, patience)
        expect(found == head + 1, f"wait() after {head} returned {found}, not {head + 1}")
        return clock.monotonic()

    async def write() -> float:
        await clock.sleep(0.01)
        await add(writer, "s", head)
        return clock.monotonic()

    woke, written = await together(wait(), write())
    return max(0.0, woke - written)


async def waiting_misses_nothing(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    head = await begin(world, "s")
    found = await world.wait("s", head, 0.05)
    expect(found == head, f"wait() that ran out returned {found}, not the head {head}")
    expect(await world.wait("s", 0, 30.0) == head, "wait() for what is there did not return the head")
    last = head + 60

    async def write() -> None:
        for place in range(head, last):
            await add(other if place % 3 else world, "s", place)

    async def follow(follower: World) -> None:
        seen = head
        while seen < last:
            now = await follower.wait("s", seen, 5.0 * bench.slack)
            expect(now > seen, f"wait() after {seen} ran out while the log went on to {last}")
            seen = now

    await together(write(), follow(world), follow(world), follow(other))
    return "3 followers of 60 appends by two instances"


async def due_sessions_wake_workers(bench: Bench) -> str:
    world = await bench.world()

    async def wait() -> float:
        await world.wait_due(10.0 * bench.slack)
        return clock.monotonic()

    async def make_due() -> float:
        await clock.sleep(0.05)
        await begin(world, "s", row=due_now())
        return clock.monotonic()

    woke, due = await together(wait(), make_due())
    took = max(0.0, woke - due)
    expect(took < 5.0 * bench.slack, f"wait_due() slept on for {took:.1f} s when a session became due")
    return f"wait_due() returned {took * 1000:.0f} ms after a session became due"


def _name(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
