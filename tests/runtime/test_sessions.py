"""Sessions and turns as a program sees them: sending twice, following, answering, and what is told of it."""

from __future__ import annotations

import msgspec
import pytest

from harness_durable.adapter import LifeContext, TurnEnd
from harness_durable.errors import BadInput, NotFound
from harness_durable.events import Entry
from harness_durable.journal import Inbox
from harness_durable.runtime.progress import Shown, shown
from harness_durable.runtime.sessions import Turn
from harness_durable.sandbox import Link
from tests.runtime.conftest import Front
from tests.runtime.kit import (
    Harness,
    Store,
    Works,
    accepted,
    completes,
    driven,
    equipped,
    is_,
    state_of,
    until,
)
from tests.unit.session_kit import AGENT, SESSION, asked, begun


async def kinds(turn: Turn, after: int = 0) -> list[str]:
    return [kind(entry) async for entry in turn.events(after)]


def kind(entry: Entry) -> str:
    return str(type(entry.event).__struct_config__.tag)


# ---------------------------------------------------------------------------------------------- send


async def test_the_same_message_id_is_the_same_message_and_starts_one_turn(front: Front) -> None:
    """C083: a second request joins the first, and changes nothing of it."""
    world = Store()
    async with front(world, Harness(completes("first"))) as durable:
        session = await durable.agent().session(SESSION)
        await (await session.send("one", message_id="m-1")).result()
        again = await session.send("two", message_id="m-1")
        assert (await again.result()).text == "first"
    state = await state_of(world)
    assert (list(state.turns), state.messages["m-1"].text.text) == (["m-1"], "one")
    assert [record.kind for record in await world.read(SESSION)].count("message.accepted") == 1


async def test_a_message_without_an_id_gets_one_of_its_own(front: Front) -> None:
    async with front(Store()) as durable:
        session = await durable.agent().session(SESSION)
        one, other = await session.send("a"), await session.send("b")
        assert one.id != other.id
        assert [(await turn.result()).status for turn in (one, other)] == ["completed"] * 2


async def test_a_message_to_a_busy_session_waits_for_its_turn_or_is_refused(front: Front) -> None:
    """C082: one turn at a time, by the name of the session."""
    world, works = Store(), Works()
    async with front(world, Harness(works, completes("second"))) as durable:
        session = await durable.agent().session(SESSION)
        first = await session.send("a", message_id="m-1")
        await works.begun.wait()
        second = await session.send("b", message_id="m-2")
        with pytest.raises(BadInput, match="works on 'm-1'"):
            await session.send("c", message_id="m-3", when_busy="reject")
        works.enough.set()
        assert [(await turn.result()).text for turn in (first, second)] == ["worked", "second"]
    assert "m-3" not in (await state_of(world)).messages


async def test_busy_is_what_the_log_says_and_not_what_was_read_before() -> None:
    world = Store()
    journal = await begun(world)
    inbox = await Inbox.open(world, SESSION)
    await journal.turn_completed("done")
    assert await inbox.accept("m-2", "next", "reject")


async def test_a_steer_belongs_to_the_running_turn(front: Front) -> None:
    world, works = Store(), Works()

    async def takes(ctx: LifeContext, link: Link) -> TurnEnd:
        works.begun.set()
        await ctx.journal.until(lambda state: bool(state.steers("m-1")))
        await ctx.journal.message_delivered("st", ctx.life)
        return TurnEnd("completed", "with that")

    async with front(world, Harness(takes)) as durable:
        session = await durable.agent().session(SESSION)
        await session.send("a", message_id="m-1")
        await works.begun.wait()
        turn = await session.send("also", message_id="st", when_busy="steer")
        assert turn.id == "m-1"
        assert (await turn.result()).text == "with that"
    assert (await state_of(world)).messages["st"].status == "delivered"


async def test_a_steer_to_an_idle_session_is_a_message(front: Front) -> None:
    world = Store()
    async with front(world) as durable:
        session = await durable.agent().session(SESSION)
        await session.steer("go", message_id="st")
        assert (await session.turn("st").result()).status == "completed"


# -------------------------------------------------------------------------------------------- follow


async def test_a_turn_can_be_followed_while_it_runs_and_read_afterwards(front: Front) -> None:
    world, works = Store(), Works()
    async with front(world, Harness(works)) as durable:
        turn = await (await durable.agent().session(SESSION)).send("go", message_id="m-1")
        live: list[int] = []
        async for entry in turn.events():
            live.append(entry.seq)
            if kind(entry) == "life.started":
                works.enough.set()
        again = [entry.seq async for entry in turn.events()]
    assert live == again == list(range(1, live[-1] + 1))


async def test_the_events_of_a_turn_end_with_it_and_not_with_the_session(front: Front) -> None:
    world = Store()
    async with front(world) as durable:
        session = await durable.agent().session(SESSION)
        first, second = (await session.send("a", message_id="m-1"), await session.send("b", message_id="m-2"))
        await second.result()
        seen = await kinds(first)
        assert (seen[-1], seen.count("turn.completed")) == ("turn.completed", 1)
        assert (await kinds(second)).count("turn.completed") == 2


