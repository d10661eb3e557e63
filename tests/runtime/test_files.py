"""Durable files, as a driver keeps them: what is in the log after each step, and what comes back from it."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from harness_durable import workspace
from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.journal.calls import Told
from harness_durable.sandbox import Link
from harness_durable.worlds import open_world
from tests.runtime.files_kit import Rig, calls, tree, writes
from tests.runtime.kit import Store, completes
from tests.unit.session_kit import SESSION, asked


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
    named = await workspace.names((await rig.commits())[-1].root, lambda name: world.blob(SESSION, name))
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
    equipment.beside(SESSION).mkdir(parents=True, exist_ok=True)
    (equipment.beside(SESSION) / "restoring").touch()
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
    state = await rig.drive(completes(), roll_back=True)
    assert tree(rig.workspace) == {
        ".gitignore": "ignored\n",
        "a.txt": "a",
        "ignored": "mine",
        "kept.txt": "one\n",
    }
    commits = await rig.commits()
    assert [step.cause for step in commits] == ["turn_start", "call", "found", "restored"]
    assert commits[-1].root == commits[1].root
    assert any("were put back" in (m.text.text or "") for m in state.messages.values() if m.remark)


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
