"""Moving between two Worlds. Wherever it is cut off: nothing is lost, no moment at which the session can be
driven in both, and the same command again finishes it."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from harness_durable import recovery
from harness_durable.errors import BadInput, NotFound, SessionBusy, WriterFenced
from harness_durable.journal import Inbox, Journal, Reader
from harness_durable.recovery import Facts
from harness_durable.testing.worlds.bench import worker
from harness_durable.world import World
from tests.worlds.copy_support import AGENT, LONG, Death, Fate, Two, meddled, sent_message, two, whole
from tests.worlds.subjects import URLS

PAIRS = [("sqlite", "file"), ("file", "sqlite"), ("sqlite", "postgres"), ("postgres", "file")]


def urls(folder: Path, pair: tuple[str, str]) -> tuple[str, str]:
    for name in ("from", "to"):
        (folder / name).mkdir()
    return URLS[pair[0]](folder / "from"), URLS[pair[1]](folder / "to")


@pytest.fixture(params=PAIRS, ids="-".join)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Two]:
    async with two(*urls(tmp_path, request.param)) as found:
        yield found


async def gone(world: World) -> bool:
    return await world.sessions() == []


async def drivable(world: World) -> bool:
    """Whether anybody could drive the session here, asked for it by name or not."""
    try:
        state = await Reader(world, "s").load()
    except NotFound:
        return False
    idle = recovery.plan(state, Facts(False, now=1 << 60)).rung == "idle"
    assert not idle or (await world.session("s")).due is None
    return not idle


async def texts(world: World) -> dict[str, str]:
    reader = Reader(world, "s")
    state = await reader.load()
    return {message.id: await reader.text(message.text) for message in state.messages.values()}


async def accepted(world: World, message: str) -> bool:
    """Whether a client that knows only this store can send a message there."""
    try:
        return await (await Inbox.open(world, "s")).accept(message, LONG + message)
    except (NotFound, BadInput):
        return False


async def test_a_moved_session_is_whole_and_due_there_and_gone_here(stores: Two) -> None:
    await sent_message(stores.source)
    before = await whole(stores.source)
    report = await stores.move()
    assert (report.result, report.records, report.blobs) == ("moved", 3, 1)
    after = await whole(stores.target)
    assert [*after.records[:2]] == [*before.records]
    assert [record.kind for record in after.records[2:]] == ["session.claimed"]
    assert (after.blobs, after.row) == (before.blobs, before.row)
    assert await gone(stores.source)
    owner = await worker(stores.target)
    assert [claim.session for claim in await stores.target.claim(owner, 9)] == ["s"]


async def test_an_idle_session_stays_parked(stores: Two) -> None:
    await Inbox.create(stores.source, "s", AGENT)
    await stores.move()
    row = await stores.target.session("s")
    assert (row.status, row.due) == ("idle", None)


async def test_a_parked_copy_stays_parked_when_it_is_moved_on(tmp_path: Path) -> None:
    """The original works on the message; this copy must not, wherever it goes."""
    places = urls(tmp_path, PAIRS[0])
    async with two(*places) as stores, two(*places, "here", "elsewhere") as others:
        await sent_message(stores.source)
        await stores.copy()
        await Two(stores.target, others.target).move()
        assert await gone(stores.target)
        row = await others.target.session("s")
        assert (row.status, row.due) == ("queued", None)


async def test_nobody_moves_a_session_that_is_driven(stores: Two) -> None:
    await sent_message(stores.source)
    owner = await worker(stores.source)
    [claim] = await stores.source.claim(owner, 1)
    with pytest.raises(SessionBusy, match=f"pid {owner.pid} on"):
        await stores.move()
    assert (await stores.source.session("s")).head == claim.head
    assert await gone(stores.target)
    await stores.source.release("s", claim.epoch)
    assert (await stores.move()).result == "moved"


async def test_an_owner_of_before_cannot_write_any_more(stores: Two) -> None:
    await sent_message(stores.source)
    owner = await worker(stores.source)
    [claim] = await stores.source.claim(owner, 1)
    journal = await Journal.open(stores.source, claim)
    await stores.source.release("s", claim.epoch)

    async def late() -> None:
        with pytest.raises(WriterFenced):
            await journal.turn_started("m-1")

    await Two(stores.source, meddled(stores.target, before={"put_blobs": late})).move()
    assert "turn.started" not in [record.kind for record in await stores.target.read("s")]


async def test_a_message_that_comes_meanwhile_is_moved_or_refused(stores: Two) -> None:
    await sent_message(stores.source)
    taken: list[bool] = []

    async def send() -> None:
        taken.append(await accepted(stores.source, f"late-{len(taken)}"))

    target = meddled(stores.target, before={"put_blobs": send, "restore": send})
    await Two(stores.source, target).move()
    assert taken == [True, False]
    assert await texts(stores.target) == {"m-1": LONG, "late-0": LONG + "late-0"}
    state = await Reader(stores.target, "s").load()
    assert {message.text.blob for message in state.messages.values()} <= set(
        (await whole(stores.target)).blobs
    )


async def test_what_has_left_can_neither_be_driven_nor_written_to(stores: Two) -> None:
    await sent_message(stores.source)

    async def cut() -> None:
        raise Death

    with pytest.raises(Death):
        await Two(stores.source, meddled(stores.target, before={"restore": cut})).move()
    assert not await drivable(stores.source)
    inbox = await Inbox.open(stores.source, "s")
    for attempt in (inbox.accept("m-2", "x"), inbox.request_stop("me"), inbox.withdraw("m-1", "me")):
        with pytest.raises(BadInput, match="moved to app 'there' of the other store"):
            await attempt
    with pytest.raises(BadInput, match="is on its way to app 'there'"):
        await stores.copy()
    with pytest.raises(BadInput, match=r"is on its way to app 'there'.*--redirect"):
        await stores.move(to="app 'x' of a third store")
    assert (await stores.move(to="app 'x' of a third store", redirect=True)).result == "moved"
    assert await texts(stores.target) == {"m-1": LONG}
    assert await drivable(stores.target)


async def test_a_redirect_to_the_same_store_under_another_name_deletes_nothing(stores: Two) -> None:
    async def dies() -> None:
        raise Death

    await sent_message(stores.source)
    with pytest.raises(Death):
        await Two(stores.source, meddled(stores.target, before={"restore": dies})).move()
    before = await stores.source.read("s")
    with pytest.raises(BadInput, match="same store"):
        await Two(stores.source, stores.source).move(to="FROM by its other name", redirect=True)
    assert await stores.source.read("s") == before
    assert (await stores.move()).result == "moved"


async def test_a_session_that_is_there_already_is_not_moved_onto(stores: Two) -> None:
    await sent_message(stores.source)
    await stores.copy()
    before = await whole(stores.source)
    with pytest.raises(BadInput, match="is there already"):
        await stores.move()
    assert await whole(stores.source) == before


@pytest.mark.parametrize(
    ("store", "call", "count"), [(1, "missing_blobs", 1), (0, "session", 1), (0, "session", 2)]
)
async def test_a_mover_that_was_stopped_for_long_brings_nothing_back(
    store: int, call: str, count: int, tmp_path: Path
) -> None:
    """While it was stopped, before or after the session had left, another one moved the session, and it went
    on from there to a third store."""
    places = urls(tmp_path, PAIRS[0])
    async with two(*places) as stores, two(*places, "here", "third") as third:
        await sent_message(stores.source)
        seen = 0

        async def stopped(*given: object, **named: object) -> object:
            nonlocal seen
            seen += 1
            if seen == count:
                owner = (await stores.source.session("s")).owner
                assert owner is not None
                await stores.source.unregister(owner)
                await stores.move()
                await Two(stores.target, third.target).move()
            return await getattr(stores[store], call)(*given, **named)

        worlds = [*stores]
        worlds[store] = meddled(worlds[store], instead={call: stopped})
        with pytest.raises((NotFound, WriterFenced)):
            await Two(*worlds).move()
        assert seen >= count
        assert await gone(stores.source)
        assert await gone(stores.target)
        assert await drivable(third.target)


async def cut_off(urls: tuple[str, str], app: str, at: int) -> list[str]:
    """Move, and die at this step; the steps that were reached."""
    fate = Fate(at)
    async with two(*urls, app, app) as stores:
        try:
            await Two(meddled(stores.source, fate.step), meddled(stores.target, fate.step)).move()
        except Death:
            return fate.steps
    return []


@pytest.mark.slow
@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("pair", PAIRS[:3], ids="-".join)
async def test_a_move_that_was_cut_off_anywhere_is_finished_by_the_next(
    pair: tuple[str, str], goes_on: bool, tmp_path: Path
) -> None:
    """``goes_on``: clients send and workers drive before somebody gives the command again."""
    places = urls(tmp_path, pair)
    reached: list[str] = []
    for at in range(1, 200):
        app = f"app-{at}"
        async with two(*places, app, app) as stores:
            await sent_message(stores.source)
        steps = await cut_off(places, app, at)
        if not steps:
            break
        reached = steps
        async with two(*places, app, app) as stores:
            where = f"cut off {steps[at - 1]} ({at})"
            assert not (await drivable(stores.source) and await drivable(stores.target)), where
            expected = {"m-1"}
            if goes_on:
                for world in stores:
                    if await drivable(world) and (await world.session("s")).due is not None:
                        await drive(world)
                    if await accepted(world, f"late-{len(expected)}"):
                        expected.add(f"late-{len(expected)}")
                assert len(expected) < 3, where
            if not await gone(stores.source):
                assert (await stores.move()).result == "moved", where
            assert await gone(stores.source), where
            assert set(await texts(stores.target)) == expected, where
            row = await stores.target.session("s")
            assert row.due is not None, where
            owner = await worker(stores.target)
            assert [claim.session for claim in await stores.target.claim(owner, 9)] == ["s"], where
    once = {"before claim_session", "before put_blobs", "after append", "before restore", "after delete"}
    assert once <= set(reached)


async def drive(world: World) -> None:
    """A worker has it for a while."""
    owner = await worker(world)
    [claim] = await world.claim(owner, 9)
    journal = await Journal.open(world, claim)
    await journal.turn_started("m-1")
    await world.release("s", claim.epoch)
    await world.unregister(owner)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("after claim_session", 1),
        ("after put_blobs", 1),
        ("after append", 1),
        ("after restore", 1),
        ("after append", 2),
        ("before delete", 1),
        ("after delete", 1),
    ],
)
async def test_a_move_survives_sigkill(name: str, count: int, tmp_path: Path) -> None:
    places = urls(tmp_path, PAIRS[0])
    async with two(*places) as stores:
        await sent_message(stores.source)
    command = [sys.executable, "-m", "tests.worlds.copy_support", *places, name, str(count)]
    done = await anyio.run_process(command, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    async with two(*places) as stores:
        assert not (await drivable(stores.source) and await drivable(stores.target))
        if name != "after delete":
            assert (await stores.move()).result == "moved"
        assert await gone(stores.source)
        assert await texts(stores.target) == {"m-1": LONG}
        assert await drivable(stores.target)
