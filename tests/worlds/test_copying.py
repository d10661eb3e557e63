"""Copying between two kinds of World: whole, verified, resumable, and never at the cost of what is there."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest

from harness_durable import codec, fold, worlds
from harness_durable.copying import BATCH
from harness_durable.errors import BadInput, DamagedLog, StorageError, StorageUnavailable
from harness_durable.events import SessionReleased, WorkspaceCommitted
from harness_durable.journal import Inbox, Reader
from harness_durable.testing.worlds.bench import due_now, note, worker
from harness_durable.testing.worlds.contents import BODIES
from harness_durable.world import Record, RowUpdate, World
from harness_durable.worlds import open_world
from tests.worlds.copy_support import Death, Fate, Two, meddled, sent_message, two, whole
from tests.worlds.subjects import URLS

PAIRS = [
    ("sqlite", "file"),
    ("file", "sqlite"),
    ("sqlite", "sqlite"),
    ("sqlite", "postgres"),
    ("postgres", "file"),
]
BIG = [os.urandom(5 << 20), os.urandom(5 << 20), os.urandom(9 << 20), b"", b"\0\r\n\xff"]


def urls(folder: Path, pair: tuple[str, str]) -> tuple[str, str]:
    for name in ("from", "to"):
        (folder / name).mkdir()
    return URLS[pair[0]](folder / "from"), URLS[pair[1]](folder / "to")


@pytest.fixture(params=PAIRS, ids="-".join)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Two]:
    async with two(*urls(tmp_path, request.param)) as found:
        yield found


@pytest.fixture
async def mixed(tmp_path: Path) -> AsyncIterator[Two]:
    async with two(*urls(tmp_path, PAIRS[0])) as found:
        yield found


def named(bodies: list[bytes]) -> dict[str, bytes]:
    return {hashlib.sha256(body).hexdigest(): body for body in bodies}


async def odd_session(world: World, session: str = "s") -> None:
    """Odd bytes, several epochs, more records than are read at once, blobs larger than a batch."""
    records = [note(body) for body in BODIES]
    records += [Record("id with spaces / é 😀 '\"", "kind.with-é", 2**53 + 1, b"odd names")]
    records += [note(b"%d" % number) for number in range(1100)]
    await world.create(session, records[:3], RowUpdate("idle", None))
    owner = await worker(world)
    claim = await world.claim_session(owner, session)
    await world.append(session, expected_head=4, epoch=claim.epoch, records=records[3:], blobs=named(BIG))
    await world.release(session, claim.epoch)
    await world.unregister(owner)


async def test_a_copy_is_the_same_byte_for_byte_and_the_source_is_untouched(stores: Two) -> None:
    await odd_session(stores.source)
    before = await whole(stores.source)
    report = await stores.copy()
    assert (report.result, report.blobs, report.note) == ("copied", 5, "")
    assert report.sent == sum(map(len, BIG))
    assert await whole(stores.target) == before == await whole(stores.source)
    epoch = (await stores.source.session("s")).epoch
    assert (await stores.target.session("s")).epoch == epoch


@pytest.mark.parametrize("way", ["copy", "move"])
async def test_what_nothing_names_stays_behind(mixed: Two, way: str) -> None:
    """It was stored by a worker that died before it could say what for."""
    await sent_message(mixed.source)
    named_there = set((await whole(mixed.source)).blobs)
    await mixed.source.put_blobs("s", named(BIG))
    report = await (mixed.copy() if way == "copy" else mixed.move())
    assert (report.blobs, len(named_there)) == (1, 1)
    assert set((await whole(mixed.target)).blobs) == named_there


async def test_a_blob_that_only_a_newer_version_can_name_is_copied(mixed: Two) -> None:
    """It is in a field that this one does not know, of a kind that it knows."""
    await sent_message(mixed.source)
    later = {"v": 1, "kind": "session.released", "reason": "done", "more": {"blob": next(iter(named(BIG)))}}
    record = Record("later", "session.released", 1, json.dumps(later).encode())
    head = (await mixed.source.session("s")).head
    await mixed.source.append("s", expected_head=head, epoch=0, records=[record], blobs=named(BIG[:1]))
    assert (await mixed.copy()).blobs == 2
    assert (await whole(mixed.target)).blobs == (await whole(mixed.source)).blobs


async def test_all_is_copied_of_a_session_whose_files_cannot_be_told(mixed: Two) -> None:
    """A list of them is missing, so that nobody knows what it named."""
    await sent_message(mixed.source)
    event = WorkspaceCommitted("0" * 64, "", "found")
    record = Record("files", codec.kind_of(event), 1, codec.encode(event))
    head = (await mixed.source.session("s")).head
    await mixed.source.append("s", expected_head=head, epoch=0, records=[record])
    await mixed.source.put_blobs("s", named(BIG))
    assert (await mixed.copy()).blobs == 1 + len(BIG)


async def test_all_is_copied_of_a_session_that_this_version_cannot_read(mixed: Two) -> None:
    await odd_session(mixed.source)
    await mixed.source.put_blobs("s", named([b"named by who knows what"]))
    assert (await mixed.copy()).blobs == len(BIG) + 1


async def test_what_is_there_already_is_not_sent_again(stores: Two) -> None:
    await odd_session(stores.source)
    await stores.copy()
    calls: list[str] = []
    again = Two(stores.source, meddled(stores.target, calls.append))
    report = await again.copy()
    assert (report.result, report.blobs, report.sent) == ("already there", 0, 0)
    assert not {"before put_blobs", "before restore", "before append"} & set(calls)


async def test_blobs_go_in_batches_and_after_a_cut_only_the_rest_is_sent(mixed: Two) -> None:
    await odd_session(mixed.source)
    put: list[Mapping[str, bytes]] = []

    async def watched(session: str, blobs: Mapping[str, bytes]) -> None:
        await mixed.target.put_blobs(session, blobs)
        put.append(blobs)
        if len(put) == 2:
            raise Death

    again = Two(mixed.source, meddled(mixed.target, instead={"put_blobs": watched}))
    with pytest.raises(Death):
        await again.copy()
    assert await mixed.target.sessions() == []
    assert (await again.copy()).result == "copied"
    names = [name for blobs in put for name in blobs]
    assert sorted(names) == sorted(named(BIG))
    assert all(len(blobs) == 1 or sum(map(len, blobs.values())) <= BATCH for blobs in put)
    assert await whole(mixed.target) == await whole(mixed.source)


async def test_a_copy_that_was_cut_off_anywhere_is_finished_by_the_next(mixed: Two) -> None:
    await sent_message(mixed.source)
    at = 0
    while True:
        at += 1
        fate = Fate(at)
        try:
            await Two(meddled(mixed.source, fate.step), meddled(mixed.target, fate.step)).copy()
            break
        except Death:
            found = await mixed.target.sessions()
        assert found == [] or (await whole(mixed.target)).records == (await whole(mixed.source)).records
        assert (await mixed.copy()).result in ("copied", "already there")
        assert (await whole(mixed.target)).blobs == (await whole(mixed.source)).blobs
        await mixed.target.delete("s")
    assert at > 15


async def test_a_copy_with_work_waits_until_it_is_woken(mixed: Two) -> None:
    await sent_message(mixed.source)
    report = await mixed.copy()
    assert "recover" in report.note
    row = await mixed.target.session("s")
    assert (row.status, row.due) == ("queued", None)
    assert await mixed.target.claim(await worker(mixed.target), 9) == []
    assert [claim.session for claim in await mixed.source.claim(await worker(mixed.source), 9)] == ["s"]


async def test_a_session_that_is_driven_is_copied_as_it_is_now(mixed: Two) -> None:
    await sent_message(mixed.source)
    [claim] = await mixed.source.claim(await worker(mixed.source), 1)
    before = await mixed.source.read("s")

    async def more() -> None:
        await mixed.source.append("s", expected_head=claim.head, epoch=claim.epoch, records=[note()])

    await Two(mixed.source, meddled(mixed.target, before={"restore": more})).copy()
    assert await mixed.target.read("s") == before
    assert len(await mixed.source.read("s")) == len(before) + 1


async def grown_here(stores: Two) -> None:
    await stores.source.append("s", expected_head=2, epoch=0, records=[note()], blobs=named(BIG[:1]))


async def grown_there(stores: Two) -> None:
    await stores.target.append("s", expected_head=2, epoch=0, records=[note()])


async def other_log(stores: Two) -> None:
    await stores.target.delete("s")
    await stores.target.create("s", [note(b"another")], due_now())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (grown_here, "with the first 2 of 3 records"),
        (grown_there, "has gone on from record 2 to 3"),
        (other_log, "another log, from record 1 on"),
    ],
)
async def test_a_session_with_another_log_is_refused_and_left_alone(
    mixed: Two, change: Callable[[Two], Awaitable[None]], words: str
) -> None:
    await sent_message(mixed.source)
    await mixed.copy()
    await change(mixed)
    before = await whole(mixed.target)
    with pytest.raises(BadInput, match=words):
        await mixed.copy()
    assert await whole(mixed.target) == before


async def test_what_arrives_otherwise_than_it_was_sent_is_noticed(mixed: Two) -> None:
    await sent_message(mixed.source)

    async def flipped(session: str, blobs: Mapping[str, bytes]) -> None:
        await mixed.target.put_blobs(session, {name: body + b"!" for name, body in blobs.items()})

    with pytest.raises(StorageError, match=r"otherwise than it was sent \(blob"):
        await Two(mixed.source, meddled(mixed.target, instead={"put_blobs": flipped})).copy()
    assert (await mixed.target.session("s")).due is None


@pytest.mark.parametrize("kind", URLS)
async def test_a_damaged_session_is_not_copied_in_part(kind: str, tmp_path: Path) -> None:
    """Also not when a snapshot hides the damage from whoever opens the session."""
    source, target = urls(tmp_path, (kind, "file"))
    old = await open_world(source, "here")
    await sent_message(old)
    event = SessionReleased("nothing left to do")
    records = [Record(f"r{number}", codec.kind_of(event), 1, codec.encode(event)) for number in range(3)]
    await old.append("s", expected_head=2, epoch=0, records=records[:1])
    await old.append("s", expected_head=3, epoch=0, records=records[1:])
    await old.put_snapshot("s", 5, fold.dump(await Reader(old, "s").load()))
    await old.aclose()
    faults = worlds.faults(source)
    assert faults is not None
    assert await faults.damage("here", "s", 2)
    async with two(source, target) as stores:
        assert (await Reader(stores.source, "s").load()).seq == 5
        with pytest.raises(DamagedLog):
            await stores.copy()
        with pytest.raises(DamagedLog):
            await stores.move()
        assert await stores.target.sessions() == []
        assert (await stores.source.session("s")).head == 5


@pytest.mark.parametrize("kind", ["file", "sqlite", "postgres"])
async def test_a_session_that_could_not_appear_yet_loses_no_blob(kind: str, tmp_path: Path) -> None:
    source, target = urls(tmp_path, ("sqlite", kind))
    faults = worlds.faults(target)
    assert faults is not None
    async with two(source, target) as stores:
        await sent_message(stores.source)
        broken = Two(stores.source, meddled(stores.target, before={"restore": faults.break_store}))
        try:
            with pytest.raises(StorageUnavailable):
                await broken.copy()
        finally:
            await faults.heal_store()
        assert await stores.target.sessions() == []
        report = await stores.copy()
        assert (report.result, report.blobs) == ("copied", 0)
        assert (await whole(stores.target)).blobs == (await whole(stores.source)).blobs


async def test_a_copy_can_be_sent_a_message_and_goes_on(mixed: Two) -> None:
    await sent_message(mixed.source)
    await mixed.copy()
    inbox = await Inbox.open(mixed.target, "s")
    assert not await inbox.accept("m-1", "again")
    assert await inbox.accept("m-2", "go on")
    assert (await mixed.target.session("s")).due is not None
