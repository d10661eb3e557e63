"""Checks of who may claim what, and when: W6 (liveness) and W7 (due and free)."""

from __future__ import annotations

from harness_durable import clock
from harness_durable.errors import Conflict, LeaseLost, SessionBusy
from harness_durable.testing.world_child import ClaimDue, ClaimOne
from harness_durable.testing.worlds.bench import (
    PARKED,
    Bench,
    add,
    begin,
    due_now,
    note,
    owner,
    refused,
    worker,
)
from harness_durable.testing.worlds.process import expect
from harness_durable.world import NOW, RowUpdate


async def a_killed_owner_frees_its_session_within_a_second(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s", row=due_now())
    mine, child = await worker(world), await bench.worker()
    await child.must(ClaimDue())
    await child.kill()
    died = clock.monotonic()
    claims = await bench.until("claiming a killed owner's session", lambda: world.claim(mine, 1))
    took = clock.monotonic() - died
    expect(took <= 1.0 * bench.slack, f"the killed owner's session was claimable after {took:.2f} s")
    expect(claims[0].previous == child.owner, f"the claim names {claims[0].previous} as previous owner")
    return f"claimable {took * 1000:.0f} ms after SIGKILL"


async def a_live_owner_is_not_displaced(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s", row=due_now())
    mine, child = await worker(world), await bench.worker()
    await child.must(ClaimDue())
    for _ in range(20):
        expect(await world.claim(mine, 5) == [], "claim offered the session of a live owner")
    busy = await refused(world.claim_session(mine, "s"), SessionBusy, "claiming a held session")
    for part in (str(child.owner.pid), child.owner.worker[:8], "s"):
        expect(part in str(busy), f"the refusal does not name its holder ({part}): {busy}")
    left = busy.lease_left
    expect(left is None or 0 < left <= 15, f"a lease of 15 s has {left} s left")
    row = await world.session("s")
    expect(row.owner == child.owner and row.owner_alive, f"the row says {row.owner}, {row.owner_alive}")
    taken = await world.claim_session(mine, "s", take_over=True)
    expect(taken.previous == child.owner, f"the take-over names {taken.previous} as previous")
    return str(busy)


async def renewing_keeps_a_session(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    await begin(world, "s", row=due_now())
    lease = 0.6
    mine, rival = await worker(world, lease), await worker(other)
    await world.claim(mine, 1)
    begun, asked = clock.monotonic(), 0
    while clock.monotonic() - begun < 2 * lease:
        await world.renew(mine)
        renewed = clock.monotonic()
        await clock.sleep(lease / 8)
        offered = await other.claim(rival, 1)
        if clock.monotonic() - renewed < lease * 0.9:  # else this machine was too slow to judge
            expect(offered == [], "a renewed lease did not keep the session")
            asked += 1
        elif offered:
            return f"kept as long as it was renewed in time ({asked} times)"

    async def ended() -> bool:
        return not (await other.session("s")).owner_alive

    await bench.until("the end of a lease that nobody renews", ended)
    await world.renew(mine)
    if (await other.session("s")).owner_alive:
        late = "and a late renewal revives it"
    else:
        late = "(too slow here to see a late renewal)"
    return f"kept over two leases, ends without renewal, {late}"


async def a_worker_that_nobody_knows_cannot_renew(bench: Bench) -> str:
    world = await bench.world()
    await refused(world.renew(owner()), LeaseLost, "renewing for a worker that never registered")
    mine = await worker(world)
    await world.renew(mine)
    await world.unregister(mine)
    await refused(world.renew(mine), LeaseLost, "renewing for a worker that has left")
    return "neither before it registered, nor after it left"


async def leaving_frees_at_once(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    await begin(world, "a", row=due_now())
    await begin(world, "b", row=due_now())
    mine, rival = await worker(world), await worker(other)
    claims = await world.claim(mine, 2)
    await world.release(claims[0].session, claims[0].epoch)
    row = await other.session(claims[0].session)
    expect(row.owner is None and not row.owner_alive, f"a released session is held by {row.owner}")
    freed = await other.claim(rival, 5)
    expect([c.session for c in freed] == [claims[0].session], "release freed the wrong session")
    await world.unregister(mine)
    freed = await other.claim(rival, 5)
    expect([c.session for c in freed] == [claims[1].session], "leaving did not free at once")
    return "by release and by unregister"


async def only_due_and_free_sessions_are_offered(bench: Bench) -> str:
    world, elsewhere = await bench.world(), await bench.world(bench.fresh_app())
    mine, now = await worker(world), clock.now_ms()
    await begin(world, "parked")
    await begin(world, "later", row=RowUpdate("queued", now + 3_600_000))
    await begin(elsewhere, "foreign", row=due_now())
    for n, ago in enumerate((50, 4_000, 300, 9_000)):
        await begin(world, f"due{n}", row=RowUpdate("queued", now - ago))
    first = await world.claim(mine, 3)
    expect(
        [claim.session for claim in first] == ["due3", "due1", "due2"],
        f"claim(3) gave {[c.session for c in first]}, not the three that are due longest, in order",
    )
    second = [claim.session for claim in await world.claim(mine, 9)]
    expect(second == ["due0"], f"the next claim gave {second}, not due0 alone")
    expect(await world.claim(mine, 9) == [], "a session was offered to the worker that holds it")
    return "longest due first; not the parked, the later, the foreign, the held"


async def a_row_parks_and_wakes_with_its_append(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    mine, rival = await worker(world), await worker(other)
    head = await begin(world, "s")
    expect(await other.claim(rival, 1) == [], "a parked session was offered")
    await world.append("s", expected_head=head, epoch=0, records=[note(b"a message")], row=due_now("queued"))
    claims = await world.claim(mine, 5)
    expect(len(claims) == 1, f"an append that made the session due was followed by {len(claims)} claims")
    claim = claims[0]
    row = await other.session("s")
    expect(row.status == "queued", f"the row's status is {row.status!r}, not that of the append")
    head = await world.append(
        "s", expected_head=claim.head, epoch=claim.epoch, records=[note(b"a message")], row=PARKED
    )
    await world.release("s", claim.epoch)
    row = await other.session("s")
    expect((row.status, row.due) == ("parked", None), f"the row says {row.status}, due {row.due}")
    head = await add(other, "s", head)
    expect(await other.claim(rival, 1) == [], "an append without a row woke a parked session")
    soon = clock.now_ms() + 400
    records = [note(b"a message")]
    row_update = RowUpdate("waiting", soon)
    await other.append("s", expected_head=head, epoch=0, records=records, row=row_update)
    early = await other.claim(rival, 1)
    expect(not early or clock.now_ms() >= soon, "a session was offered before it was due")
    if not early:
        await bench.until("offering what has become due", lambda: other.claim(rival, 1))
    return "parked, woken, and due at a later time"


async def a_row_parks_and_wakes_without_records(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    mine = await worker(world)
    head = await begin(world, "s")
    end = await other.append("s", expected_head=head, epoch=0, records=[], row=due_now("queued"))
    expect(end == head, f"an append of no records at {head} gave {end}")
    claims = await world.claim(mine, 5)
    expect([claim.session for claim in claims] == ["s"], f"a row that was made due alone gave {claims}")
    late = other.append("s", expected_head=head, epoch=0, records=[], row=PARKED)
    await refused(late, Conflict, "a row for a head that has moved")
    epoch, head = claims[0].epoch, claims[0].head
    await world.append("s", expected_head=head, epoch=epoch, records=[], row=PARKED)
    await world.release("s", epoch)
    row = await other.session("s")
    facts = (row.status, row.due, row.head)
    expect(facts == ("parked", None, head), f"a row that was parked alone says {facts}")
    return "the row alone, by anyone and by the driver, at the head only"


async def what_is_due_at_once_is_offered_as_it_came(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    mine = await worker(world)
    await begin(world, "made", row=RowUpdate("queued", NOW))
    heads = {name: await begin(world, name) for name in ("b-second", "a-third")}
    for name, head in heads.items():
        await clock.sleep(0.005)
        record = [note(b"a message")]
        await other.append(name, expected_head=head, epoch=0, records=record, row=RowUpdate("queued", NOW))
    claims = await world.claim(mine, 9)
    names = [claim.session for claim in claims]
    expect(names == ["made", *heads], f"what became due at once was offered as {names}, not as it came")
    told = {claim.session: claim.now for claim in claims}
    late = [name for name, now in told.items() if now and now < ((await world.session(name)).due or 0)]
    expect(not late, f"{late} were claimed at a time before they were due")
    await clock.sleep(0.005)
    await world.release("made", claims[0].epoch, NOW)
    again = [claim.session for claim in await world.claim(mine, 9)]
    expect(again == ["made"], f"after a release that made one session due at once, claim offers {again}")
    return "created, appended and released as due at once: offered then, in that order"


async def parked_sessions_outlive_their_worker_untouched(bench: Bench) -> str:
    world = await bench.world()
    await begin(world, "s")
    child = await bench.worker()
    claim = (await child.must(ClaimOne(0.0, "s"))).claims[0]
    await child.kill()
    await bench.close(world)
    world = await bench.world()
    mine = await worker(world)

    async def noticed() -> bool:
        return not (await world.session("s")).owner_alive

    await bench.until("noticing that the owner was killed", noticed)
    expect(await world.claim(mine, 5) == [], "a restart woke a parked session")
    head = (await world.session("s")).head
    expect(head == claim.head, f"a restart moved a parked session from {claim.head} to {head}")
    return "killed and reopened; nothing offered, nothing written"


async def a_release_can_put_a_session_off(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    mine, rival = await worker(world), await worker(other)
    for name in ("bad", "woken"):
        await begin(world, name, row=due_now("queued"))
    await begin(world, "parked")
    far = clock.now_ms() + 3_600_000
    claims = [*await world.claim(mine, 5), await world.claim_session(mine, "parked")]
    for claim in claims:
        await world.release(claim.session, claim.epoch, far)
    rows = {row.session: (row.status, row.due, row.owner) for row in await other.sessions()}
    wanted = {"bad": ("queued", far, None), "woken": ("queued", far, None), "parked": ("parked", None, None)}
    expect(rows == wanted, f"after a release with a due time, the rows are {rows}")
    expect(await other.claim(rival, 5) == [], "a session that was put off is offered at once")
    head = (await other.session("woken")).head
    await other.append("woken", expected_head=head, epoch=0, records=[note(b"a message")], row=due_now())
    woken = [claim.session for claim in await other.claim(rival, 5)]
    expect(woken == ["woken"], f"with a message for one session that was put off, claim offers {woken}")
    await world.release("woken", claims[0].epoch, far + 1)
    expect((await other.session("woken")).due != far + 1, "a release by an old epoch put a session off")
    again = await other.claim_session(rival, "bad")
    await other.release("bad", again.epoch, clock.now_ms() + 300)
    back = await bench.until("offering what was put off for 300 ms", lambda: other.claim(rival, 5))
    expect([claim.session for claim in back] == ["bad"], f"after 300 ms, claim offers {back}")
    return "put off by release, woken by a message, back when its time has come; a parked one stays parked"
