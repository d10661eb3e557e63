"""A fork: its own files, its own future, and nothing of its parent's that it could lose or hurt."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from harness_durable import changes, workspace
from harness_durable.adapter import LifeContext
from harness_durable.errors import BadInput, DamagedLog, NotFound, StorageUnavailable
from harness_durable.journal import Inbox, Journal, Reader
from harness_durable.runtime.forking import Forked, fork
from harness_durable.transfer import export_session, import_session
from harness_durable.worlds import open_world
from tests.runtime.conftest import Front
from tests.runtime.files_kit import Rig, calls, tree, writes
from tests.runtime.kit import Harness, Store, completes, equipped
from tests.unit.session_kit import SESSION
from tests.worlds.copy_support import Death, meddled
from tests.worlds.subjects import URLS

STEPS = {"kept.txt": "one\n", "a.txt": "a"}
"""The files after the first call of ``worked``."""


@pytest.fixture(params=["memory", *URLS])
async def rig(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Rig]:
    """On each World in turn."""
    world = Store() if request.param == "memory" else await open_world(URLS[request.param](tmp_path))
    yield Rig(world, tmp_path)
    await world.aclose()


@pytest.fixture
async def quick(tmp_path: Path) -> Rig:
    """On the one in memory."""
    return Rig(Store(), tmp_path)


async def worked(rig: Rig) -> int:
    """A session whose turn had three steps; the place after the first call's outcome."""
    await rig.accept("m-1")
    await rig.drive(calls(writes("a.txt", "a"), writes("b.txt", "b"), writes("a.txt", "A")))
    kinds = [record.kind for record in await rig.world.read(SESSION)]
    return kinds.index("tool.completed") + 1


async def forked(rig: Rig, name: str = "f", *, at: int | None = None, files: Path | None = None) -> Forked:
    return await fork(rig.world, rig.equipment(), SESSION, at=at, name=name, files=files)


async def deleted(rig: Rig) -> None:
    """The parent, which nobody drives any more, and its files."""
    await rig.world.release(SESSION, (await rig.state()).epoch)
    await rig.world.delete(SESSION)
    shutil.rmtree(rig.workspace)


async def go_on(rig: Rig, *messages: str, session: str = "f") -> None:
    inbox = await Inbox.open(rig.world, session)
    for message in messages:
        await inbox.accept(message, "go on")


# ------------------------------------------------------------------------------------ its own files


async def test_a_fork_has_the_files_of_its_step_and_neither_changes_the_other(rig: Rig) -> None:
    """Case 14."""
    place = await worked(rig)
    parents = tree(rig.workspace)
    found = await forked(rig, at=place)
    own = rig.workspace.with_name("f")
    assert (found.at, found.workspace, own.exists()) == (place, str(own), False)
    await go_on(rig, "m-2")
    state = await rig.drive(calls(writes("its.txt", "x")), session="f")
    assert (state.turns["m-1"].status, state.turns["m-2"].status) == ("cancelled", "completed")
    assert tree(own) == {**STEPS, "its.txt": "x"}
    assert tree(rig.workspace) == parents
    made = [(event.cause, event.counts.total) for event in await rig.commits("f")][2:]
    assert made == [("fork", 0), ("call", 1)]
    (rig.workspace / "a.txt").write_text("of the parent")
    await go_on(rig, "m-2", session=SESSION)
    await rig.drive(completes())
    assert tree(own)["a.txt"] == "a"