async def test_events_after_the_end_are_none(front: Front) -> None:
    async with front(Store()) as durable:
        turn = await (await durable.agent().session(SESSION)).send("go", message_id="m-1")
        ended = [entry.seq async for entry in turn.events()][-1]
        assert await kinds(turn, ended) == []
        assert await kinds(turn, ended + 1) == []
        assert await kinds(turn, ended - 1) == ["turn.completed"]


async def test_a_turn_that_was_resumed_goes_on_to_its_next_end(front: Front) -> None:
    world = Store()
    journal = await begun(world)
    await journal.turn_needs_input("why?")
    await world.release(SESSION, 1)
    async with front(world) as durable:
        turn = durable.turn(SESSION, "m-1")
        assert (await kinds(turn))[-1] == "turn.needs_input"
        assert (await turn.result()).status == "needs_input"
        await (await Inbox.open(world, SESSION)).resume("anna")
        await durable.agent().session(SESSION)
        assert (await kinds(turn))[-1] == "turn.completed"


async def test_the_result_names_the_calls_that_nobody_knows_about(front: Front) -> None:
    world = Store()
    journal = await begun(world)
    await asked(journal, ("c1", "pay", {}), ("c2", "look", {}))
    await journal.tool_gate("c1", "L1")
    await driven(world, equipped())
    async with front(world) as durable:
        result = await durable.turn(SESSION, "m-1").result()
    assert (result.status, result.lives, result.unknown) == ("completed", 2, ("c1",))


async def test_a_long_answer_comes_back_whole(front: Front) -> None:
    text = "ä" * 100_000
    async with front(Store(), Harness(completes(text))) as durable:
        turn = await (await durable.agent().session(SESSION)).send("go")
        assert (await turn.result()).text == text


async def test_what_a_settled_turn_leaves_in_the_state_is_short() -> None:
    world = Store()
    journal = await begun(world)
    for number in range(20):
        await asked(journal, (f"c{number}", "Bash", {"x": "y" * 20_000}), origin="builtin")
        await journal.tool_gate(f"c{number}", "L1")
        await journal.tool_finished(f"c{number}", ok=True, result=b"z" * 20_000, source="hook")
    await journal.turn_completed("done")
    snapshot = await world.snapshot(SESSION)
    assert snapshot is not None and len(snapshot[1]) < 40_000
    log = sum(len(record.body) for record in await world.read(SESSION))
    assert log > 20 * 40_000


# --------------------------------------------------------------------------------- stop, ask, progress


async def test_stop_says_whether_there_was_anything_to_stop(front: Front) -> None:
    works = Works()

    async def stops(ctx: LifeContext, link: Link) -> TurnEnd:
        works.begun.set()
        await ctx.journal.until(lambda state: state.turns["m-1"].stop_by is not None)
        return TurnEnd("cancelled", reason="stopped")

    async with front(Store(), Harness(stops)) as durable:
        session = await durable.agent().session(SESSION)
        assert not await session.stop()
        turn = await session.send("go", message_id="m-1")
        await works.begun.wait()
        assert await session.stop("anna")
        assert (await turn.result()).status == "cancelled"
        assert not await session.stop()


async def test_a_permission_that_was_asked_for_later_can_be_answered(front: Front) -> None:
    """C067: an answer that fits nothing raises, and is not kept for something else."""
    world = Store()

    async def asks(ctx: LifeContext, link: Link) -> TurnEnd:
        await ctx.journal.permission_requested("p", "c1", "Bash", ctx.life)
        await ctx.journal.until(lambda state: state.permissions["p"].allow is not None)
        asked = ctx.journal.state.permissions["p"]
        return TurnEnd("completed", f"{asked.allow} by {asked.by}: {asked.reason}")

    async with front(world, Harness(asks)) as durable:
        session = await durable.agent().session(SESSION)
        with pytest.raises(NotFound, match="'p'"):
            await session.answer("p", allow=True)
        turn = await session.send("go", message_id="m-1")

        async def asked_for() -> bool:
            return "p" in (await session.state()).permissions

        await until(asked_for)
        await session.answer("p", allow=False, by="anna", reason="too early")
        await session.answer("p", allow=True, by="ben")
        assert (await turn.result()).text == "False by anna: too early"


async def test_progress_is_the_text_that_arrives_just_now(front: Front) -> None:
    world, works = Store(), Works()
    async with front(world, Harness(works)) as durable:
        session = await durable.agent().session(SESSION)
        turn = await session.send("go", message_id="m-1")
        assert await turn.progress() == ""
        await works.begun.wait()
        await world.put_progress(SESSION, msgspec.json.encode(Shown("m1", "half a sen")))
        assert await turn.progress() == "half a sen"
        works.enough.set()
        await turn.result()


@pytest.mark.parametrize("stored", [None, b"", b"junk", b'{"call":1}'])
def test_progress_that_cannot_be_read_is_none(stored: bytes | None) -> None:
    assert shown(stored) == Shown("", "")


async def test_a_session_that_exists_is_found_with_all_its_past(front: Front) -> None:
    world = Store()
    await accepted(world, "m-1")
    await driven(world, equipped())
    async with front(world) as durable:
        session = await durable.agent(model="another").session(SESSION)
        state = await session.state()
    assert (state.agent, list(state.turns)) == (AGENT, ["m-1"])
    assert await is_(world, "completed")()
