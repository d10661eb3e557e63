"""Checks that apps do not see each other (W13), and that sessions move and vanish whole (W14)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

from harness_durable import clock
from harness_durable.errors import BadInput, NotFound, SessionBusy
from harness_durable.testing.world_child import ClaimDue, Compete
from harness_durable.testing.worlds.bench import (
    Bench,
    add,
    begin,
    content,
    dense,
    due_now,
    gone,
    note,
    refused,
    together,
    worker,
)
from harness_durable.testing.worlds.process import expect
from harness_durable.transfer import export_session, import_session
from harness_durable.world import RowUpdate, World

BLOB = "ab" * 32


async def apps_do_not_see_each_other(bench: Bench) -> str:
    ours, theirs = await bench.world(), await bench.world(bench.fresh_app())
    await begin(ours, "same", note(b"ours"), row=due_now())
    await begin(theirs, "same", note(b"theirs"), note(b"second"))
    await begin(theirs, "only-theirs", row=due_now())
    await ours.append("same", expected_head=1, epoch=0, records=[note()], blobs={BLOB: b"a blob of ours"})
    await ours.put_snapshot("same", 1, b"ours")
    await ours.put_progress("same", b"ours")
    listed = [row.session for row in await ours.sessions()]
    expect(listed == ["same"], f"one app lists {listed}")
    await gone(ours.session("only-theirs"), "another app's session")
    await gone(ours.read("only-theirs"), "another app's log")
    await gone(theirs.blob("same", BLOB), "another app's blob")
    expect(await theirs.snapshot("same") is None, "another app's snapshot is given")
    expect(await theirs.progress("same") is None, "another app's progress is given")
    mine = await worker(ours)
    claims = [claim.session for claim in await ours.claim(mine, 9)]
    expect(claims == ["same"], f"claim offered {claims} to an app with one session")
    await theirs.delete("same")
    expect(len(await ours.read("same")) == 3, "deleting another app's session of this name took ours")
    expect((ours.app, theirs.app) != (theirs.app, ours.app), "two apps have one name")
    return "rows, logs, blobs, claims and deletion"


async def many_processes_share_one_store(bench: Bench) -> str:
    apps = (bench.app, bench.fresh_app())
    worlds = [await bench.world(app) for app in apps]
    for world in worlds:
        await begin(world, "s", row=due_now())
    children = await together(*(bench.worker(app) for app in apps for _ in range(2)))
    start = clock.monotonic() + 0.02
    await together(*(each.must(Compete(start, "s", str(n), 10)) for n, each in enumerate(children)))
    for place, world in enumerate(worlds):
        log = await world.read("s")
        dense(log, "a log in a shared store")
        tags = {record.kind for record in log[1:]}
        wanted = {f"check.{2 * place}", f"check.{2 * place + 1}"}
        expect(tags == wanted and len(log) == 21, f"an app's log has {len(log)} records by {tags}")
    replies = await together(*(child.must(ClaimDue(0.0, 9)) for child in children))
    counts = [len(reply.claims) for reply in replies]
    expect(
        counts[0] + counts[1] == 1 and counts[2] + counts[3] == 1,
        f"4 workers of 2 apps, a due session each, claimed {counts}",
    )
    return "4 processes, 2 apps"


async def sessions_move_without_loss(bench: Bench) -> str:
    source, target = await bench.world(), await bench.world(bench.fresh_app())
    await _rich_session(source)
    lines = [line async for line in export_session(source, "s")]

    async def file() -> AsyncIterator[bytes]:
        for line in lines:
            yield line

    expect(await import_session(target, file()) == "s", "the import is not named as the export")
    before, after = await source.read("s"), await target.read("s")
    expect(after == before, "the imported log is not the exported one")
    for world in (source, target):
        found = {name: body async for name, body in world.blobs("s")}
        expect(len(found) == 3, f"{len(found)} blobs, not 3")
    expect(
        {b async for b in target.blobs("s")} == {b async for b in source.blobs("s")},
        "the imported blobs are not the exported ones",
    )
    old, new = await source.session("s"), await target.session("s")
    facts = [(row.head, row.epoch, row.status) for row in (old, new)]
    expect(facts[0] == facts[1], f"the row (head, epoch, status) moved as {facts}")
    expect(new.due is None, "an imported session is due, although the one that it was may be driven, too")
    expect(new.owner is None and not new.owner_alive, "an imported session has an owner")
    await refused(import_session(target, file()), BadInput, "importing a session that exists")
    mine = await worker(target)
    claim = await target.claim_session(mine, "s")
    expect(claim.epoch > old.epoch, f"epoch {claim.epoch} after importing epoch {old.epoch}")
    expect(claim.head == old.head + 1, f"a claim at {claim.head} after importing {old.head} records")
    await add(target, "s", claim.head, claim.epoch)
    return f"{len(before)} records and 3 blobs through a file of {sum(map(len, lines))} bytes"


async def _rich_session(world: World) -> None:
    head = await begin(world, "s", note(b"\0"), note(bytes(range(256))), note(b""))
    for _ in range(2):
        mine = await worker(world)
        claim = await world.claim_session(mine, "s", take_over=True)
        head = await world.append(
            "s",
            expected_head=claim.head,
            epoch=claim.epoch,
            records=[note(b"\r\n"), note("é".encode())],
            blobs={BLOB: b"", "cd" * 32: b"\0\xff", "ef" * 32: os.urandom(3 << 20)},
            row=RowUpdate("needs_input", None),
        )
        await world.release("s", claim.epoch)
        await world.unregister(mine)
    await add(world, "s", head)


async def blobs_can_come_before_their_session(bench: Bench) -> str:
    source, world = await bench.world(), await bench.world(bench.fresh_app())
    await _rich_session(source)
    found = {name: body async for name, body in source.blobs("s")}
    [early, late] = [dict(list(found.items())[:2]), dict(list(found.items())[2:])]
    await world.put_blobs("s", early)
    await world.put_blobs("s", dict.fromkeys(early, b"something else"))
    await gone(world.session("s"), "a session of which only blobs have come")
    expect([row.session for row in await world.sessions()] == [], "blobs alone are listed as a session")
    await bench.close(world)
    world, stranger = await bench.world(world.app), await bench.world(bench.fresh_app())
    missing = await world.missing_blobs("s", found)
    expect(missing == set(late), f"{len(missing)} of 3 blobs are missing when 1 has not come")
    elsewhere = await stranger.missing_blobs("s", found)
    expect(elsewhere == set(found), "what came for one app is there for another one")
    await world.restore("s", await source.read("s"), {}, RowUpdate("parked", None))
    await world.put_blobs("s", late)
    kept = {name: body async for name, body in world.blobs("s")}
    expect(kept == found, "the session has not the blobs that came before and after it")
    expect(await world.missing_blobs("s", found) == set(), "blobs of a session count as missing")
    await world.delete("s")
    expect(await world.missing_blobs("s", found) == set(found), "deletion left blobs that came apart")
    await world.put_blobs("t", early)
    await world.delete("t")
    expect(await world.missing_blobs("t", early) == set(early), "blobs without a session cannot be deleted")
    await gone(world.delete("t"), "deleting what is not there")
    return "2 blobs before a session, 1 after it"


async def deleting_leaves_nothing(bench: Bench) -> str:
    world, other = await bench.world(), await bench.world()
    blobs = {BLOB: b"shared by two sessions"}
    for name in ("s", "t"):
        head = await begin(world, name, row=due_now())
        await world.append(name, expected_head=head, epoch=0, records=[note()], blobs=blobs)
    await world.put_snapshot("s", 1, b"fold")
    await world.put_progress("s", b"half a word")
    kept = content(await world.read("t"))
    mine = await worker(world)
    claim = await world.claim_session(mine, "s")
    await refused(other.delete("s"), SessionBusy, "deleting a session that is driven")
    expect(len(await other.read("s")) == 3, "a refused deletion took something")
    await world.release("s", claim.epoch)
    await other.delete("s")
    for instance in (world, other):
        await gone(instance.session("s"), "a deleted session")
        await gone(instance.read("s"), "a deleted log")
        await gone(instance.blob("s", BLOB), "a deleted session's blob")
        late = instance.append("s", expected_head=claim.head, epoch=claim.epoch, records=[note()])
        await refused(late, NotFound, "an append to a deleted session")
    await gone(world.delete("s"), "deleting again")
    expect(await world.blob("t", BLOB) == blobs[BLOB], "deletion took another session's blob")
    expect(content(await world.read("t")) == kept, "deletion changed another session")
    offered = [each.session for each in await world.claim(mine, 9)]
    expect(offered == ["t"], f"after a deletion, claim offers {offered}")
    await begin(world, "s")
    left = [name async for name, _ in world.blobs("s")]
    expect(left == [], "a session made anew has the deleted one's blobs")
    expect(await world.snapshot("s") is None, "a session made anew has the deleted one's snapshot")
    expect(await world.progress("s") is None, "a session made anew has the deleted one's progress")
    expect(len(await other.read("s")) == 1, "a session made anew has the deleted one's records")
    return "records, blobs, snapshot, progress and the place in the queue"