async def test_a_fork_outlives_its_parent_and_travels(rig: Rig, tmp_path: Path) -> None:
    """Case 14: with the parent deleted, each step of the fork can be restored, also from an export of it."""
    found = await forked(rig, at=await worked(rig))
    parents = {name async for name, _ in rig.world.blobs(SESSION)}
    await deleted(rig)
    assert 0 < found.blobs < len(parents)
    other = await open_world(f"file:{tmp_path / 'other'}")
    try:
        assert await import_session(other, export_session(rig.world, "f")) == "f"
        for world in (rig.world, other):
            steps = await changes.steps(Reader(world, "f"))
            assert [step.event.cause for step in steps] == ["turn_start", "call"]
            for step, expected in zip(steps, ({"kept.txt": "one\n"}, STEPS), strict=True):
                place = tmp_path / f"{world is other}-{step.number}"
                read = changes.reading(Reader(world, "f"))
                await workspace.restore(step.event.root, place, read, at_ms=1)
                assert tree(place) == expected
    finally:
        await other.aclose()
    await go_on(rig, "m-2")
    assert (await rig.drive(completes(), session="f")).turns["m-2"].status == "completed"
    assert tree(rig.workspace.with_name("f")) == STEPS


async def test_a_large_message_is_copied_too(rig: Rig) -> None:
    inbox = await rig.accept()
    await inbox.accept("m-1", "long " * 20_000)
    await rig.drive(completes())
    await forked(rig)
    await deleted(rig)
    reader = Reader(rig.world, "f")
    assert await reader.text((await reader.load()).messages["m-1"].text) == "long " * 20_000


async def test_a_fork_that_was_cut_off_is_no_session_and_the_next_try_goes_on(rig: Rig) -> None:
    def dies(step: str) -> None:
        if step == "before restore":
            raise Death(step)

    place = await worked(rig)
    with pytest.raises(Death):
        await fork(meddled(rig.world, dies), rig.equipment(), SESSION, at=place, name="f")
    assert [row.session for row in await rig.world.sessions()] == [SESSION]
    assert (await forked(rig, at=place)).blobs == 0
    await go_on(rig, "m-2")
    await rig.drive(completes(), session="f")
    assert tree(rig.workspace.with_name("f")) == STEPS


async def test_what_was_copied_for_one_without_a_name_goes_with_its_failure(rig: Rig) -> None:
    place, tries = await worked(rig), list[str]()

    async def fails(session: str, *_: object) -> None:
        tries.append(session)
        raise StorageUnavailable("the store is away; wait until it is back")

    broken = meddled(rig.world, instead={"restore": fails})
    names = {name async for name, _ in rig.world.blobs(SESSION)}
    for name, left in ((None, False), ("f", True)):
        with pytest.raises(StorageUnavailable):
            await fork(broken, rig.equipment(), SESSION, at=place, name=name)
        assert (await rig.world.missing_blobs(tries[-1], names) != names) == left
    assert [row.session for row in await rig.world.sessions()] == [SESSION]


# ------------------------------------------------------------------------------------- its own life


async def test_a_parent_that_runs_goes_on_and_its_fork_begins_before_that_turn(rig: Rig) -> None:
    inbox = await rig.accept("m-1")
    await rig.drive(calls(writes("a.txt", "a")))
    await inbox.accept("m-2", "go on")
    made = list[Forked]()

    async def fork_it(ctx: LifeContext) -> None:
        made.append(await forked(rig))

    state = await rig.drive(calls(writes("b.txt", "b"), then=fork_it))
    assert state.turns["m-2"].status == "completed"
    assert (made[0].at, state.turns["m-2"].started_seq) == (made[0].at, made[0].at + 1)
    own = await rig.state("f")
    assert (list(own.turns), own.messages["m-2"].status) == (["m-1"], "withdrawn")
    assert (own.turns["m-1"].status, own.status, own.due) == ("completed", "idle", None)
    reaped = list(rig.place.reaped)
    await go_on(rig, "m-3")
    assert (await rig.drive(completes(), session="f")).turns["m-3"].status == "completed"
    assert set(rig.place.reaped[len(reaped) :]).isdisjoint(state.lives)


