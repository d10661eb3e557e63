"""What all in a process who look at a session share: it is read once."""

from __future__ import annotations

import pytest

from harness_durable import fold
from harness_durable.journal import Inbox, Known, Reader
from harness_durable.state import Session
from tests.runtime.conftest import Front
from tests.runtime.kit import Harness, Store, completes
from tests.unit.session_kit import SESSION, begun


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The places at which snapshots are decoded from now on."""
    found: list[int] = []
    load = fold.load

    def noted(data: bytes) -> Session | None:
        state = load(data)
        found.append(state.seq if state is not None else 0)
        return state

    monkeypatch.setattr(fold, "load", noted)
    return found


async def test_a_program_that_drives_and_follows_a_session_decodes_its_snapshot_once(
    front: Front, loads: list[int]
) -> None:
    world = Store()
    async with front(world, Harness(completes("one"))) as durable:
        await (await (await durable.agent("claude-code").session(SESSION)).send("first")).result()
    snapshot = await world.snapshot(SESSION)
    assert snapshot is not None and not loads
    async with front(world, Harness(completes("two"))) as durable:
        session = await durable.agent("claude-code").session(SESSION)
        begun = session.copy()
        turn = await session.send("second", message_id="m-2")
        seen = [entry async for entry in turn.events(begun.seq)]
        assert (await turn.result()).text == "two"
        assert await durable.next_turn(SESSION) is None
        assert (await durable.turn(SESSION, "m-2").result()).status == "completed"
    assert loads == [snapshot[0]]
    assert fold.fold(seen, begun).turns["m-2"].status == "completed"


async def test_a_session_that_was_deleted_and_made_again_is_read_anew(front: Front) -> None:
    world = Store()
    async with front(world, Harness(completes("one"), completes("two"))) as durable:
        first = await durable.agent("claude-code").session(SESSION)
        await (await first.send("first", message_id="m-1")).result()
        await durable.until_idle(SESSION)
        await world.delete(SESSION)
        second = await durable.agent("claude-code").session(SESSION)
        await (await second.send("second", message_id="m-2")).result()
        assert list((await second.state()).messages) == ["m-2"]


async def test_what_is_known_goes_on_for_all_and_a_writer_has_its_own() -> None:
    world = Store()
    await begun(world)
    known = Known(Reader(world, SESSION))
    shared = await known.now()
    inbox = await Inbox.open(world, SESSION, known)
    early = await known.copy()
    await inbox.accept("m-2", "go on")
    assert "m-2" in inbox.state.messages and "m-2" not in shared.messages
    assert await known.now() is shared and shared == inbox.state
    assert "m-2" not in early.messages
