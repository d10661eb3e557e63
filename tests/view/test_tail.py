"""The last part of a long log comes first, and is what the whole fold gives."""

from __future__ import annotations

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint

from harness_durable import events as ev
from harness_durable import fold
from harness_durable.journal import Reader
from harness_durable.view import sheet as sheets
from harness_durable.view import tail as tails
from harness_durable.view.sheet import Sheet
from harness_durable.view.tail import boundary, tail
from tests.unit.memory_world import MemoryWorld
from tests.view.logs import AGENT, SETTLED, Log, asked, entries, everything, long, model, text, write


async def filled(log: Log, *, snapshot: int) -> MemoryWorld:
    """A session ``s`` with that log, and beside it the state as of one event; 0 for none."""
    world = MemoryWorld()
    await write(world, "s", log)
    if snapshot:
        state = fold.fold(entries(log[:snapshot]))
        await world.put_snapshot("s", snapshot, fold.dump(state))
    return world


def again(count: int) -> Log:
    """The story in which everything happens, one after the other in one session."""
    log: Log = everything()
    for number in range(1, count):
        log += _renamed(everything()[1:], f"-{number}")
    return log


def _renamed(log: Log, suffix: str) -> Log:
    ids = ("message", "turn", "life", "call", "model_call", "base", "request", "repeats")
    found: Log = []
    for event in log:
        names = [name for name in ids if isinstance(getattr(event, name, None), str)]
        found.append(
            msgspec.structs.replace(event, **{name: f"{getattr(event, name)}{suffix}" for name in names})
        )
    return found


@pytest.mark.parametrize("log", [again(3), long(1200)], ids=["everything", "long"])
@pytest.mark.parametrize("least", [1, 100])
async def test_the_last_part_is_what_the_whole_fold_gives(
    monkeypatch: pytest.MonkeyPatch, log: Log, least: int
) -> None:
    monkeypatch.setattr(tails, "SHORT", 50)
    whole = Sheet(Reader(await filled(log, snapshot=0), "s"))
    await whole.refresh()
    for snapshot in range(60, len(log), 97):
        world = await filled(log, snapshot=snapshot)
        found = await tail(Reader(world, "s"), least)
        assert found is not None
        assert found.head == len(log)
        assert found.head - found.after >= least
        assert list(found.rows) == list(whole.between(found.after, found.head)), f"snapshot at {snapshot}"


def test_a_turn_that_is_open_is_not_taken_apart() -> None:
    log: Log = [
        ev.SessionCreated(1, "native", AGENT),
        ev.MessageAccepted("m-1", text("Go.")),
        ev.TurnStarted("m-1"),
        ev.LifeStarted("L1", "m-1", "local", "/run", "here", "1"),
        *model("c1", "L1", "I begin.", "t1"),
        asked("t1", "Bash", b"{}", "c1"),
        ev.TurnNeedsInput("m-1", "given up"),
        ev.LifeEnded("L1", SETTLED),
        ev.MessageAccepted("m-2", text("And?")),
        ev.TurnStarted("m-2"),
    ]
    assert boundary(fold.fold(entries(log)), 1) == 2


async def test_without_a_snapshot_the_whole_log_has_to_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "SHORT", 50)
    assert await tail(Reader(await filled(long(400), snapshot=0), "s"), 10) is None


async def test_who_has_no_patience_is_told_how_far_the_reading_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheets, "_BREATH", 20)
    sheet = Sheet(Reader(await filled(long(400), snapshot=0), "s"))
    await sheet.refresh(0.0)
    assert (sheet.read, sheet.head) == (False, 20)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sheet.refresh)
        await checkpoint()
        await sheet.refresh(0.0)  # another reads, and has more patience: no waiting for it
        assert not sheet.read
    assert (sheet.read, sheet.head) == (True, 400)
    assert list(sheet.between(0, 400)) == list(sheet.rows)