async def test_in_the_middle_of_a_call_nobody_there_can_know_what_becomes_of_it(quick: Rig) -> None:
    await quick.accept("m-1")

    async def fork_it(ctx: LifeContext) -> None:
        await forked(quick, at=ctx.journal.state.seq)

    await quick.drive(calls(writes("a.txt", "a"), then=fork_it))
    parent, own = await quick.state(), await quick.state("f")
    assert [state.tool_calls["c1"].outcome for state in (parent, own)] == ["completed", "unknown"]
    assert (own.turns["m-1"].status, own.life, own.worker) == ("cancelled", None, "")
    await go_on(quick, "m-2")
    await quick.drive(completes(), session="f")
    assert tree(quick.workspace.with_name("f")) == {"kept.txt": "one\n"}


async def test_the_first_message_says_where_the_model_is_now(quick: Rig) -> None:
    await forked(quick, at=await worked(quick))
    await go_on(quick, "m-2")
    await quick.drive(completes(), session="f")
    await go_on(quick, "m-3")
    messages = (await quick.drive(completes(), session="f")).messages
    told = [messages[name].text.text or "" for name in ("m-2", "m-3")]
    assert told[0].startswith("go on\n\n[harness-durable] This conversation was forked")
    assert str(quick.workspace) in told[0] and str(quick.workspace.with_name("f")) in told[0]
    assert told[1] == "go on"


async def test_a_fork_can_be_forked_before_it_has_done_anything(quick: Rig) -> None:
    await forked(quick, at=await worked(quick))
    await fork(quick.world, quick.equipment(), "f", name="g")
    await quick.world.delete("f")
    await go_on(quick, "m-2", session="g")
    await quick.drive(calls(writes("g.txt", "g")), session="g")
    assert tree(quick.workspace.with_name("g")) == {**STEPS, "g.txt": "g"}


async def test_a_program_forks_a_session_and_goes_on_in_both(front: Front, tmp_path: Path) -> None:
    harness, mine, own = Harness(), tmp_path / "mine", tmp_path / "own"
    own.mkdir()
    async with front(Store(), harness) as durable:
        session = await durable.agent(workspace=mine).session(SESSION)
        await (await session.send("one", message_id="m-1")).result()
        other = await session.fork(files=own)
        assert other.id.startswith(f"{SESSION}-fork-")
        results = [await (await one.send("two", message_id="m-2")).result() for one in (session, other)]
    assert [result.status for result in results] == ["completed", "completed"]
    assert [context.cwd for context in harness.lives] == [str(mine), str(mine), str(own)]


# --------------------------------------------------------------------------------- what is refused


async def test_a_place_or_a_name_that_is_not_there_or_taken_is_refused(rig: Rig) -> None:
    place = await worked(rig)
    head = (await rig.state()).seq
    parents = "in the workspace of the parent"
    refused: list[tuple[int, str, Path | None, str]] = [
        (head + 1, "f", None, f"has the events 1 to {head}, and not {head + 1}"),
        (1, "f", None, "no files were saved yet at event 1"),
        (place, SESSION, None, "is there already"),
        (place, "no/name", None, "cannot name a session"),
        (place, "f", rig.workspace, parents),
        (place, "f", rig.workspace / "in", parents),
        (place, "f", rig.folder, parents),
    ]
    for at, name, files, why in refused:
        with pytest.raises(BadInput, match=why):
            await forked(rig, name, at=at, files=files)
    full = rig.folder / "full"
    full.mkdir()
    (full / "x").touch()
    with pytest.raises(BadInput, match="is not empty"):
        await forked(rig, files=full)
    with pytest.raises(NotFound):
        await fork(rig.world, rig.equipment(), "nobody")
    assert [row.session for row in await rig.world.sessions()] == [SESSION]


async def test_where_nobody_knows_the_folders_a_fork_is_not_called_like_its_parents(quick: Rig) -> None:
    quick.on("elsewhere").mkdir(parents=True)
    await quick.accept("m-1", name="work")
    await quick.drive(calls(writes("a.txt", "a")))
    here = equipped(Harness(), quick.place, run_dir=quick.settings["run_dir"])
    with pytest.raises(BadInput, match="is the workspace of the parent"):
        await fork(quick.world, here, SESSION, name="work")
    assert (await fork(quick.world, here, SESSION, name="f")).workspace == "f"


