"""Durable files, as a driver keeps them: what is in the log after each step, and what comes back from it."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from harness_durable import workspace
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.cli import rollback
from harness_durable.errors import HarnessDied
from harness_durable.journal import Reader
from harness_durable.journal.calls import Told
from harness_durable.runtime.files import SessionFiles
from harness_durable.sandbox import LifeRef, Link
from harness_durable.workspace import Scanned, restoring, sink
from harness_durable.workspace import rollback as rollback_module
from harness_durable.worlds import open_world
from tests.runtime.files_kit import Rig, calls, tree, writes
from tests.runtime.kit import Store, completes
from tests.unit.session_kit import SESSION, asked
from tests.unit.workspace.kit import write
from tests.worlds.postgres_support import wait_for


@pytest.fixture(params=["sqlite", "file"])
async def rig(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Rig]:
    """On each World of this host in turn."""
    known = {"sqlite": f"sqlite:{tmp_path / 'world.db'}", "file": f"file:{tmp_path / 'world'}"}
    world = await open_world(known[request.param])
    yield Rig(world, tmp_path)
    await world.aclose()


# --------------------------------------------------------------------------------------- each step


async def test_each_step_is_in_the_log_with_the_outcome_that_it_belongs_to(rig: Rig) -> None:
    await rig.accept("m-1")
    state = await rig.drive(calls(writes("new.txt", "a"), writes("kept.txt", "two\n"), lambda _: None))
    assert await rig.told() == [
        ("turn_start", {"added": 1}),
        ("call", {"added": 1}),
        ("call", {"modified": 1}),
    ]
    first, *steps = await rig.commits()
    assert [(step.call, step.changes[0].path) for step in steps] == [("c1", "new.txt"), ("c2", "kept.txt")]
    assert [step.parent for step in steps] == [first.root, steps[0].root]
    records = [record.kind for record in await rig.world.read(SESSION)]
    places = [place for place, kind in enumerate(records) if kind == "tool.completed"]
    assert [records[place - 1] for place in places] == ["workspace.committed"] * 2 + ["tool.released"]
    assert (state.files.root, state.files.steps) == (steps[-1].root, 3)


async def test_what_changed_between_turns_is_not_the_agents(rig: Rig) -> None:
    inbox = await rig.accept("m-1")
    await rig.drive(completes())
    (rig.workspace / "mine.txt").write_text("by a person")
    await inbox.accept("m-2", "go on")
    await rig.drive(calls(writes("its.txt", "by the agent")))
    assert await rig.told() == [
        ("turn_start", {"added": 1}),
        ("turn_start", {"added": 1}),
        ("call", {"added": 1}),
    ]


async def test_a_call_that_only_looks_is_not_looked_after_and_the_turns_end_is(rig: Rig) -> None:
    await rig.accept("m-1")
    await rig.drive(calls(writes("sly.txt", "x"), policy="safe"))
    assert await rig.told() == [("turn_start", {"added": 1}), ("turn_end", {"added": 1})]
    records = [record.kind for record in await rig.world.read(SESSION)]
    assert records[records.index("turn.completed") - 1] == "workspace.committed"


async def test_an_outcome_that_the_transcript_tells_brings_its_files_along(rig: Rig) -> None:
    async def script(ctx: LifeContext, link: Link) -> TurnEnd:
        await asked(ctx.journal, ("c1", "Bash", {}), origin="builtin")
        await ctx.journal.tool_gate("c1", ctx.life)
        (Path(ctx.cwd) / "new.txt").write_text("x")
        told = [Told("c1", "completed", b"ok")]
        await ctx.journal.transcript_appended(ctx.life, {"main": [b"line"]}, offset=5, told=told)
        return TurnEnd("completed")

    await rig.accept("m-1")
    await rig.drive(script)
    assert [(step.cause, step.call) for step in await rig.commits()] == [("turn_start", ""), ("call", "c1")]


async def test_calls_at_once_are_each_looked_after_and_name_the_others(rig: Rig) -> None:
    async def script(ctx: LifeContext, link: Link) -> TurnEnd:
        await asked(ctx.journal, *((name, "Bash", {"n": name}) for name in ("c1", "c2")), origin="builtin")

        async def run(name: str) -> None:
            (Path(ctx.cwd) / name).write_text(name)
            await ctx.journal.tool_finished(name, ok=True, result=b"", source="hook")

        for name in ("c1", "c2"):
            await ctx.journal.tool_gate(name, ctx.life)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "c1")
            tasks.start_soon(run, "c2")
        return TurnEnd("completed")

    await rig.accept("m-1")
    await rig.drive(script)
    steps = (await rig.commits())[1:]
    assert {path for step in steps for path in (change.path for change in step.changes)} == {"c1", "c2"}
    assert steps[0].beside == tuple({"c1", "c2"} - {steps[0].call})


async def test_kept_and_scratch_files_are_not_in_the_log(rig: Rig) -> None:
    seen: list[str] = []

    async def look(ctx: LifeContext) -> None:
        seen.append(ctx.cwd)

    await rig.accept("m-1", files="scratch")
    state = await rig.drive(calls(writes("made.txt", "x"), then=look))
    assert (state.turns["m-1"].status, await rig.commits()) == ("completed", [])
    assert Path(seen[0]).is_relative_to(rig.folder / "run") and tree(Path(seen[0])) == {"made.txt": "x"}
    assert tree(rig.workspace) == {"kept.txt": "one\n"}


async def test_what_was_seen_and_not_appended_is_seen_again(tmp_path: Path) -> None:
    """Case 9: the store is away while the outcome is to be written, and the answer to the append is lost."""
    world = Store()
    rig = Rig(world, tmp_path)
    await rig.accept("m-1")

    async def trouble(ctx: LifeContext) -> None:
        world.fail_next, world.lose_answer = 2, True

    await rig.drive(calls(writes("a.txt", "a"), writes("b.txt", "b"), then=trouble))
    assert await rig.told() == [("turn_start", {"added": 1}), ("call", {"added": 1}), ("call", {"added": 1})]
    named = await workspace.names([(await rig.commits())[-1].root], lambda name: world.blob(SESSION, name))
    assert await world.missing_blobs(SESSION, named) == set()


# ---------------------------------------------------------------------------------------- recovery


async def test_partial_work_of_a_call_that_was_cut_off_is_found_and_left_alone(rig: Rig) -> None:
    """Case 15a."""
    await rig.accept("m-1")
    await rig.lost_in(calls(writes("half.txt", "half"), then=rig.dies))
    state = await rig.drive(completes())
    assert await rig.told() == [("turn_start", {"added": 1}), ("found", {"added": 1})]
    assert tree(rig.workspace) == {"half.txt": "half", "kept.txt": "one\n"}
    call = state.tool_calls["c1"]
    assert call.outcome == "unknown"
    assert call.result is not None and "since the last recorded step: half.txt." in (call.result.text or "")


@pytest.mark.parametrize("left", ["nothing", "an empty folder"])
async def test_a_workspace_that_is_gone_is_made_anew_and_the_model_is_told_what_is_not(
    rig: Rig, left: str
) -> None:
    """Cases 13 and 15b."""
    (rig.workspace / ".gitignore").write_text("big/\n")
    (rig.workspace / "big").mkdir()
    (rig.workspace / "big/file").write_text("ignored")
    await rig.accept("m-1")
    await rig.lost_in(
        calls(writes("a.txt", "saved"), writes("b.txt", "lost with the machine"), then=rig.dies)
    )
    shutil.rmtree(rig.folder / "run")
    shutil.rmtree(rig.workspace)
    if left == "an empty folder":
        rig.workspace.mkdir()
    state = await rig.drive(completes())
    assert tree(rig.workspace) == {".gitignore": "big/\n", "a.txt": "saved", "kept.txt": "one\n"}
    last = (await rig.commits())[-1]
    assert (last.cause, last.root) == ("restored", last.parent)
    (remark,) = (message for message in state.messages.values() if message.remark)
    assert "Not restored, because not saved: big/" in (remark.text.text or "")
    assert [message.id for message in state.messages.values() if message.kind == "message"] == ["m-1"]


async def test_the_next_turn_finds_the_files_where_the_machine_was_lost_between_turns(rig: Rig) -> None:
    inbox = await rig.accept("m-1")
    await rig.drive(calls(writes("a.txt", "a")))
    shutil.rmtree(rig.workspace)
    await inbox.accept("m-2", "go on")
    await rig.drive(calls(writes("b.txt", "b")))
    assert tree(rig.workspace) == {"a.txt": "a", "b.txt": "b", "kept.txt": "one\n"}
    assert [cause for cause, _ in await rig.told()] == ["turn_start", "call", "restored", "call"]


async def test_a_restore_that_was_cut_off_after_the_folder_was_there_is_finished(rig: Rig) -> None:
    """Case 15c: the setup command runs, and the log says that the files were made anew."""
    rig.settings["workspace_setup"] = "touch set-up"
    await rig.accept("m-1")
    await rig.lost_in(calls(writes("a.txt", "a"), lambda _: None, then=rig.dies))
    equipment = rig.equipment()
    (equipment.beside(SESSION) / "restoring").write_text((await rig.state()).files.root)
    await rig.drive(completes())
    assert [cause for cause, _ in await rig.told()] == ["turn_start", "call", "restored"]
    assert rig.place.ran == [(("sh", "-c", "touch set-up"), rig.workspace)]
    assert not (equipment.beside(SESSION) / "restoring").exists()


async def test_damage_needs_a_person_and_names_path_and_blob(tmp_path: Path) -> None:
    world = Store()
    rig = Rig(world, tmp_path)
    await rig.accept("m-1")
    await rig.lost_in(calls(writes("a.txt", "a"), lambda _: None, then=rig.dies))
    shutil.rmtree(rig.workspace)
    (change,) = (await rig.commits())[1].changes
    del world.stored[SESSION].blobs[change.new]
    state = await rig.drive(completes())
    turn = state.turns["m-1"]
    assert turn.status == "needs_input" and f"a.txt (blob {change.new})" in turn.reason
    assert tree(rig.folder / "work.partial") == {"kept.txt": "one\n"}


async def test_a_rollback_is_by_wish_only_and_keeps_what_it_undid_in_the_log(rig: Rig) -> None:
    """Case 15d: what the log does not know is left alone."""
    (rig.workspace / ".gitignore").write_text("ignored\n")
    await rig.accept("m-1")
    await rig.lost_in(calls(writes("a.txt", "a"), writes("kept.txt", "spoilt"), then=rig.dies))
    (rig.workspace / "ignored").write_text("mine")
    before = await rig.state()
    assert rollback.hopeless(before) == ""
    state = await rig.drive(completes(), roll_back=True)
    assert tree(rig.workspace) == {
        ".gitignore": "ignored\n",
        "a.txt": "a",
        "ignored": "mine",
        "kept.txt": "one\n",
    }
    reader = Reader(rig.world, SESSION)
    [found] = [e.seq async for e in reader.entries() if getattr(e.event, "cause", "") == "found"]
    assert (
        f"as they were at the last recorded step again; what lay there instead is kept at event {found}"
        in (await rollback.told(reader, before))
    )
    commits = await rig.commits()
    assert [step.cause for step in commits] == ["turn_start", "call", "found", "restored"]
    assert commits[-1].root == commits[1].root
    assert any("were put back" in (m.text.text or "") for m in state.messages.values() if m.remark)


@pytest.mark.parametrize(
    ("left", "said"), [("all", "nothing had to be rolled back"), ("nothing", "were gone, and were made anew")]
)
async def test_a_rollback_of_what_needs_none_says_so(rig: Rig, left: str, said: str) -> None:
    await rig.accept("m-1")
    await rig.lost_in(calls(writes("a.txt", "a"), lambda _: None, then=rig.dies))
    if left == "nothing":
        shutil.rmtree(rig.workspace)
    before = await rig.state()
    await rig.drive(completes(), roll_back=True)
    assert said in await rollback.told(Reader(rig.world, SESSION), before)
    assert tree(rig.workspace) == {"a.txt": "a", "kept.txt": "one\n"}


async def test_a_rollback_that_could_not_be_looked_at_is_not_taken_for_files_that_were_gone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.accept("m-1")
    await rig.lost_in(calls(writes("a.txt", "a"), writes("a.txt", "A"), then=rig.dies))
    before, scan = await rig.state(), SessionFiles.scan

    async def late(self: SessionFiles, parent: str) -> Scanned | None:
        undone = (rig.workspace / "a.txt").read_text() == "a"
        return Scanned(parent, skipped="timeout", why="late") if undone else await scan(self, parent)

    monkeypatch.setattr(SessionFiles, "scan", late)
    await rig.drive(completes(), roll_back=True)
    said = await rollback.told(Reader(rig.world, SESSION), before)
    assert "could not be looked at since (timeout: late)" in said
    assert tree(rig.workspace)["a.txt"] == "a"


async def test_a_rollback_before_any_turn_undoes_nothing_then_or_later(rig: Rig) -> None:
    inbox = await rig.accept("m-1")
    await rig.drive(completes())
    await inbox.accept("m-2", "go on")
    (rig.workspace / "mine.txt").write_text("by a person")
    before = await rig.state()
    assert "no turn had begun" in rollback.hopeless(before)
    await rig.drive(calls(writes("a.txt", "a"), then=_dies_once()), completes(), roll_back=True)
    assert tree(rig.workspace) == {"a.txt": "a", "kept.txt": "one\n", "mine.txt": "by a person"}
    assert "restored" not in [step.cause for step in await rig.commits()]


def _dies_once() -> Callable[[LifeContext], Awaitable[None]]:
    async def dies(ctx: LifeContext) -> None:
        raise HarnessDied(1, "")

    return dies


async def test_what_is_not_in_the_log_cannot_be_rolled_back(rig: Rig) -> None:
    await rig.accept("m-1", files="kept")
    assert "files = kept" in rollback.hopeless(await rig.state())


async def test_a_turn_that_is_stopped_where_the_files_are_lost_does_not_take_an_empty_folder_for_them(
    rig: Rig,
) -> None:
    inbox = await rig.accept("m-1")
    await rig.lost_in(calls(writes("a.txt", "a"), lambda _: None, then=rig.dies))
    shutil.rmtree(rig.workspace)
    rig.workspace.mkdir()
    await inbox.request_stop("anna")
    state = await rig.drive(completes())
    assert (state.turns["m-1"].status, tree(rig.workspace)) == ("cancelled", {})
    await inbox.accept("m-2", "go on")
    await rig.drive(completes())
    assert tree(rig.workspace) == {"a.txt": "a", "kept.txt": "one\n"}


# ------------------------------------------------------------------------------------------ limits


async def test_a_workspace_over_the_limit_needs_a_person_and_says_the_way_out(rig: Rig) -> None:
    """Case 13."""
    rig.settings["workspace_max_files"] = 1
    (rig.workspace / "second").write_text("x")
    await rig.accept("m-1")
    state = await rig.drive(completes())
    turn = state.turns["m-1"]
    assert (turn.status, turn.lives) == ("needs_input", [])
    assert "--files kept" in turn.reason and "max_files" in turn.reason
    del rig.settings["workspace_max_files"]
    inbox = await rig.accept()
    await inbox.resume("anna")
    assert (await rig.drive(completes())).turns["m-1"].status == "completed"


async def test_a_step_over_the_limit_is_said_and_never_an_old_state(rig: Rig) -> None:
    """Case 13."""
    rig.settings["workspace_max_step"] = 1000
    await rig.accept("m-1")
    await rig.drive(calls(writes("big", "x" * 2000), lambda place: (place / "big").unlink()))
    first, over, *_, last = await rig.commits()
    assert (over.cause, over.skipped[:8], over.root) == ("call", "max_step", first.root)
    assert (last.skipped, last.root) == ("", first.root)
    state = await rig.state()
    assert (state.files.uncovered_seq, state.files.skipped) == (0, "")


# ------------------------------------------------------------------------------------------- hosts


async def test_a_workspace_that_stood_still_while_the_session_was_elsewhere_is_brought_up_to_date(
    rig: Rig,
) -> None:
    there, inbox = rig.on("one"), await rig.accept("m-1", name="work")
    write(there, {"kept.txt": "one\n", "old.txt": "x", ".gitignore": "ignored\n", "ignored": "one's"})
    await rig.drive(calls(writes("a.txt", "a")))
    here = rig.on("two")
    await inbox.accept("m-2", "go on")
    await rig.drive(calls(writes("a.txt", "newer"), lambda place: (place / "old.txt").unlink()))
    assert tree(here) == {"kept.txt": "one\n", "a.txt": "newer", ".gitignore": "ignored\n"}
    rig.on("one")
    await inbox.accept("m-3", "go on")
    state = await rig.drive(calls(writes("b.txt", "b")))
    assert tree(there) == {**tree(here), "b.txt": "b", "ignored": "one's"}
    *_, found, restored, last = await rig.commits()
    assert [found.cause, restored.cause, last.cause] == ["found", "restored", "call"]
    assert restored.root == found.parent, "what the other host did is the truth again"
    told = [m.text.text or "" for m in state.messages.values() if m.remark][-1]
    assert "brought to the last step" in told and "Not brought along, because not saved: ignored" in told


async def test_a_catching_up_that_was_cut_off_is_finished(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    there, inbox = rig.on("one"), await rig.accept("m-1", name="work")
    write(there, {"kept.txt": "one\n"})
    await rig.drive(calls(writes("a.txt", "a"), writes("b.txt", "b")))
    here = rig.on("two")
    await inbox.accept("m-2", "go on")
    await rig.drive(calls(writes("a.txt", "newer"), writes("b.txt", "newer"), writes("c.txt", "c")))
    rig.on("one")
    await inbox.accept("m-3", "go on")
    real, left = rollback_module._Back._make, [2]  # pyright: ignore[reportPrivateUsage]  # in its middle

    def cut(*words: object) -> None:
        left[0] -= 1
        if not left[0]:
            raise KeyError("the worker dies here")
        real(*words)  # type: ignore[arg-type]  # as they came

    with monkeypatch.context() as patch:
        patch.setattr(rollback_module._Back, "_make", cut)  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(ExceptionGroup):
            await rig.drive(completes())
    assert tree(there) not in (tree(here), {"kept.txt": "one\n", "a.txt": "a", "b.txt": "b"})
    await rig.drive(completes())
    assert tree(there) == tree(here)
    assert (await rig.commits())[-1].cause == "restored"


async def test_a_workspace_that_somebody_worked_in_while_the_session_was_elsewhere_is_left_as_it_is(
    rig: Rig,
) -> None:
    there, inbox = rig.on("one"), await rig.accept("m-1", name="work")
    write(there, {"kept.txt": "one\n"})
    await rig.drive(calls(writes("a.txt", "a")))
    rig.on("two")
    await inbox.accept("m-2", "go on")
    await rig.drive(calls(writes("a.txt", "newer")))
    rig.on("one")
    write(there, {"mine.txt": "by a person"})
    await inbox.accept("m-3", "go on")
    await rig.drive(completes())
    assert tree(there) == {"kept.txt": "one\n", "a.txt": "a", "mine.txt": "by a person"}
    assert (await rig.commits())[-1].cause == "turn_start"


# ----------------------------------------------------------------------------------------- trouble


async def test_an_error_of_ours_in_a_scan_takes_no_outcome_along(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rig.accept("m-1")

    async def broken(*_: object) -> None:
        raise ZeroDivisionError("ours")

    async def breaks(ctx: LifeContext) -> None:
        monkeypatch.setattr(workspace.Tracker, "scan", broken)

    state = await rig.drive(calls(writes("a.txt", "a"), then=breaks))
    assert (state.turns["m-1"].status, state.tool_calls["c1"].outcome) == ("completed", "completed")
    assert state.files.uncovered_seq and "ZeroDivisionError: ours" in state.files.skipped
    assert len(state.turns["m-1"].lives) == 1


async def test_a_link_where_the_workspace_was_needs_a_person(rig: Rig) -> None:
    inbox = await rig.accept("m-1")
    await rig.drive(completes())
    shutil.rmtree(rig.workspace)
    rig.workspace.symlink_to("nowhere")
    await inbox.accept("m-2", "go on")
    turn = (await rig.drive(completes())).turns["m-2"]
    assert turn.status == "needs_input" and "is a link" in turn.reason


async def test_a_stop_needs_no_workspace(rig: Rig) -> None:
    rig.on("one")
    inbox = await rig.accept("m-1", name="work")
    write(rig.folder / "one/work", {"kept.txt": "one\n"})
    await rig.lost_in(calls(writes("a.txt", "a"), then=rig.dies))
    await inbox.request_stop("anna")
    rig.settings.pop("workspaces")
    assert (await rig.drive(completes())).turns["m-1"].status == "cancelled"


async def test_a_model_is_told_what_a_roll_back_did_not_touch(rig: Rig) -> None:
    config = rig.workspace / ".git/config"
    write(rig.workspace, {".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[user]\n\tname = a\n"})
    await rig.accept("m-1")

    def secret(place: Path) -> None:
        config.write_text("[http]\n\textraheader = Authorization: hunter2\n")
        (place / "kept.txt").write_text("spoilt")

    await rig.lost_in(calls(writes("a.txt", "a"), secret, then=rig.dies))
    state = await rig.drive(completes(), roll_back=True)
    assert (rig.workspace / "kept.txt").read_text() == "one\n" and "hunter2" in config.read_text()
    (told,) = (message.text.text or "" for message in state.messages.values() if message.remark)
    assert "Left as they are: .git/config (has credentials" in told


# ---------------------------------------------------------------------------------------- progress


async def test_a_large_first_snapshot_says_how_far_it_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink, "BATCH", 1 << 20)
    monkeypatch.setattr(sink, "WITH_EVENT", 2 << 20)
    for number in range(8):
        (rig.workspace / f"large{number}").write_bytes(os.urandom(1 << 20))
    await rig.accept("m-1")
    driver = await rig.driver(rig.equipment(completes()))
    said: list[str] = []
    driver.lives.files.show = said.append
    await driver.run()
    assert said[0] == "saving the files of the workspace for the first time" and said[-1] == ""
    stored = [int(line.split()[6]) for line in said if "MB stored so far" in line]
    assert len(stored) >= 2 and stored == sorted(stored) and 4 <= stored[-1] <= 8
    first = (await rig.commits())[0]
    assert first.counts.added == 9 and first.stored_bytes > 8 << 20


async def test_making_many_files_anew_says_how_far_it_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    write(rig.workspace, {f"f{number}": "x" * 40_000 for number in range(50)})
    inbox = await rig.accept("m-1")
    await rig.drive(completes())
    shutil.rmtree(rig.workspace)
    monkeypatch.setattr(restoring, "TELL_SECONDS", -1.0)
    await inbox.accept("m-2", "go on")
    driver = await rig.driver(rig.equipment(completes()))
    said: list[str] = []
    driver.lives.files.show = said.append
    await driver.run()
    assert said[0] == "restoring the files of the workspace" and said[-1] == ""
    assert "restoring the files of the workspace: 51 files, 2 MB so far" in said


async def test_what_processes_of_the_life_have_mapped_is_looked_at(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def acting(ref: LifeRef) -> list[int]:
        asked.append(ref.life)
        return [os.getpid()]

    monkeypatch.setattr(rig.place, "acting", acting, raising=False)
    (rig.workspace / "map").write_bytes(b"A" * 8192)
    with (rig.workspace / "map").open("r+b") as file, mmap.mmap(file.fileno(), 8192) as mapped:

        def store(text: bytes) -> Callable[[Path], object]:
            def act(place: Path) -> None:
                quiet = (place / "map").stat().st_mtime_ns + 50_000_000  # what is racy is read in any case
                wait_for(lambda: time.time_ns() > quiet)
                mapped[0:4] = text

            return act

        await rig.accept("m-1")
        state = await rig.drive(calls(store(b"BBBB"), store(b"CCCC"), store(b"DDDD")))
    assert [counts for _, counts in await rig.told()][1:] == [{"modified": 1}] * 3
    assert set(asked) == set(state.turns["m-1"].lives)