async def test_a_folder_that_we_made_for_the_parent_is_not_for_its_fork(quick: Rig) -> None:
    await quick.accept("m-1", files="scratch")
    await quick.drive(calls(writes("a.txt", "a")))
    (scratch,) = quick.folder.glob("run/sessions/*/*/scratch")
    with pytest.raises(BadInput, match="in the workspace of the parent"):
        await forked(quick, files=scratch)


@pytest.mark.parametrize("files", ["kept", "scratch"])
async def test_files_that_are_not_in_the_log_must_be_brought(quick: Rig, files: str) -> None:
    await quick.accept("m-1", files="kept" if files == "kept" else "scratch")
    await quick.drive(completes())
    with pytest.raises(BadInput, match="a fork needs its own"):
        await forked(quick)
    with pytest.raises(BadInput, match="is no folder"):
        await forked(quick, files=quick.folder / "copy")
    shutil.copytree(quick.workspace, quick.folder / "copy")
    await forked(quick, files=quick.folder / "copy")
    await go_on(quick, "m-2")
    await quick.drive(calls(writes("kept.txt", "two\n")), session="f")
    assert tree(quick.folder / "copy") == {"kept.txt": "two\n"}
    assert tree(quick.workspace) == {"kept.txt": "one\n"}


async def test_a_log_or_content_that_is_not_whole_is_not_forked(
    quick: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = await worked(quick)
    world = quick.world
    assert isinstance(world, Store)
    first = (await quick.commits())[0].root
    content = world.stored[SESSION].blobs.pop(first)
    with pytest.raises(DamagedLog, match="it is missing"):
        await forked(quick, at=place)
    world.stored[SESSION].blobs[first] = b"r" + content
    with pytest.raises(DamagedLog):
        await forked(quick, at=place)
    world.stored[SESSION].blobs[first] = content
    del world.stored[SESSION].records[place - 2 :]
    with pytest.raises((DamagedLog, BadInput)):
        await forked(quick, at=place)
    assert list(world.stored) == [SESSION]


# ---------------------------------------------------------------------------------- its own folder


async def test_files_of_somebody_else_in_its_folder_are_not_taken_for_its_own(quick: Rig) -> None:
    await forked(quick, at=await worked(quick))
    own = quick.workspace.with_name("f")
    own.mkdir()
    (own / "theirs.txt").write_text("x")
    await go_on(quick, "m-2")
    state = await quick.drive(completes(), session="f")
    assert (state.status, tree(own)) == ("needs_input", {"theirs.txt": "x"})
    assert "files of somebody else" in state.turns["m-2"].reason
    await (await Inbox.open(quick.world, "f")).request_stop("Ann")
    assert (await quick.drive(completes(), session="f")).turns["m-2"].status == "cancelled"
    assert [event.cause for event in await quick.commits("f")] == ["turn_start", "call"]
    own.rename(quick.folder / "aside")
    await go_on(quick, "m-3")
    await quick.drive(completes(), session="f")
    assert tree(own) == STEPS


async def test_whoever_dies_while_making_it_is_followed_by_who_goes_on(
    quick: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await forked(quick, at=await worked(quick))
    await go_on(quick, "m-2")

    async def dies(self: Journal, remark: str) -> str:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched, pytest.RaisesGroup(OSError):
        patched.setattr(Journal, "files_restored", dies)
        await quick.drive(completes(), session="f")
    state = await quick.drive(completes(), session="f")
    assert (state.turns["m-2"].status, tree(quick.workspace.with_name("f"))) == ("completed", STEPS)
    assert [event.cause for event in await quick.commits("f")] == ["turn_start", "call", "fork"]
